from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pulsar_rebalancer.config.settings import BreakerRules, Settings
from pulsar_rebalancer.orders.breaker import Breaker, Tally, advance_breaker
from pulsar_rebalancer.orders.in_force import all_holds
from pulsar_rebalancer.orders.order import Control, GivenOrder, OrdersInForce

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
CALM = Tally(bad_broker_count=0, failed_moves=0, has_moved=False, range_before_moves=30.0, measured_after=NOW)


@pytest.mark.parametrize(
    ("rules", "seen", "why"),
    [
        ({"bad_brokers": 2}, CALM._replace(bad_broker_count=2), "validation left out 2 faulty brokers in one run"),
        ({"bad_brokers": 2}, CALM._replace(bad_broker_count=1), ""),
        ({"failed_moves": 3}, CALM._replace(failed_moves=3), "3 moves of a run failed or landed on the wrong broker"),
        ({"failed_moves": 3}, CALM._replace(failed_moves=2), ""),
        ({"worse_rounds": 1}, CALM._replace(bad_broker_count=9, failed_moves=9), ""),
    ],
)
def test_breaker_opens_at_its_number_of_failures(rules: dict[str, Any], seen: Tally, why: str) -> None:
    after = advance_breaker(Breaker(), BreakerRules.model_validate(rules), seen, NOW)

    assert (after.why, after.opened_at) == (why, NOW if why else None)


def opened_after(*rounds: tuple[bool, float | None], every: timedelta = MINUTE) -> list[bool]:
    """Whether it opened, after each of some rounds: whether bundles moved, and the range before."""
    state, found, rules = Breaker(), [], BreakerRules(worse_rounds=2)
    for number, (moved, score_range) in enumerate(rounds):
        at = NOW + number * every
        seen = CALM._replace(has_moved=moved, range_before_moves=score_range, measured_after=at - MINUTE)
        state = advance_breaker(state, rules, seen, at)
        found.append(state.opened_at == at)
    return found


def test_breaker_opens_when_the_range_grew_in_each_round() -> None:
    assert opened_after((True, 30), (True, 32), (True, 34)) == [False, False, True]
    assert opened_after((True, 30), (True, 32), (True, 29), (True, 31)) == [False] * 4
    # A point is noise.
    assert opened_after((True, 30), (True, 31), (True, 32), (True, 33)) == [False] * 4
    # Only what follows a round that moved something is compared with it.
    assert opened_after((False, 30), (False, 31), (False, 32)) == [False] * 3
    assert opened_after((True, 30), (False, 32), (False, 40), (True, 41), (False, 43)) == [False] * 4 + [True]
    # A run that decided nothing tells nothing.
    assert opened_after((True, 30), (False, None), (True, 32), (False, 34)) == [False] * 3 + [True]


def test_a_broker_that_comes_or_goes_changes_the_range_by_itself() -> None:
    rules = BreakerRules(worse_rounds=1)
    state = advance_breaker(Breaker(), rules, CALM._replace(has_moved=True, broker_count=7), NOW)
    later = CALM._replace(range_before_moves=50.0, measured_after=NOW + MINUTE)

    assert advance_breaker(state, rules, later._replace(broker_count=8), NOW + MINUTE).opened_at is None
    assert advance_breaker(state, rules, later._replace(broker_count=7), NOW + MINUTE).opened_at is not None


def test_a_sample_tells_of_moves_once_brokers_have_measured_again() -> None:
    quarter = MINUTE / 4
    repeated = [(True, 30.0), (False, 30.0), (False, 30.0), (False, 30.0)]

    assert opened_after(*repeated, (True, 32), *repeated[1:], (False, 34), every=quarter) == [False] * 8 + [True]
    # Moves of every run: what was before the first of them is compared once it can be seen.
    moving = [(True, 30.0 + number) for number in range(12)]
    assert opened_after(*moving, every=quarter).index(True) == 8


@pytest.mark.parametrize(
    ("minutes", "closed_by_hand", "is_open"),
    [(0, None, True), (59, None, True), (60, None, False), (30, 20, False), (30, -1, True)],
)
def test_breaker_closes_after_its_time_or_by_hand(minutes: int, closed_by_hand: int | None, is_open: bool) -> None:
    given = Settings.model_validate({"mode": "auto", "breaker": {"failed_moves": 1}})
    control = Control()
    if closed_by_hand is not None:
        at = NOW + closed_by_hand * MINUTE
        control = control.with_order(GivenOrder(action="close_breaker", at=at, by="ada", reason="mended"))
    orders = OrdersInForce.build(Breaker(opened_at=NOW, why="x"), control)

    found = all_holds(given, orders, NOW + minutes * MINUTE)

    assert found == ([("breaker_open", "until 2026-11-22 13:00 UTC: x")] if is_open else [])


def test_bad_brokers_keep_it_open_until_a_person_closes_it_who_knows_of_them() -> None:
    rules, closed_at, opened = BreakerRules(bad_brokers=2), NOW + 2 * MINUTE + MINUTE / 2, []
    state = Breaker()
    for number, bad in enumerate([2, 2, 2, 2, None, 2, 1, 2, 2, 3]):
        at = NOW + number * MINUTE
        known = closed_at if at > closed_at else None
        state = advance_breaker(state, rules, CALM._replace(bad_broker_count=bad), at, closed_at=known)
        opened.append(state.opened_at == at)

    assert opened == [True, True, True, False, False, False, False, True, True, True]
