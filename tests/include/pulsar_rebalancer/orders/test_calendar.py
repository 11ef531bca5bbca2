from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pulsar_rebalancer.config.settings import Settings, validate
from pulsar_rebalancer.errors import SettingsError
from pulsar_rebalancer.orders.calendar import calendar_closure

BERLIN = "Europe/Berlin"
NIGHT = {"cron": "0 22 * * *", "minutes": 480, "timezone": BERLIN}
MOMENT = timedelta(seconds=1)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def settings(**given: Any) -> Settings:
    return Settings.model_validate({"mode": "auto"} | given)


# The clock goes from 02:00 to 03:00 on 2027-03-28, and from 03:00 to 02:00 on 2026-10-25, both at 01:00 UTC.
SPANS: list[tuple[dict[str, Any], str, str]] = [
    (NIGHT, "2026-07-01T20:00", "2026-07-02T04:00"),
    (NIGHT, "2026-12-01T21:00", "2026-12-02T05:00"),
    (NIGHT, "2026-10-24T20:00", "2026-10-25T05:00"),  # nine hours
    (NIGHT, "2027-03-27T21:00", "2027-03-28T04:00"),  # seven hours
    (
        {"start": "2026-12-24T18:00", "end": "2026-12-27T06:00", "timezone": BERLIN},
        "2026-12-24T17:00",
        "2026-12-27T05:00",
    ),
    ({"cron": "0 8 * * 1", "minutes": 60}, "2026-11-23T08:00", "2026-11-23T09:00"),
]
TWICE = {"cron": "0 1 * * *", "minutes": 90, "timezone": BERLIN}
"""Ends at half past two, which comes twice in the night of 2026-10-25."""
FROM_TWICE = {"cron": "30 2 * * *", "minutes": 90, "timezone": BERLIN}
"""Begins then, and in an hour that is left out in the night of 2027-03-28."""
INTO_GAP = {"cron": "30 1 * * *", "minutes": 45, "timezone": BERLIN}


@pytest.mark.parametrize(
    ("window", "begin", "end"),
    [
        *SPANS,
        (TWICE, "2026-10-24T23:00", "2026-10-25T01:30"),
        (FROM_TWICE, "2026-10-25T00:30", "2026-10-25T03:00"),
        (FROM_TWICE, "2027-03-28T00:30", "2027-03-28T02:00"),
        (INTO_GAP, "2027-03-28T00:30", "2027-03-28T01:15"),
    ],
)
def test_a_blackout_lasts_from_its_begin_to_its_end(window: dict[str, Any], begin: str, end: str) -> None:
    given = settings(blackouts=[window])

    for inside in (at(begin), at(end) - MOMENT):
        found = calendar_closure(given, inside)
        assert found is not None
        assert found.opens_at is not None
        assert (found.reason, found.opens_at.astimezone(UTC)) == ("blackout", at(end))
    assert calendar_closure(given, at(begin) - MOMENT) is None
    assert calendar_closure(given, at(end)) is None


@pytest.mark.parametrize(
    ("window", "begin", "end"),
    [
        *SPANS,
        (TWICE, "2026-10-24T23:00", "2026-10-25T00:30"),
        (FROM_TWICE, "2026-10-25T01:30", "2026-10-25T03:00"),
        (FROM_TWICE, "2027-03-28T01:00", "2027-03-28T02:00"),
        (INTO_GAP, "2027-03-28T00:30", "2027-03-28T01:00"),
    ],
)
def test_a_maintenance_window_lasts_from_its_begin_to_its_end(window: dict[str, Any], begin: str, end: str) -> None:
    given = settings(maintenance_windows=[window])

    assert calendar_closure(given, at(begin)) is None
    assert calendar_closure(given, at(end) - MOMENT) is None
    before, after = calendar_closure(given, at(begin) - MOMENT), calendar_closure(given, at(end))
    assert before is not None
    assert before.opens_at is not None
    # Python takes a time that comes twice for unlike its own UTC time.
    assert (before.reason, before.opens_at.astimezone(UTC)) == ("outside_window", at(begin))
    assert after is not None
    assert (after.opens_at is None) == ("end" in window)


def test_a_window_may_last_until_it_begins_again() -> None:
    given = validate({"blackouts": [NIGHT | {"minutes": 1440}]}, label="clusters.yaml: east")

    assert calendar_closure(given, at("2026-07-01T12:00")) is not None


@pytest.mark.parametrize(
    ("window", "named"),
    [
        ({}, "cron and minutes"),
        ({"cron": "0 22 * * *"}, "cron and minutes"),
        (NIGHT | {"start": "2026-11-22T20:00", "end": "2026-11-22T21:00"}, "cron and minutes"),
        (NIGHT | {"start": "2026-11-22T20:00"}, "cron and minutes"),
        (NIGHT | {"cron": "0 22 * *"}, "five fields"),
        (NIGHT | {"cron": "0 0 30 2 *"}, "five fields"),
        (NIGHT | {"cron": "0 25 * * *"}, "five fields"),
        (NIGHT | {"minutes": 1441}, "is longer than the time between two starts"),
        (NIGHT | {"timezone": "Europe/Atlantis"}, "no time zone"),
        ({"start": "2026-11-22T20:00"}, "start and end"),
        ({"start": "2026-11-22T20:00", "end": "2026-11-22T20:00"}, "not after start"),
        ({"start": "2026-11-22T20:00Z", "end": "2026-11-23T20:00"}, "timezone"),
    ],
)
def test_wrong_window_is_refused(window: dict[str, Any], named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        validate({"blackouts": [window]}, label="clusters.yaml: east")


def test_windows_can_be_read_again() -> None:
    given = settings(blackouts=[NIGHT, {"start": "2026-12-24T18:00", "end": "2026-12-27T06:00"}])
    assert Settings.model_validate(given.model_dump(mode="json")) == given


def test_a_window_may_last_a_minute() -> None:
    given = settings(maintenance_windows=[{"cron": "0 22 * * *", "minutes": 1}])
    assert [calendar_closure(given, at(f"2026-07-01T22:0{minute}")) is None for minute in (0, 1)] == [True, False]


@pytest.mark.parametrize(
    ("blackout", "opens"),
    [
        ({"start": "2026-07-01T21:00", "end": "2026-07-01T23:00", "timezone": BERLIN}, "2026-07-01T21:00"),
        (NIGHT | {"minutes": 1440}, None),
    ],
    ids=["until later", "for ever"],
)
def test_moves_are_allowed_once_a_window_is_open_and_no_blackout_lasts(blackout: Any, opens: str | None) -> None:
    found = calendar_closure(settings(maintenance_windows=[NIGHT], blackouts=[blackout]), at("2026-07-01T12:00"))
    assert found is not None
    assert (found.opens_at and found.opens_at.astimezone(UTC)) == (opens and at(opens))
