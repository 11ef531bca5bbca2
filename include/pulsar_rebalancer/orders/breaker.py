"""The circuit breaker: if moves fail or make the balance worse, it stops all moves for a while."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import ClassVar, NamedTuple

from pydantic import AwareDatetime

from pulsar_rebalancer.config.settings import BreakerRules
from pulsar_rebalancer.orders.order import Control, FormAction, Hold, OrderKind, OrdersInForce, Situation, Wording
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.state import StateDocument
from pulsar_rebalancer.texts import number_of

SCORE_RANGE_NOISE = 1.0
"""Tolerated increase in the score range, in points, because load always varies a little."""


class Breaker(StateDocument):
    """The `breaker` document.

    Attributes:
        opened_at: when the breaker last opened; None if never.
        why: the value that opened the breaker, as text.
        range_before: score range in points before the last moves; None once compared, or if unknown.
        brokers_before: number of brokers compared for `range_before`.
        moved_at: when the last moves ended.
        worse: number of consecutive rounds of moves after which the score range was larger.
        bad: number of faulty brokers that the previous run left out.
        run: the last report counted: the run's name and the numbers of its moves that landed and failed.
    """

    KEY: ClassVar[str] = "breaker"

    opened_at: AwareDatetime | None = None
    why: str = ""
    range_before: float | None = None
    brokers_before: int = 0
    moved_at: AwareDatetime | None = None
    worse: int = 0
    bad: int = 0
    run: str = ""

    def open_until(self, rules: BreakerRules | None, closing_time: datetime | None) -> datetime | None:
        """Return when the breaker closes on its own; None if it never opened or a person closed it."""
        if rules is None or self.opened_at is None or (closing_time is not None and closing_time >= self.opened_at):
            return None
        return self.opened_at + timedelta(minutes=rules.minutes)


class Tally(NamedTuple):
    """The results of one run, from which the breaker's next state is computed.

    Attributes:
        bad_broker_count: number of faulty brokers left out; None if the run did not validate the brokers.
        failed_moves: number of moves that failed or ended up on an unplanned broker.
        has_moved: True if at least one bundle has a new owner.
        range_before_moves: hottest minus coldest score before the moves, in points; None without a decision.
        measured_after: earliest time at which the values in this run's sample could have been measured.
        broker_count: number of brokers whose scores were compared.
    """

    bad_broker_count: int | None
    failed_moves: int
    has_moved: bool
    range_before_moves: float | None
    measured_after: datetime
    broker_count: int = 0


def advance_breaker(
    state: Breaker, rules: BreakerRules, tally: Tally, now: datetime, run: str = "", closed_at: datetime | None = None
) -> Breaker:
    """Return the document after a run; the same object if nothing changed or the report is already counted.

    While too many brokers are faulty, each run restarts the wait until the breaker closes. After a person
    closes it, it opens again only if more brokers become faulty. An empty `run` is counted in any case.
    """
    if run and state.run == run:
        return state
    worse, before, moved_at, compared = state.worse, state.range_before, state.moved_at, state.brokers_before
    # Until all brokers have measured again, a sample shows the load before the moves.
    is_current = moved_at is None or tally.measured_after >= moved_at
    if is_current and before is not None and tally.range_before_moves is not None:
        if tally.broker_count == compared:  # a broker joining or leaving changes the range too
            worse = worse + 1 if tally.range_before_moves > before + SCORE_RANGE_NOISE else 0
        before = moved_at = None
    if before is None and tally.has_moved:
        before, moved_at, compared = tally.range_before_moves, now, tally.broker_count
    closed = closed_at is not None and state.opened_at is not None and closed_at >= state.opened_at
    why = _opening_reason(rules, tally, worse, known_bad_brokers=state.bad if closed else 0)
    after = Breaker(
        opened_at=now if why else state.opened_at,
        why=why or state.why,
        range_before=before,
        brokers_before=compared,
        moved_at=moved_at,
        # Opening restarts the count of rounds.
        worse=0 if why else worse,
        bad=state.bad if tally.bad_broker_count is None else tally.bad_broker_count,
        run=state.run,
    )
    return after if after == state else after.model_copy(update={"run": run})


def _opening_reason(rules: BreakerRules, tally: Tally, worse_rounds: int, known_bad_brokers: int) -> str:
    bad, most = tally.bad_broker_count, rules.bad_brokers
    if bad is not None and most is not None and bad >= max(most, known_bad_brokers + 1):
        return f"validation left out {number_of(bad, 'faulty broker')} in one run"
    if rules.failed_moves is not None and tally.failed_moves >= rules.failed_moves:
        return f"{number_of(tally.failed_moves, 'move')} of a run failed or landed on the wrong broker"
    if rules.worse_rounds is not None and worse_rounds >= rules.worse_rounds:
        return f"the score range grew in {number_of(worse_rounds, 'consecutive round')} of moves"
    return ""


def breaker_closed_at(control: Control) -> datetime | None:
    order = control.last_order("close_breaker")
    return order.at if order else None


def breaker_open_until(rules: BreakerRules | None, orders: OrdersInForce) -> datetime | None:
    return orders.get(Breaker).open_until(rules, breaker_closed_at(orders.get(Control)))


def _breaker_hold(situation: Situation) -> Hold | None:
    until = breaker_open_until(situation.settings.breaker, situation.orders)
    if until is None or situation.now >= until:
        return None
    return Hold(Reason.BREAKER_OPEN, f"until {until:%Y-%m-%d %H:%M %Z}: {situation.orders.get(Breaker).why}")


def _breaker_texts(situation: Situation) -> Iterator[str]:
    rules, order = situation.settings.breaker, situation.control.last_order("close_breaker")
    otherwise = situation.orders.get(Breaker).open_until(rules, None)
    if order is not None and otherwise is not None and situation.now < otherwise and not _breaker_hold(situation):
        yield f"the circuit breaker was closed {order.by_text}"
    if rules is not None:
        yield "the clusters file sets a circuit breaker"


BREAKER = OrderKind(
    actions=(
        FormAction("close_breaker", "Close the circuit breaker early", button="Close breaker", is_shown=_breaker_hold),
    ),
    setting_names=("breaker",),
    hold_of=_breaker_hold,
    words={Reason.BREAKER_OPEN: Wording("circuit breaker open", "the circuit breaker was open.")},
    order_texts=_breaker_texts,
)
