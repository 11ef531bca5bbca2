"""What the end of a run says about each condition."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from tests.airflow_runs import CLUSTER, bundle

from pulsar_rebalancer.alerts import Condition
from pulsar_rebalancer.choices import Mode
from pulsar_rebalancer.reasons import Effect
from pulsar_rebalancer.resolution import Origin, Resolved
from pulsar_rebalancer.run import Finding, RunRequest, Validation
from pulsar_rebalancer.settings import Settings
from pulsar_rebalancer.unloading import MoveOutcome
from pulsar_rebalancer_airflow.alerts.sightings import Ended, figures_of, sightings_of
from pulsar_rebalancer_airflow.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

NOW = datetime(2026, 11, 21, 10, tzinfo=UTC)
DONE = dict.fromkeys(("collect", "validate", "decide", "record", "gate"), "success")
CANNOT_TELL = "cannot tell"


def request(mode: Mode = Mode.AUTO, origin: Origin = Origin.FILE) -> RunRequest:
    resolved = Resolved(settings=Settings(mode=mode), origins={"mode": origin})
    return RunRequest(cluster=CLUSTER, airflow_run_id="manual__1", resolved=resolved, collected_at=NOW)


def validation(*findings: tuple[str, Effect]) -> Validation:
    return Validation(findings=tuple(Finding(reason=reason, effect=effect) for reason, effect in findings))


def outcome(verdict: str, *reasons: str) -> Outcome:
    moves = tuple(
        MoveOutcome(bundle=bundle(n), source="a:1", destination="b:1", reason=reason)
        for n, reason in enumerate(reasons)
    )
    return Outcome(plan_id="p", cluster=CLUSTER, airflow_run_id="manual__1", ended_at=NOW, verdict=verdict, moves=moves)


def ended(verdict: str = "nothing_to_do", *reasons: str, **changes: Any) -> Ended:
    given = {
        "states": DONE,
        "seconds": 20,
        "request": request(),
        "validation": validation(),
        "outcome": outcome(verdict, *reasons),
    }
    return Ended(**(given | changes))


def told(run: Ended, condition: Condition) -> Mapping[str, int] | str | None:
    found = sightings_of(run, Settings())
    if condition not in found:
        return CANNOT_TELL
    seen = found[condition]
    return seen.reasons if seen else None


NOTHING = Ended(states={"collect": "failed", "validate": "upstream_failed"}, seconds=20)
BLOCKED = ended(
    "blocked",
    states={"collect": "success", "validate": "failed", "decide": "upstream_failed"},
    validation=validation(("too_few_brokers", Effect.BLOCK), ("builtin_shedding_on", Effect.HOLD)),
)
HOLD = validation(("builtin_shedding_on", Effect.HOLD), ("policy_unreadable", Effect.HOLD))


@pytest.mark.parametrize(
    ("run", "reasons"),
    [
        (BLOCKED, {"too_few_brokers": 1}),
        (ended(), None),
        (ended(validation=validation(("just_started", Effect.QUARANTINE))), None),
        (NOTHING, CANNOT_TELL),
        (ended(validation=None, states={"collect": "success", "validate": "failed"}), CANNOT_TELL),
    ],
)
def test_validation_failed(run: Ended, reasons: object) -> None:
    assert told(run, Condition.BLOCKED) == reasons


@pytest.mark.parametrize(
    ("run", "reasons"),
    [
        (ended("on_hold", validation=HOLD), {"builtin_shedding_on": 1, "policy_unreadable": 1}),
        # Also when there is nothing to be moved: the gate would stay closed.
        (ended("nothing_to_do", validation=HOLD), {"builtin_shedding_on": 1, "policy_unreadable": 1}),
        (ended("plan_changed"), {"plan_changed": 1}),
        (ended("open", "moved"), None),
        (ended("observe", validation=HOLD, request=request(Mode.OBSERVE)), None),
        # One run that was told to observe says nothing about the others.
        (ended("observe", validation=HOLD, request=request(Mode.OBSERVE, Origin.PARAMS)), CANNOT_TELL),
        (NOTHING, CANNOT_TELL),
    ],
)
def test_acting_is_unsafe(run: Ended, reasons: object) -> None:
    assert told(run, Condition.UNSAFE) == reasons


@pytest.mark.parametrize(
    ("run", "reasons"),
    [
        (ended("open", "moved", "already_there", "owner_changed", "no_topic", "destination_gone"), None),
        (ended("open", "moved", "astray", "astray", "unowned"), {"astray": 2, "unowned": 1}),
        (ended("open", "interrupted", "not_attempted"), {"interrupted": 1, "not_attempted": 1}),
        (ended("open", "forbidden", "unreachable"), {"forbidden": 1, "unreachable": 1}),
        (ended("open", "moved", states=DONE | {"unload_0": "success", "unload_1": "failed"}), {"task_failed": 1}),
        (ended("nothing_to_do"), None),
        (ended("on_hold"), CANNOT_TELL),
        (ended("paused"), CANNOT_TELL),
        (ended("observe", request=request(Mode.OBSERVE, Origin.PARAMS)), CANNOT_TELL),
        (ended("observe", request=request(Mode.OBSERVE)), None),
        (BLOCKED, CANNOT_TELL),
        (NOTHING, CANNOT_TELL),
    ],
)
def test_unloading_failed(run: Ended, reasons: object) -> None:
    assert told(run, Condition.UNLOAD) == reasons


@pytest.mark.parametrize(
    ("run", "reasons"),
    [
        (NOTHING, {"task_failed": 1}),
        (Ended(states={"collect": "failed"}, failures={"collect": "state_lost"}), {"state_lost": 1}),
        (ended("unfinished", states=DONE | {"decide": "failed", "record": "upstream_failed"}), {"task_failed": 1}),
        (ended(), None),
        (ended("open", "moved", states=DONE | {"unload_0": "failed"}), None),
        (BLOCKED, CANNOT_TELL),
        (Ended(states={"collect": "skipped"}), CANNOT_TELL),
        # A person who typed wrong parameters reads it in the UI.
        (Ended(states={"collect": "failed"}, failures={"collect": "contradiction"}, manual=True), CANNOT_TELL),
        (Ended(states={"collect": "failed"}, failures={"collect": "contradiction"}), {"contradiction": 1}),
    ],
)
def test_a_run_failed(run: Ended, reasons: object) -> None:
    assert told(run, Condition.UNFINISHED) == reasons


@pytest.mark.parametrize(
    ("seconds", "reasons"), [(59.0, None), (60.0, None), (60.1, {"run_too_long": 1}), (None, CANNOT_TELL)]
)
def test_runs_take_too_long(seconds: float | None, reasons: object) -> None:
    assert told(ended(seconds=seconds), Condition.SLOW) == reasons


def test_the_figures_of_a_run_that_moved_something() -> None:
    run = ended("open", "moved", "astray", "moved", validation=HOLD)

    assert figures_of(run) == ["moves: 2 of 3 verified, 1 astray", "findings: 2 hold"]
