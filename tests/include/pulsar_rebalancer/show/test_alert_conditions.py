from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.airflow_runs import CLUSTER, bundle

from pulsar_rebalancer.config.clusters_file import Origin, RunSettings
from pulsar_rebalancer.config.field_types import Mode
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.orders.roll_document import Roll
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.outcome import MoveOutcome, Outcome
from pulsar_rebalancer.run.request import Finding, RunRequest, Validation
from pulsar_rebalancer.show.alert_conditions import Condition, EndedRun, judge_run

NOW = datetime(2026, 11, 21, 10, tzinfo=UTC)
DONE = dict.fromkeys(("collect", "validate", "decide", "record", "gate"), "success")
CANNOT_TELL = "cannot tell"


def request(mode: Mode = Mode.AUTO, origin: Origin = Origin.FILE) -> RunRequest:
    resolved = RunSettings(settings=Settings(mode=mode), origins={"mode": origin})
    return RunRequest(cluster=CLUSTER, airflow_run_id="manual__1", resolved=resolved, collected_at=NOW)


def validation(*reasons: str) -> Validation:
    return Validation(findings=tuple(Finding(reason=reason) for reason in reasons))


def outcome(verdict: str, *reasons: str) -> Outcome:
    moves = tuple(
        MoveOutcome(bundle=bundle(n), source="a:1", destination="b:1", reason=reason)
        for n, reason in enumerate(reasons)
    )
    return Outcome(plan_id="p", cluster=CLUSTER, airflow_run_id="manual__1", ended_at=NOW, verdict=verdict, moves=moves)


def ended(verdict: str = "nothing_to_do", *reasons: str, **changes: Any) -> EndedRun:
    given: dict[str, Any] = {
        "states": DONE,
        "duration_s": 20,
        "request": request(),
        "validation": validation(),
        "outcome": outcome(verdict, *reasons),
    }
    return EndedRun(**(given | changes))


def told(
    run: EndedRun, condition: Condition, mode: Mode = Mode.AUTO, seen: timedelta | None = None
) -> Mapping[Reason, int] | str | None:
    """Reasons of a condition that is there, None or why nobody looks any more of one that is not."""
    last_seen = {} if seen is None else {condition: NOW - seen}
    found = judge_run(run, Settings(mode=mode), last_seen, NOW).get(condition)
    if found is None:
        return CANNOT_TELL
    return found.reasons if found.is_present else found.why_unwatched


NOTHING = EndedRun(states={"collect": "failed", "validate": "upstream_failed"}, duration_s=20)
BLOCKED = ended(
    "blocked",
    states={"collect": "success", "validate": "failed", "decide": "upstream_failed"},
    validation=validation("too_few_brokers", "builtin_shedding_on"),
)
HOLD = validation("builtin_shedding_on", "policy_unreadable")


@pytest.mark.parametrize(
    ("run", "reasons"),
    [
        (ended("on_hold", validation=HOLD), {"builtin_shedding_on": 1, "policy_unreadable": 1}),
        # Also when there is nothing to be moved: the gate would stay closed.
        (ended("nothing_to_do", validation=HOLD), {"builtin_shedding_on": 1, "policy_unreadable": 1}),
        (ended("plan_changed"), {"plan_changed": 1}),
        (ended("open", "moved"), None),
        (ended("observe", validation=HOLD, request=request(Mode.OBSERVE)), "observe"),
        # One run that was told to observe says nothing about the others.
        (ended("observe", validation=HOLD, request=request(Mode.OBSERVE, Origin.PARAMS)), CANNOT_TELL),
        (NOTHING, CANNOT_TELL),
        (ended(closed={Reason.BREAKER_OPEN: "until 12:00: faulty brokers left out: 2"}), {"breaker_open": 1}),
        (ended("nothing_to_do", closed={Reason.BREAKER_OPEN: "until 12:00"}), {"breaker_open": 1}),
        (ended(request=request(Mode.APPROVE), validation=HOLD), {"builtin_shedding_on": 1, "policy_unreadable": 1}),
        # What waits for a person is no failure.
        (ended("awaiting_approval", request=request(Mode.APPROVE)), None),
    ],
)
def test_acting_is_unsafe(run: EndedRun, reasons: object) -> None:
    assert told(run, Condition.UNSAFE) == reasons


