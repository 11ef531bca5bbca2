import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.airflow_runs import bundle, make_run, move_row

from pulsar_rebalancer.carry_out import move_history
from pulsar_rebalancer.carry_out.move_history import WaveHistory, drop_destinations
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.outcome import MoveOutcome, conclude_run, write_outcomes
from pulsar_rebalancer.run.plan import read_moves
from pulsar_rebalancer.state import KeptDestination, MovesState, Unload
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer.storage.path import StoragePath

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


def outcome(reason: Reason, attempts: int, owner: str = "", kept: bool = False) -> MoveOutcome:
    ends: dict[str, Any] = {"bundle": bundle(1), "source": "a:1", "destination": "b:1", "owner": owner}
    return MoveOutcome(**ends, reason=reason, attempts=attempts, destination_kept=kept)


@pytest.mark.parametrize(
    ("earlier", "later", "together"),
    [
        (outcome(Reason.ASTRAY, 2, "c:1"), outcome(Reason.MOVED, 1, "b:1"), (Reason.MOVED, 3, False)),
        (outcome(Reason.ASTRAY, 1, "c:1"), outcome(Reason.ALREADY_THERE, 0, "b:1"), (Reason.MOVED, 1, False)),
        (outcome(Reason.UNREACHABLE, 0), outcome(Reason.ALREADY_THERE, 0, "b:1"), (Reason.ALREADY_THERE, 0, False)),
        (outcome(Reason.UNREACHABLE, 2), outcome(Reason.UNREACHABLE, 1, "a:1"), (Reason.UNREACHABLE, 3, False)),
        (outcome(Reason.INTERRUPTED, 1), outcome(Reason.UNREACHABLE, 1, "a:1"), (Reason.UNREACHABLE, 1, False)),
        (outcome(Reason.INTERRUPTED, 1), outcome(Reason.ASTRAY, 1, "c:1"), (Reason.ASTRAY, 2, False)),
        (outcome(Reason.NOT_ATTEMPTED, 0), outcome(Reason.MOVED, 1, "b:1"), (Reason.MOVED, 1, False)),
        (outcome(Reason.ASTRAY, 1, "c:1"), outcome(Reason.NOT_ATTEMPTED, 0), (Reason.ASTRAY, 1, False)),
        (outcome(Reason.ASTRAY, 1, kept=True), outcome(Reason.UNREACHABLE, 0), (Reason.UNREACHABLE, 1, True)),
        (outcome(Reason.ASTRAY, 1, kept=True), outcome(Reason.UNREACHABLE, 1), (Reason.UNREACHABLE, 2, False)),
        (outcome(Reason.ASTRAY, 1, kept=True), outcome(Reason.ALREADY_THERE, 0), (Reason.MOVED, 1, False)),
        (outcome(Reason.ASTRAY, 1), outcome(Reason.ASTRAY, 1, kept=True), (Reason.ASTRAY, 2, True)),
    ],
)
def test_attempts_are_added_up(tmp_path, earlier, later, together):
    run = make_run(ClusterStorage(str(tmp_path), "east"), [move_row(1, "a:1", "b:1")])
    for attempt in (earlier, later):
        history = WaveHistory(MovesState(), lambda change: None, run, 0)
        history.add_outcome(attempt, NOW)
        history.write_outcomes()

    found = history.outcomes[bundle(1)]
    assert (found.reason, found.attempts, found.destination_kept) == together


@pytest.fixture
def run(tmp_path: Path) -> StoragePath:
    moves = [move_row(number, "a:1", "b:1", wave=0 if number < 4 else 1) for number in range(1, 5)]
    return make_run(ClusterStorage(str(tmp_path), "east"), moves)


def attempt(run: StoragePath, wave: int = 0) -> WaveHistory:
    return WaveHistory(MovesState(), lambda change: None, run, wave)


@pytest.mark.parametrize(
    ("earlier", "unloaded", "ended"),
    [
        (outcome(Reason.MOVED, 1), True, True),
        (outcome(Reason.UNREACHABLE, 0), False, True),
        (outcome(Reason.INTERRUPTED, 1), True, False),
        (outcome(Reason.NOT_ATTEMPTED, 0), False, False),
    ],
)
def test_a_retry_knows_what_was_unloaded_and_what_has_ended(run, earlier, unloaded, ended):
    attempt(run).add_skipped_moves([earlier], NOW)

    assert (bool(attempt(run).maybe_unloaded_bundles), bool(attempt(run).ended_moves)) == (unloaded, ended)


