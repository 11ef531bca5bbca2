"""What attempts at one wave make of a move together."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from tests.airflow_runs import bundle, make_run, move_row

from pulsar_rebalancer.carry_out.move_history import WaveHistory, still_kept
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.outcome import MoveOutcome
from pulsar_rebalancer.state.state_documents import KeptDestination, MovesState
from pulsar_rebalancer.storage.layout import ClusterStorage

if TYPE_CHECKING:
    from pathlib import Path

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
def test_attempts_are_added_up(
    tmp_path: Path, earlier: MoveOutcome, later: MoveOutcome, together: tuple[Reason, int, bool]
) -> None:
    run = make_run(ClusterStorage(str(tmp_path), "east"), [move_row(1, "a:1", "b:1")])
    for attempt in (earlier, later):
        history = WaveHistory(MovesState(), lambda change: None, run, 0)
        history.add(attempt, NOW)
        history.write()

    found = history.outcomes[bundle(1)]
    assert (found.reason, found.attempts, found.destination_kept) == together


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
def test_a_kept_destination_is_forgotten_once_a_later_report_names_another_owner(
    age: int, owners: dict[str, set[str]], kept: bool
) -> None:
    at = NOW - timedelta(seconds=age)
    history = MovesState(kept={bundle(1): KeptDestination(at=at, plan_id="p", destination="b:1", owner="a:1")})
    assert bool(still_kept(history, owners, NOW - timedelta(seconds=60), NOW).kept) is kept