@pytest.mark.parametrize(
    ("run", "reasons"),
    [
        (ended("open", "moved", "already_there", "owner_changed", "no_topic", "destination_gone"), None),
        (ended("open", "moved", "astray", "astray", "unknown_owner"), {"astray": 2, "unknown_owner": 1}),
        # The end of a maintenance window is no failure; one beside it is.
        (ended("open", "moved", "outside_window", states=DONE | {"unload_0": "success"}), None),
        (ended("open", "paused", states=DONE | {"unload_0": "skipped"}), CANNOT_TELL),
        (ended("open", "moved", "paused", states=DONE | {"unload_0": "failed"}), {"task_failed": 1}),
        (ended("open", "moved", "paused", "astray", states=DONE | {"unload_0": "failed"}), {"astray": 1}),
        (ended("open", "moved", "stopped", states=DONE | {"unload_0": "failed"}), {"stopped": 1}),
        (ended("open", "interrupted", "not_attempted"), {"interrupted": 1, "not_attempted": 1}),
        (ended("open", "forbidden", "unreachable"), {"forbidden": 1, "unreachable": 1}),
        (ended("open", "moved", states=DONE | {"unload_0": "success", "unload_1": "failed"}), {"task_failed": 1}),
        # A run that unloads nothing proves nothing about unloading.
        (ended("nothing_to_do"), CANNOT_TELL),
        (ended("open", "owner_changed", "no_topic", "destination_gone", "already_there"), CANNOT_TELL),
        (ended("on_hold"), CANNOT_TELL),
        (ended("paused"), CANNOT_TELL),
        (ended("observe", request=request(Mode.OBSERVE, Origin.PARAMS)), CANNOT_TELL),
        (ended("observe", request=request(Mode.OBSERVE)), "observe"),
        (ended("nothing_to_do", request=request(Mode.OBSERVE)), "observe"),
        (BLOCKED, CANNOT_TELL),
        (NOTHING, CANNOT_TELL),
    ],
)
def test_unloading_failed(run: EndedRun, reasons: object) -> None:
    assert told(run, Condition.UNLOAD) == reasons


@pytest.mark.parametrize("verdict", ["open", "nothing_to_do"])
def test_a_destination_that_the_leader_may_remember_is_told(verdict: str) -> None:
    kept = outcome(verdict).model_copy(update={"destinations_kept": {bundle(0): "b:1"}})
    assert told(ended(outcome=kept), Condition.UNLOAD) == {"destination_kept": 1}


@pytest.mark.parametrize(
    ("run", "seen", "reasons"),
    [
        (ended("nothing_to_do"), timedelta(days=1), CANNOT_TELL),
        (ended("nothing_to_do"), timedelta(days=1, seconds=1), "unload_not_tried"),
        (NOTHING, timedelta(days=2), "unload_not_tried"),
        (ended("open", "astray"), timedelta(days=2), {"astray": 1}),
        (ended("nothing_to_do"), timedelta(days=-365), "unload_not_tried"),  # the clock was set back
    ],
)
def test_alert_of_failed_unloads_ends_after_a_quiet_day(run: EndedRun, seen: timedelta, reasons: object) -> None:
    assert told(run, Condition.UNLOAD, seen=seen) == reasons


@pytest.mark.parametrize(
    ("run", "reasons"),
    [
        (NOTHING, {"task_failed": 1}),
        (EndedRun(states={"collect": "failed"}, failures={"collect": "state_lost"}), {"state_lost": 1}),
        (ended("unfinished", states=DONE | {"decide": "failed", "record": "upstream_failed"}), {"task_failed": 1}),
        (ended(), None),
        (ended("open", "moved", states=DONE | {"unload_0": "failed"}), None),
        (BLOCKED, CANNOT_TELL),
        (EndedRun(states={"collect": "skipped"}), CANNOT_TELL),
        # A person who typed wrong parameters reads it in the UI.
        (EndedRun(states={"collect": "failed"}, failures={"collect": "contradiction"}, is_manual=True), CANNOT_TELL),
        (EndedRun(states={"collect": "failed"}, failures={"collect": "contradiction"}), {"contradiction": 1}),
    ],
)
def test_a_run_failed(run: EndedRun, reasons: object) -> None:
    assert told(run, Condition.UNFINISHED) == reasons


@pytest.mark.parametrize(
    ("seconds", "reasons"), [(59.0, None), (60.0, None), (60.1, {"run_too_long": 1}), (None, CANNOT_TELL)]
)
def test_runs_take_too_long(seconds: float | None, reasons: object) -> None:
    assert told(ended(duration_s=seconds), Condition.SLOW) == reasons


ROLL = Roll(id="0a1b", order=("a:1",), at=NOW - timedelta(days=1), looked_at=NOW - timedelta(minutes=11))


@pytest.mark.parametrize(
    ("roll", "reasons"),
    [
        (Roll(), None),
        (ROLL, {"rolling": 1}),
        (ROLL.model_copy(update={"looked_at": None}), {"rolling": 1}),
        (ROLL.model_copy(update={"looked_at": NOW - timedelta(minutes=9)}), None),
        (ROLL.stopped_roll(Reason.ROLL_STOPPED, "", NOW, is_stranded=False), None),
    ],
    ids=["none", "left", "before its first step", "goes on", "over"],
)
def test_a_rolling_restart_that_no_run_continues(roll: Roll, reasons: object) -> None:
    assert told(ended(roll=roll), Condition.ROLL_LEFT) == reasons
