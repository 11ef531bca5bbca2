from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.orders.breaker import Breaker
from pulsar_rebalancer.orders.in_force import all_holds, buttons
from pulsar_rebalancer.orders.order import Control, GivenOrder, JudgedRun, OrdersInForce, Situation
from pulsar_rebalancer.orders.roll_document import Phase, Roll
from pulsar_rebalancer.storage.documents import ClusterStorage

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
NOTHING = OrdersInForce()


def ordered(action: str, hours: float | None = None) -> OrdersInForce:
    until = None if hours is None else NOW + hours * HOUR
    order = GivenOrder(action=action, at=NOW - HOUR, by="ada", reason="new disks", until=until)
    return OrdersInForce.build(Control(orders=(order,)))


def settings(**given: Any) -> Settings:
    return Settings.model_validate({"mode": "auto"} | given)


def in_file(hours: float) -> dict[str, Any]:
    return {"pause": {"until": NOW + hours * HOUR, "reason": "holiday"}}


@pytest.mark.parametrize(
    ("file", "orders", "detail"),
    [
        ({}, NOTHING, None),
        ({}, ordered("pause", -0.1), None),
        (in_file(-0.1), NOTHING, None),
        (in_file(1), NOTHING, "until 13:00 UTC (clusters file: holiday)"),
        ({}, ordered("pause", 12), "until 2026-11-23 00:00 UTC (ada: new disks)"),
        # the stricter wins
        (in_file(1), ordered("pause", 2), "until 14:00 UTC (ada: new disks)"),
        (in_file(3), ordered("pause", 2), "until 15:00 UTC (clusters file: holiday)"),
        (in_file(3), ordered("pause", -0.1), "until 15:00 UTC (clusters file: holiday)"),
    ],
)
def test_a_pause_holds_until_its_end(file: dict[str, Any], orders: OrdersInForce, detail: str | None) -> None:
    found = all_holds(settings(**file), orders, NOW)

    assert found == ([("paused", detail)] if detail else [])


def run(at: datetime) -> str:
    return ClusterStorage("/r", "east").new_run_folder(at).name


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

    found = all_holds(settings(), ordered("skip"), NOW, sample)

    assert found == ([("skipped", "by ada: new disks")] if skipped else [])


def test_a_lost_state_closes() -> None:
    assert all_holds(settings(), OrdersInForce(lost_text="drains: missing"), NOW) == [("state_lost", "drains: missing")]


def test_a_rolling_restart_finishes_its_broker_when_the_window_closes_but_not_in_a_blackout() -> None:
    window, blackout = ({"cron": f"0 {hour} * * *", "minutes": 60, "timezone": "UTC"} for hour in (22, 12))

    def found(rolling: bool, **given: Any) -> list[str]:
        roll = Roll(id="f", order=("b:1",), phase=Phase.DRAINING if rolling else Phase.WAITING)
        return [closed.reason for closed in all_holds(settings(**given), OrdersInForce.build(roll), NOW)]

    assert found(False, maintenance_windows=[window]) == ["outside_window"]
    assert found(True, maintenance_windows=[window]) == []
    both = {"maintenance_windows": [window], "blackouts": [blackout | {"reason": "a report"}]}
    assert found(True, **both) == ["blackout"]


RULES = {"breaker": {"failed_moves": 1}}
OPENED = Breaker(opened_at=NOW, why="moves failed")
ROLL = Roll(id="f", order=("b:1",), turn_at=NOW)


@pytest.mark.parametrize(
    ("orders", "file", "names"),
    [
        (NOTHING, {}, ["Stop", "Pause", "Skip next run"]),
        (ordered("pause", 1), {}, ["Stop", "Pause", "Resume", "Skip next run"]),
        (ordered("pause", -0.1), {}, ["Stop", "Pause", "Skip next run"]),
        (NOTHING, in_file(1), ["Stop", "Pause", "Skip next run"]),
        (ordered("skip"), {}, ["Stop", "Pause", "Resume"]),
        (OrdersInForce.build(OPENED), RULES, ["Stop", "Close breaker", "Pause", "Skip next run"]),
        (OrdersInForce.build(ROLL), {}, ["Stop", "Pause", "Skip next run", "Skip broker", "Stop roll"]),
        (OrdersInForce(lost_text="drains: missing"), {}, ["Stop", "Reset", "Restore", "Pause", "Skip next run"]),
    ],
)
def test_the_page_offers_the_orders_that_do_something_now(
    orders: OrdersInForce, file: dict[str, Any], names: list[str]
) -> None:
    found = [
        each for each in buttons(Situation(settings(**file), orders, NOW, JudgedRun(NOW))) if each.group != "Bundles"
    ]

    assert [button.button for button in found] == names
    given = {button.button: (button.name, button.until, button.proposed) for button in found}
    assert given["Pause"] == ("pause", True, "")
    assert given.get("Skip broker", ()) in ((), ("skip_broker", False, "b:1"))
