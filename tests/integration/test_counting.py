"""What runs with parameters of their own leave of the hits: real Airflow tasks, real HTTP, real Spark."""

import json
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.airflow_world import Outcome, World, world
from tests.integration.page_scene import changed_in_file
from tests.patience import PATIENCE

from pulsar_rebalancer.run.plan import Summary, read_moves

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


@pytest.mark.parametrize(
    ("asked", "closed"),
    [({"mode": "observe"} | OWN, "observe"), ({"mode": "observe"} | FORCED, "observe"), (FORCED, "read_only")],
    ids=["own thresholds", "forced", "read only"],
)
def test_a_plan_that_is_not_carried_out_leaves_the_hits(
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
    assert (after.hits, after.counted_at) == (before.hits, before.counted_at)
    # On a busy machine a sample may become too old to be repeated.
    assert after.samples.items() <= before.samples.items()


def counted_again(north: World) -> Outcome:
    """The next run that counts its sample."""
    for _ in range(100):
        run = north.run()
        if Summary.read(run.folder).counting == "counted":
            return run
    raise RuntimeError("no run counts its sample")


def measured(north: World, brokers: Iterable[str]) -> None:
    """Return once brokers report the load that they have."""
    cluster, limit = north.served.cluster, time.monotonic() + PATIENCE
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
