"""Sequences of runs and the messages that people get."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from pulsar_rebalancer.alert_text import compose
from pulsar_rebalancer.alerts import (
    AlertsState,
    Condition,
    Due,
    Episode,
    Seen,
    advance,
    delivered,
    due,
    parse_alerts,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

START = datetime(2026, 11, 21, 10, tzinfo=UTC)
QUIET = timedelta(minutes=3)
SEEN = Seen({"too_few_brokers": 1})


@dataclass
class Receivers:
    """Who takes messages at a minute: `*` all of them, digits those, empty none."""

    number: int = 2

    def take(self, letters: str, message: Due) -> set[int]:
        up = set(range(self.number)) if letters == "*" else {int(letter) for letter in letters}
        return up | set(message.reached)


def history(
    runs: str, up: Mapping[int, str], *, condition: Condition = Condition.BLOCKED, quiet: timedelta = QUIET
) -> list[str]:
    """The messages of a run a minute.

    Args:
        runs: a letter a run: `x` sees the condition, `.` sees that it is not there, `?` cannot tell, `-` is no run.
        up: minute to the receivers that take messages, where it is not all of them.
    """
    return list(_messages(runs, up, condition, quiet))


def _messages(runs: str, up: Mapping[int, str], condition: Condition, quiet: timedelta) -> Iterator[str]:
    state, receivers = AlertsState(), Receivers()
    for minute, letter in enumerate(runs):
        if letter == "-":
            continue
        now = START + timedelta(minutes=minute)
        state = parse_alerts(json.loads(state.model_dump_json()))
        seen: dict[Condition, Seen | None] = {} if letter == "?" else {condition: SEEN if letter == "x" else None}
        state = advance(state, seen, now)
        for message in due(state, now, quiet):
            reached = receivers.take(up.get(minute, "*"), message)
            new = sorted(reached - message.reached)
            if new:
                yield f"{minute}{'end' if message.over else 'start'}{''.join(map(str, new))}"
            state = delivered(state, message, reached, now, complete=len(reached) == receivers.number)


@pytest.mark.parametrize(
    ("runs", "up", "messages"),
    [
        ("........", {}, []),
        ("????????", {}, []),
        ("xxxxxxxx", {}, ["0start01"]),
        ("..xx......", {}, ["2start01", "7end01"]),
        # It comes back within the quiet time: it never ended.
        ("x..x..x..x..x", {}, ["0start01"]),
        ("xxx.x.x.....x", {}, ["0start01", "10end01", "12start01"]),
        # It comes back after its end was told: it starts anew.
        ("x....x....", {}, ["0start01", "4end01", "5start01", "9end01"]),
        # A run that cannot tell, or no run at all, changes nothing.
        ("x?????xx?", {}, ["0start01"]),
        ("x.????", {}, ["0start01", "4end01"]),
        ("x----x", {}, ["0start01"]),
        # Nobody takes the message: it is tried after 1, 5, 15, 60, 60 minutes until they do, and then told once.
        ("xx", {0: ""}, ["1start01"]),
        ("x" * 12, {0: "", 1: "", 2: ""}, ["6start01"]),
        ("x" * 300, dict.fromkeys(range(142), ""), ["201start01"]),
        # Only those who did not take it get it again.
        ("xxxxx", {0: "0", 1: "*"}, ["0start0", "1start1"]),
        # It ended before anybody could be told: one message says both.
        ("xx.......", dict.fromkeys(range(6), ""), ["6end01"]),
        ("xx..........", dict.fromkeys(range(7), ""), ["11end01"]),
        ("x.......", {0: "1"}, ["0start1", "4end01"]),
        # One receiver reads the end only later; both read of the new start.
        ("x.....x.", {4: "0", 5: "0"}, ["0start01", "4end0", "6start01"]),
        ("x..........", {4: "0", 5: "0"}, ["0start01", "4end0", "10end1"]),
        # It comes and goes, and nobody takes the message: the waits are the same.
        ("x." * 60, dict.fromkeys(range(84), ""), ["84start01"]),
        # Vain tries to tell the end hold up no start.
        ("x......x", {0: "0", 4: "", 5: "", 6: ""}, ["0start0", "7start1"]),
        # The end could not be told and the condition is back: for its readers it never ended.
        ("x....x...", {4: ""}, ["0start01"]),
    ],
)
def test_one_message_when_it_starts_and_one_when_it_is_over(runs: str, up: dict[int, str], messages: list[str]) -> None:
    assert history(runs, up) == messages


def test_starts_and_ends_that_alternate_are_waited_for_each_by_itself() -> None:
    """Without a quiet time; nobody takes a message before minute 100."""
    runs = "x." * 90
    assert history(runs, dict.fromkeys(range(100), ""), quiet=timedelta(0)) == ["144start01", "145end01"] + [
        message for minute in range(146, 180, 2) for message in (f"{minute}start01", f"{minute + 1}end01")
    ]


@pytest.mark.parametrize("period", [2, 3, 4])
def test_a_condition_that_flaps_is_told_once(period: int) -> None:
    runs = ("x" + "." * (period - 1)) * 100

    assert history(runs, {}) == ["0start01"]


def test_without_a_quiet_time_the_end_is_told_at_once() -> None:
    state = advance(AlertsState(), {Condition.SLOW: SEEN}, START)
    (start,) = due(state, START, timedelta(0))
    state = delivered(state, start, {0}, START, complete=True)
    later = START + timedelta(minutes=1)

    (end,) = due(advance(state, {Condition.SLOW: None}, later), later, timedelta(0))

    assert (start.over, end.over) == (False, True)


def test_conditions_do_not_know_of_each_other() -> None:
    seen = {Condition.SLOW: SEEN, Condition.BLOCKED: SEEN, Condition.UNLOAD: None}
    state = advance(AlertsState(), seen, START)
    first, second = due(state, START, QUIET)

    state = delivered(state, first, {0}, START, complete=True)

    assert [first.condition, second.condition] == [Condition.BLOCKED, Condition.SLOW]
    assert due(state, START, QUIET) == [second]


def test_an_old_run_that_somebody_clears_tells_nothing() -> None:
    state = advance(AlertsState(), {Condition.BLOCKED: None}, START, run="20261121T100000")

    older = advance(state, {Condition.BLOCKED: SEEN}, START, run="20261120T100000")
    same = advance(state, {Condition.BLOCKED: SEEN}, START, run="20261121T100000")

    assert due(older, START, QUIET) == []
    assert older.run == "20261121T100000"
    assert len(due(same, START, QUIET)) == 1


def test_a_run_from_the_future_does_not_silence_the_next_ones() -> None:
    ahead = f"{START + timedelta(days=1):%Y%m%dT%H%M%S.%fZ}-0123abcd"
    state = advance(AlertsState(), {Condition.BLOCKED: None}, START, run=ahead)

    state = advance(state, {Condition.BLOCKED: SEEN}, START, run=f"{START:%Y%m%dT%H%M%S.%fZ}-0123abcd")

    assert len(due(state, START, QUIET)) == 1


def test_a_wait_that_a_wrong_clock_began_is_over_when_the_clock_is_set_back() -> None:
    ahead = START + timedelta(days=1)
    state = advance(AlertsState(), {Condition.BLOCKED: SEEN}, ahead)
    (message,) = due(state, ahead, QUIET)
    state = delivered(state, message, (), ahead, complete=False)

    assert due(state, ahead, QUIET) == []
    assert len(due(state, START, QUIET)) == 1


def test_the_document_remembers_its_first_and_its_last_look() -> None:
    state = advance(advance(AlertsState(), {}, START), {}, START + QUIET)

    assert (state.began_at, state.run_at) == (START, START + QUIET)


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {},
        {"version": 2, "episodes": {}},
        {"version": 1, "episodes": {"unheard_of": {}}},
        {"version": 1, "x": 1},
    ],
)
def test_a_document_that_cannot_be_read_is_an_empty_one(document: object) -> None:
    assert parse_alerts(document) == AlertsState()


LINK = "http://airflow.example/dags/pulsar_rebalance__east/runs/manual__1"


def episode(reasons: dict[str, int], **changes: object) -> Episode:
    made = Episode(since=START, seen_at=START + timedelta(minutes=5), reasons=reasons, detail="2 of 6 moves verified")
    return made.model_copy(update=changes)


def test_a_message_says_what_started_why_and_what_to_do() -> None:
    message = compose(
        "east",
        Due(Condition.BLOCKED, over=False, episode=episode({"too_few_brokers": 1, "too_many_quarantined": 3})),
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
    assert reasons[0].startswith("too_many_quarantined x3: More brokers were left out than max_quarantined_brokers")
    assert reasons[1] == (
        "too_few_brokers x1: Fewer than two brokers can be judged. Check the brokers; one broker cannot be balanced."
    )
    assert "  score range: 60.0 points (10.0 to 70.0 %) over 3 brokers" in lines
    assert lines[-2:] == ["What to do: Mend what the reasons name; the next run validates anew.", f"Run: {LINK}"]


def test_the_message_of_the_end_says_how_long_it_was() -> None:
    over = episode({"astray": 4}, over_at=START + timedelta(minutes=6))

    message = compose("east", Due(Condition.UNLOAD, over=True, episode=over), [], LINK)

    assert (message.title, message.kind) == ("Pulsar east: over: unloading failed", "success")
    for line in (
        "Started: 2026-11-21 10:00:00 UTC",
        "Last seen: 2026-11-21 10:05:00 UTC (2 of 6 moves verified)",
        "Over: 2026-11-21 10:06:00 UTC",
        "  astray x4",
        "  none: the run did not get that far",
        "What to do: nothing, it is over.",
    ):
        assert line in message.body.splitlines()


def test_at_most_ten_reason_codes_are_named() -> None:
    reasons = {f"code_{n:02d}": n for n in range(1, 15)}

    body = compose("east", Due(Condition.BLOCKED, over=False, episode=episode(reasons)), [], LINK).body

    named = [line.strip() for line in body.splitlines() if line.strip().startswith("code_")]
    assert named == [f"code_{n:02d} x{n}" for n in range(14, 4, -1)]
    assert "  and 4 more" in body.splitlines()


@pytest.mark.parametrize("condition", list(Condition))
@pytest.mark.parametrize("over", [True, False])
def test_every_condition_has_its_words(condition: Condition, over: bool) -> None:
    message = compose("east", Due(condition, over=over, episode=episode({})), [], LINK)

    assert condition.value in message.body
    assert "What to do: " in message.body
