from collections.abc import Collection
from datetime import UTC, datetime, timedelta

import pytest

from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.show.alert_conditions import Condition, Observation
from pulsar_rebalancer.show.incidents import (
    AlertsState,
    Incident,
    PendingMessage,
    make_message,
    pending_messages,
    record_delivery,
    update_state,
)

START = datetime(2026, 11, 21, 10, tzinfo=UTC)
QUIET = timedelta(minutes=3)
SEEN, GONE = Observation(True, {Reason.TOO_FEW_BROKERS: 1}), Observation(False)
OBSERVED = {"x": {Condition.BLOCKED: SEEN}, ".": {Condition.BLOCKED: GONE}, "?": {}}


def history(runs: str, down: Collection[int] = (), *, quiet: timedelta = QUIET) -> list[str]:
    """The messages of a run a minute.

    Args:
        runs: a letter a run: `x` sees the condition, `.` sees that it is not there, `?` cannot tell, `-` is no run.
        down: minutes in which no receiver takes a message.
        quiet: minutes that a condition must stay away.
    """
    state, sent = AlertsState(), []
    for minute, letter in enumerate(runs):
        if letter == "-":
            continue
        now = START + timedelta(minutes=minute)
        state = update_state(AlertsState.model_validate_json(state.model_dump_json()), OBSERVED[letter], now)
        for message in pending_messages(state, now, quiet):
            if minute not in down:
                sent.append(f"{minute} {'end' if message.is_over else 'start'}")
                state = record_delivery(state, message)
    return sent


@pytest.mark.parametrize(
    ("runs", "down", "messages"),
    [
        ("........", (), []),
        ("????????", (), []),
        ("xxxxxxxx", (), ["0 start"]),
        ("..xx......", (), ["2 start", "7 end"]),
        # It comes back within the quiet time: it never ended.
        ("x..x..x..x..x", (), ["0 start"]),
        ("xxx.x.x.....x", (), ["0 start", "10 end", "12 start"]),
        # It comes back after its end was told: it starts anew.
        ("x....x....", (), ["0 start", "4 end", "5 start", "9 end"]),
        # A run that cannot tell, or no run at all, changes nothing.
        ("x?????xx?", (), ["0 start"]),
        ("x.????", (), ["0 start", "4 end"]),
        ("x----x", (), ["0 start"]),
        # Nobody takes the message: the next run tries again.
        ("xxxxxx", range(3), ["3 start"]),
        ("x.....", range(5), ["5 end"]),
        # It ended before anybody could be told: one message says both.
        ("xx.......", range(6), ["6 end"]),
        # The end could not be told and the condition is back: for its readers it never ended.
        ("x....x...", (4,), ["0 start"]),
        # It comes and goes, and nobody takes the message.
        ("x." * 60, range(84), ["84 start"]),
    ],
)
def test_incident_sends_one_message_at_its_start_and_one_at_its_end(runs, down, messages):
    assert history(runs, down) == messages


def test_an_old_run_that_somebody_clears_tells_nothing():
    state = update_state(AlertsState(), {Condition.BLOCKED: GONE}, START, run="20261121T100000")

    older = update_state(state, {Condition.BLOCKED: SEEN}, START, run="20261120T100000")
    same = update_state(state, {Condition.BLOCKED: SEEN}, START, run="20261121T100000")

    assert pending_messages(older, START, QUIET) == []
    assert older.run == "20261121T100000"
    assert len(pending_messages(same, START, QUIET)) == 1


def test_a_run_from_before_the_clock_was_set_back_hides_no_later_one():
    ahead, run = (f"{day}T100000.000000Z-1dc1c1d8" for day in ("20261122", "20261121"))
    state = update_state(AlertsState(began_at=START + timedelta(days=1)), {}, START, run=ahead)

    assert state.began_at == START
    assert len(pending_messages(update_state(state, {Condition.BLOCKED: SEEN}, START, run=run), START, QUIET)) == 1


LINK = "http://airflow.example/dags/pulsar_rebalance__east/runs/manual__1"


def incident(reasons: dict[Reason, int], **changes: object) -> Incident:
    made = Incident(since=START, seen_at=START + timedelta(minutes=5), reasons=reasons, detail="2 of 6 moves verified")
    return made.model_copy(update=changes)


def test_a_message_says_what_started_why_and_what_to_do():
    message = make_message(
        "east",
        PendingMessage(
            Condition.BLOCKED,
            is_over=False,
            incident=incident({Reason.TOO_FEW_BROKERS: 1, Reason.TOO_MANY_QUARANTINED: 3}),
        ),
        ["score range: 60.0 points (10.0 to 70.0 %) over 3 brokers"],
        LINK,
    )

    assert (message.title, message.kind) == ("Pulsar east: validation failed", "failure")
    lines = message.body.splitlines()
    assert lines[:3] == [
        "Cluster: east",
        "Condition: validation_failed (validation failed)",
        "Started: 2026-11-21 10:00:00 UTC",
    ]
    reasons = [line.strip() for line in lines if " x" in line]
    assert reasons[0].startswith("too_many_quarantined x3: Validation left out more brokers than max_quarantined_")
    few = Reason.TOO_FEW_BROKERS
    assert reasons[1] == f"too_few_brokers x1: {few.meaning} {few.action}"
    assert "  score range: 60.0 points (10.0 to 70.0 %) over 3 brokers" in lines
    assert lines[-2:] == ["What to do: Fix the causes under Reasons; the next run validates again.", f"Run: {LINK}"]