@pytest.mark.parametrize(
    ("ended", "left"),
    [(outcome(Reason.MOVED, 1, "b:1"), {bundle(2)}), (outcome(Reason.UNREACHABLE, 0), {bundle(1), bundle(2)})],
)
def test_only_another_unload_takes_the_place_of_a_kept_destination(run, ended, left):
    kept = KeptDestination(at=NOW, plan_id="p", destination="c:1", owner="a:1")
    stored = [MovesState(kept_destinations={bundle(1): kept, bundle(2): kept})]
    history = WaveHistory(stored[0], lambda change: stored.append(change(stored[-1])), run, 0)

    history.add_outcome(ended, NOW)
    history.write_outcomes()

    assert set(stored[-1].kept_destinations) == left


def test_a_planned_move_that_is_left_is_stored_as_left(run):
    planned = Unload(at=NOW, plan_id=run.name, source="a:1", destination="b:1")
    stored = [MovesState(unloads={bundle(1): planned})]
    history = WaveHistory(stored[0], lambda change: stored.append(change(stored[-1])), run, 0)

    history.add_skipped_moves([outcome(Reason.NOT_ATTEMPTED, 0)], NOW)

    assert stored[-1].unloads[bundle(1)].outcome == "not_attempted"


@pytest.mark.parametrize(
    ("before", "tries"),
    [
        ({"outcome": "astray", "tries": 2}, 3),
        ({"outcome": "unknown_owner"}, 2),
        ({}, 2),
        ({"outcome": "moved"}, 1),
        ({"outcome": "astray", "destination": "c:1"}, 1),
        ({"outcome": "astray", "tries": 2, "plan_id": "this"}, 2),
    ],
)
def test_runs_in_a_row_that_miss_the_same_broker_are_counted(run, before, tries):
    known = {"at": NOW, "plan_id": "p", "source": "a:1", "destination": "b:1"} | before
    if known["plan_id"] == "this":  # a retry of the task plans its moves again
        known["plan_id"] = run.name
    stored = [MovesState(unloads={bundle(1): Unload(**known)})]
    history = WaveHistory(stored[0], lambda change: stored.append(change(stored[-1])), run, 0)

    history.record_planned_moves([move for move in read_moves(run) if move.bundle == bundle(1)], NOW)
    history.add_outcome(outcome(Reason.ASTRAY, 3, "c:1"), NOW)
    history.write_outcomes()

    assert stored[-1].unloads[bundle(1)].tries == tries


def test_failed_moves_of_all_waves_count_until_the_report(run):
    failed = outcome(Reason.UNREACHABLE, 0)
    attempt(run, 1).add_skipped_moves([failed.model_copy(update={"bundle": bundle(4)})], NOW)
    attempt(run).add_skipped_moves([failed], NOW)
    again = attempt(run)
    assert again.new_failures(None) == 2
    again.add_outcome(outcome(Reason.MOVED, 1, "b:1"), NOW)
    assert again.new_failures(None) == 1
    conclude_run(run, Reason.OPEN, NOW).write(run)
    assert attempt(run).new_failures(None) == 0


def test_bundles_that_begin_together_are_written_together(run, monkeypatch):
    history, written = attempt(run), []

    def write(file: StoragePath, outcomes: Mapping[str, MoveOutcome]) -> None:
        written.append([begun.attempts for begun in outcomes.values()])
        write_outcomes(file, outcomes)

    monkeypatch.setattr(move_history, "write_outcomes", write)

    async def begin() -> None:
        await asyncio.gather(*(history.record_begin(move) for move in read_moves(run) if move.wave == 0))

    asyncio.run(begin())

    assert written == [[1], [1, 1, 1]]
    assert attempt(run).outcomes == history.outcomes


@pytest.mark.parametrize(
    ("age", "owners", "kept"),
    [
        (30, {bundle(1): {"c:1"}}, True),
        (0, {bundle(1): {"c:1"}}, True),
        (-1, {bundle(1): {"c:1"}}, False),
        (60, {bundle(1): {"c:1"}}, False),
        (60, {bundle(1): {"a:1", "c:1"}}, True),
        (60, {}, True),
    ],
)
def test_a_kept_destination_is_forgotten_once_a_later_report_names_another_owner(age, owners, kept):
    at = NOW - timedelta(seconds=age)
    history = MovesState(
        kept_destinations={bundle(1): KeptDestination(at=at, plan_id="p", destination="b:1", owner="a:1")}
    )
    assert bool(drop_destinations(history, owners, NOW - timedelta(seconds=60), NOW).kept_destinations) is kept


def test_unloads_far_ahead_of_a_clock_that_was_set_back_are_dropped():
    ends: dict[str, Any] = {"plan_id": "p", "source": "a:1", "destination": "b:1"}
    ahead = {name: Unload(at=NOW + timedelta(minutes=minutes), **ends) for name, minutes in (("near", 59), ("far", 61))}
    assert MovesState(unloads=ahead).recent_unloads(NOW, 60).keys() == {"near"}
