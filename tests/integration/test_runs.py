"""Whole runs: real Airflow tasks, real HTTP, real Spark. The runs are shared, because each takes seconds."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from unittest import mock

import pytest
from airflow.exceptions import DagRunTypeNotAllowed
from airflow.models.backfill import ReprocessBehavior, _create_backfill
from airflow.sdk import timezone
from tests.integration.airflow_world import Outcome, World, world

from pulsar_rebalancer.run.outcome import BundleClientGaps
from pulsar_rebalancer.run.outcome import Outcome as Written
from pulsar_rebalancer.run.plan import Summary, read_moves, read_plan_state
from pulsar_rebalancer.storage.documents import CommitMark, last_committed_run

pytestmark = pytest.mark.integration

FORCE: dict[str, Any] = {"force": "a broker was added", "force_threshold": 5}


@pytest.fixture(scope="module")
def east(tmp_path_factory: pytest.TempPathFactory, one_session: None) -> Iterator[World]:
    # A busy machine may take minutes: neither hits nor plans shall grow too old for that.
    patient = {"interval_seconds": 5, "state_max_gap": 1000, "max_plan_age_seconds": 3600}
    given = {"mode": "auto", "hit_count_low": 2, "hit_count_high": 2} | patient
    with world("east", tmp_path_factory.mktemp("east"), **given) as made:
        yield made


@pytest.fixture(scope="module")
def usage(east: World) -> dict[str, float]:
    return east.served.cluster.true_scores()


@pytest.fixture(scope="module")
def first(east: World, usage: dict[str, float]) -> Outcome:
    return east.run()


@pytest.fixture(scope="module")
def second(east: World, first: Outcome) -> Outcome:
    """A run whose report fails once it has written the outcome, so Airflow drops its event, and is tried again."""
    failing = [ConnectionError("the metrics are away"), None]
    with mock.patch("pulsar_rebalancer_airflow.operators.report.send_metrics", side_effect=failing):
        return east.run()


def disturb(east: World) -> None:
    """Take load from all brokers but the hottest one."""
    scores = east.served.cluster.true_scores()
    hottest = max(scores, key=scores.__getitem__)
    for broker in scores.keys() - {hottest}:
        east.served.cluster.scale_load(0.4, broker=broker)
    east.served.cluster.advance(2)  # until brokers have looked at themselves


def test_the_second_run_balances_the_cluster(east: World, first: Outcome, second: Outcome) -> None:
    assert second.state == "success"
    assert second.states.pop("split") == "skipped"
    assert set(second.states.values()) == {"success"}
    summary, moves = Summary.read(second.folder), read_moves(second.folder)
    assert summary.pairs_fired >= 1
    assert second.waves == summary.waves >= 1
    assert east.decision().plan_id == summary.plan_id
    assert all(east.served.cluster.owner(move.bundle) == move.destination for move in moves)
    outcome = Written.read(second.folder)
    assert outcome.move_counts == {"moved": len(moves)}
    assert outcome.client_gap is not None
    assert (outcome.client_gap.moves, outcome.client_gap.unknown, outcome.client_gap.not_back) == (len(moves), 0, 0)
    away = [
        move.client_gap.clients_seconds for move in outcome.moves if move.client_gap and move.client_gap.clients_before
    ]
    delay = east.served.cluster.spec.timing.reconnect_delay
    assert away
    assert all(seconds is not None and seconds >= delay for seconds in away)
    assert {b: u.outcome for b, u in east.moves().unloads.items()} == {move.bundle: "moved" for move in moves}
    assert east.score_range() < summary.score_range / 2
    assert [CommitMark.read(run.folder).seq for run in (first, second)] == [1, 2]
    assert BundleClientGaps.FILE in east.storage.state.entry_names()


def test_asset_events_follow_only_runs_that_moved_something(east: World, second: Outcome) -> None:
    moved = len(read_moves(second.folder))

    (event,) = east.events()

    assert event["plan_id"] == second.folder.name
    assert event["moved"] == moved


def test_a_run_that_is_carried_on_again_does_nothing_twice(east: World, second: Outcome) -> None:
    before = (east.decision(), east.moves())

    with mock.patch.object(east.served.cluster, "unload_via", side_effect=AssertionError("unloaded again")) as unload:
        again = east.run_again(second, "record")

    assert again.state == "success"
    assert (east.decision(), east.moves()) == before
    assert not unload.called
    assert len(east.events()) == 1


def test_a_plan_that_another_run_overtook_is_not_carried_out(east: World, second: Outcome) -> None:
    """A run ends before record, another one is recorded, then the first is carried on."""
    disturb(east)
    first_try = east.run(mode="observe", **FORCE)
    before, owners = east.decision(), east.served.cluster.state()["owners"]
    parked = east.run_again(first_try, "collect", last="decide")
    assert Summary.read(parked.folder).bundles_taken > 0
    assert east.decision() == before  # what was not recorded did not count

    other = east.run(mode="observe", **FORCE)

    assert other.state == "success"
    assert other.xcom("gate", "reason") == "observe"
    assert Summary.read(other.folder).bundles_taken > 0
    assert east.decision().plan_id == other.folder.name
    carried_on = east.run_again(parked, "record")
    assert (carried_on.states["record"], carried_on.states["unload"]) == ("failed", "upstream_failed")
    assert east.decision().plan_id == other.folder.name
    assert east.served.cluster.state()["owners"] == owners


@pytest.fixture(scope="module")
def forced(east: World, second: Outcome) -> Outcome:
    disturb(east)
    return east.run(**FORCE)


def test_a_forced_run_says_who_and_why_and_counts_no_hit(east: World, forced: Outcome) -> None:
    summary, moves = Summary.read(forced.folder), read_moves(forced.folder)

    assert forced.state == "success"
    assert moves
    assert all(east.served.cluster.owner(move.bundle) == move.destination for move in moves)
    assert summary.counting == "forced"
    assert summary.forced is not None
    assert (summary.forced.by, summary.forced.reason) == ("tester", FORCE["force"])
    stored = (forced.folder / "input" / "state.json").read_json()["decision"]
    after = (forced.folder / "plan" / "state.json").read_json()
    assert after["counted_at"] == stored["counted_at"]
    assert set(after["hits"]) <= set(stored["hits"])


def test_a_lost_state_blocks_until_it_is_restored_and_orders_are_given_again(east: World, forced: Outcome) -> None:
    before, last = east.decision(), last_committed_run(east.storage, datetime.now(UTC))
    assert last is not None
    east.lose_state()

    lost = east.run()
    assert lost.states["collect"] == "failed"
    assert lost.xcom("collect", "failure") == "state_lost"
    assert east.run("control", action="resume", reason="it goes on").state == "failed"
    pause = {"until": "2999-01-01T00:00:00Z", "reason": "disks are changed"}
    assert east.run("control", action="pause", **pause).xcom("control")["lost"] == {"control": "missing"}
    assert east.run("control", action="restore", reason=" ").state == "failed"
    assert east.run().states["collect"] == "failed"
    assert east.run("control", action="restore", reason="database was lost").state == "success"

    restored = read_plan_state(last).with_hits_reset()
    assert east.decision() == restored.model_copy(update={"seq": before.seq + 1, "plan_id": ""})
    assert east.run("control", action="show").xcom("control")["state"]["seq"] == before.seq + 1

    disturb(east)
    paused = east.run(**FORCE)
    assert (paused.state, paused.states["unload"], paused.xcom("gate", "reason")) == ("success", "skipped", "paused")
    summary = Summary.read(paused.folder)
    assert summary.bundles_taken > 0
    assert summary.in_force == (
        "Nothing is moved: mode auto; paused until 2999-01-01 00:00 UTC (tester: disks are changed)"
    )
    resumed = east.run("control", action="resume", reason="disks are in")
    assert resumed.xcom("control")["in_force"] == "Moves are carried out: mode auto"


def test_backfills_are_refused(east: World) -> None:
    now = timezone.utcnow()

    with pytest.raises(DagRunTypeNotAllowed, match="does not allow backfill runs"):
        _create_backfill(
            dag_id="pulsar_rebalance__east",
            from_date=now,
            to_date=now,
            max_active_runs=1,
            reverse=False,
            dag_run_conf={},
            triggering_user_name="ada",
            reprocess_behavior=ReprocessBehavior.NONE,
        )
