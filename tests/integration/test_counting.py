"""What runs with parameters of their own leave of the hits: real Airflow tasks, real HTTP, real Spark."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.airflow_world import World, world
from tests.integration.page_scene import changed_in_file

from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.plan import Summary, read_moves

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.integration.airflow_world import Outcome

pytestmark = pytest.mark.integration

OWN = {"hit_count_low": 1, "hit_count_high": 1}
FORCED = {"force": "what if"}
EVERY_5_S, ONCE_A_DAY = "interval_seconds: 5\n", "interval_seconds: 86400\n"


@pytest.fixture(scope="module")
def north(tmp_path_factory: pytest.TempPathFactory, one_session: None) -> Iterator[World]:
    # A busy machine may take minutes: neither hits nor plans shall grow too old for that.
    patient = {"interval_seconds": 5, "state_max_gap": 1000, "max_plan_age_seconds": 3600, "hit_count_high": 8}
    with world("north", tmp_path_factory.mktemp("north"), mode="auto", **patient) as made:
        yield made


@pytest.fixture(scope="module")
def counted(north: World) -> Outcome:
    """A run that counted: one hit for every pair that is out of balance."""
    return north.run()


@pytest.fixture
def south(tmp_path: Path, one_session: None) -> Iterator[World]:
    """Brokers that look at their machine every twenty minutes: all that the runs see is one sample."""
    seldom = {"host_usage_interval_minutes": 20, "interval_seconds": 5, "state_max_gap": 1000}
    with world("south", tmp_path, mode="auto", hit_count_high=2, hit_count_low=2, **seldom) as made:
        yield made


def test_a_hot_broker_without_its_partner_does_not_count_its_sample_again(south: World) -> None:
    run = south.run()
    assert (run.state, Summary.read(run.folder).counting) == ("success", "counted")
    owners = south.served.cluster.state()["owners"]
    scores = south.served.cluster.true_scores()
    coldest, hottest = min(scores, key=scores.__getitem__), max(scores, key=scores.__getitem__)
    assert south.decision().hits[hottest].low == 1

    left_out = south.run(excluded_brokers=[coldest])
    south.served.cluster.faults.add("not_listed", coldest)
    gone = south.run()

    for run, counting in ((left_out, "other_thresholds"), (gone, "counted")):
        summary = Summary.read(run.folder)
        assert (run.state, summary.counting, summary.pairs_fired) == ("success", counting, 0)
        assert summary.reasons[Reason.TOO_SOON] == 1
    assert south.decision().hits[hottest].low == 1
    assert south.served.cluster.state()["owners"] == owners


def stored_means(north: World) -> dict[str, int]:
    """When each file of the means that the stored state names was written."""
    folder = Path((north.storage.state / north.decision().means).uri)
    return {file.name: file.stat().st_mtime_ns for file in folder.iterdir()}


def test_a_sample_that_was_counted_neither_counts_again_nor_moves_anything(
    north: World, counted: Outcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, owners = north.decision(), north.served.cluster.state()["owners"]
    assert before.hits
    clusters = tmp_path / "clusters.yaml"
    clusters.write_text(
        Path(os.environ["AIRFLOW__PULSAR_REBALANCER__CLUSTERS_FILE"]).read_text().replace(EVERY_5_S, ONCE_A_DAY)
    )
    monkeypatch.setenv("AIRFLOW__PULSAR_REBALANCER__CLUSTERS_FILE", str(clusters))

    run = north.run(**OWN)

    assert (run.state, run.xcom("gate", "reason")) == ("success", "nothing_to_do")
    assert Summary.read(run.folder).counting == "too_soon"
    assert north.decision().hits == before.hits
    assert north.served.cluster.state()["owners"] == owners


@pytest.mark.parametrize(
    ("asked", "closed"),
    [({"mode": "observe"} | OWN, "observe"), ({"mode": "observe"} | FORCED, "observe"), (FORCED, "read_only")],
    ids=["own thresholds", "forced", "read only"],
)
def test_what_is_not_carried_out_leaves_the_hits(
    north: World, counted: Outcome, asked: dict[str, Any], closed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = north.decision()
    if closed == "read_only":
        connection = json.loads(os.environ["AIRFLOW_CONN_PULSAR_NORTH"]) | {"extra": {"read_only": True}}
        monkeypatch.setenv("AIRFLOW_CONN_PULSAR_NORTH", json.dumps(connection))

    run = north.run(**asked)

    assert (run.state, run.xcom("gate", "reason")) == ("success", closed)
    assert Summary.read(run.folder).bundles_taken > 0
    after = north.decision()
    assert (after.hits, after.samples, after.counted_at) == (before.hits, before.samples, before.counted_at)


def test_decide_cleared_after_record_and_never_recorded_again_leaves_the_means(north: World, counted: Outcome) -> None:
    run = north.run()
    before, files = north.decision(), stored_means(north)
    assert before.plan_id == run.folder.name

    north.run_again(run, "decide", last="decide")
    assert stored_means(north) == files

    again = north.run_again(run, "decide")
    assert again.state == "success"
    assert stored_means(north) == files
    assert north.decision() == before


def counted_again(north: World) -> Outcome:
    """The next run that counts its sample."""
    for _ in range(100):
        run = north.run()
        if Summary.read(run.folder).counting == "counted":
            return run
    raise RuntimeError("no run counts its sample")


def measured(north: World, brokers: Iterable[str]) -> None:
    """Return once brokers report the load that they have."""
    cluster, limit = north.served.cluster, time.monotonic() + 600
    for broker in brokers:
        while True:
            cpu = cluster.load_report(broker)["cpu"]
            # A broker uses no more than it has.
            if abs(cpu["usage"] / cpu["limit"] * 100 - min(cluster.true_scores()[broker], 100)) < 1:
                break
            assert time.monotonic() < limit, (broker, cpu)
            time.sleep(0.1)


def test_a_pair_that_is_moved_starts_anew(north: World, counted: Outcome) -> None:
    before = north.decision()

    run = north.run(**OWN)

    moves = read_moves(run.folder)
    moved = {end for move in moves for end in (move.source, move.destination)}
    assert (run.state, run.xcom("gate", "reason")) == ("success", "open")
    assert moved
    assert north.decision().hits == {broker: hit for broker, hit in before.hits.items() if broker not in moved}


def test_a_broker_that_restarted_is_filled(north: World, counted: Outcome) -> None:
    cluster = north.served.cluster
    scores = cluster.true_scores()
    restarted = min(scores, key=scores.__getitem__)
    north.put(north.moves().model_copy(update={"unloads": {}}))

    cluster.restart(restarted)
    measured(north, cluster.active_brokers())
    # That broker is new, and the bundles that it has again carry little.
    cluster.scale_load(0.3, broker=restarted)
    measured(north, cluster.active_brokers())
    changed_in_file("north", fill_new_brokers=True)
    # Until it has measured itself twice, the broker is left out.
    filled = next(run for run in (counted_again(north) for _ in range(5)) if read_moves(run.folder))
    moves = read_moves(filled.folder)
    assert Summary.read(filled.folder).sentence.endswith(f"New: {restarted}, filled")
    assert {move.destination for move in moves} == {restarted} == {cluster.owner(move.bundle) for move in moves}
