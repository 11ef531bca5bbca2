"""What lets nothing be moved, whose word holds, and how it is told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.orders.control_document import Control, Order, PauseOrder
from pulsar_rebalancer.orders.in_force import JudgedRun, closings
from pulsar_rebalancer.storage.documents import ClusterStorage

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
ADA = Order(at=NOW - HOUR, by="ada", reason="new disks")


def pause(hours: float, by: str = "ada") -> PauseOrder:
    return PauseOrder(at=NOW - HOUR, by=by, reason="new disks", until=NOW + hours * HOUR)


def settings(**given: Any) -> Settings:
    return Settings.model_validate({"mode": "auto"} | given)


def in_file(hours: float) -> dict[str, Any]:
    return {"pause": {"until": NOW + hours * HOUR, "reason": "holiday"}}


@pytest.mark.parametrize(
    ("file", "control", "detail"),
    [
        ({}, Control(), None),
        ({}, Control(pause=pause(-0.1)), None),
        (in_file(-0.1), Control(), None),
        (in_file(1), Control(), "until 2026-11-22 13:00 UTC by the clusters file: holiday"),
        ({}, Control(pause=pause(2)), "until 2026-11-22 14:00 UTC by ada: new disks"),
        # the stricter wins
        (in_file(1), Control(pause=pause(2)), "until 2026-11-22 14:00 UTC by ada: new disks"),
        (in_file(3), Control(pause=pause(2)), "until 2026-11-22 15:00 UTC by the clusters file: holiday"),
        (in_file(3), Control(pause=pause(-0.1)), "until 2026-11-22 15:00 UTC by the clusters file: holiday"),
    ],
)
def test_a_pause_holds_until_its_end(file: dict[str, Any], control: Control, detail: str | None) -> None:
    found = closings(settings(**file), control, NOW)

    assert found == ([("paused", detail)] if detail else [])


def run(at: datetime) -> str:
    return ClusterStorage("/r", "east").new_run(at).name


@pytest.mark.parametrize(
    ("collected", "previous", "skipped"),
    [
        (NOW, NOW - 2 * HOUR, True),
        (NOW, None, True),  # nothing was recorded before, or the state was reset
        (NOW, NOW - HOUR / 2, False),  # that one was skipped
        (NOW - 2 * HOUR, NOW - 3 * HOUR, False),  # under way when it was ordered
    ],
)
def test_the_first_run_after_the_order_is_skipped(
    collected: datetime, previous: datetime | None, skipped: bool
) -> None:
    sample = JudgedRun(collected, run(previous) if previous else "")

    found = closings(settings(), Control(skip=ADA), NOW, sample)

    assert found == ([("skipped", "by ada: new disks")] if skipped else [])


def test_a_lost_state_closes() -> None:
    assert closings(settings(), Control(lost="drains: missing"), NOW) == [("state_lost", "drains: missing")]


def test_a_rolling_restart_finishes_its_broker_when_the_window_closes_but_not_in_a_blackout() -> None:
    window, blackout = ({"cron": f"0 {hour} * * *", "minutes": 60, "timezone": "UTC"} for hour in (22, 12))

    def found(rolling: bool, **given: Any) -> list[str]:
        return [closed.reason for closed in closings(settings(**given), Control(rolling=rolling), NOW)]

    assert found(False, maintenance_windows=[window]) == ["outside_window"]
    assert found(True, maintenance_windows=[window]) == []
    both = {"maintenance_windows": [window], "blackouts": [blackout | {"reason": "a report"}]}
    assert found(True, **both) == ["blackout"]
