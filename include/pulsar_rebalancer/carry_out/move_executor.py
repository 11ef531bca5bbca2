"""Carry out the moves of one wave, several at a time."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Container, Sequence

from pulsar_rebalancer.carry_out.bundle_move import BundleMove
from pulsar_rebalancer.carry_out.client_gap_meter import ClientGapMeasurement, ClientGapMeter
from pulsar_rebalancer.pulsar import BundleAdmin
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.outcome import MoveOutcome, unmoved
from pulsar_rebalancer.run.plan import Move

_log = logging.getLogger(__name__)

MAX_MOVES_PER_BROKER = 16
"""Maximum number of concurrent moves from or to one broker. With 24 or more, bundles landed on wrong brokers."""


class AdaptivePace:
    """Limits the concurrent moves from or to each broker to what its clients tolerate.

    Each broker's limit starts at one. It grows by one with each move whose clients are back within
    `gap_seconds`; after the first late move, by only one per round of moves. It is halved when clients are
    late or a bundle was unloaded again. A move counts as running until its clients are back or late.
    """

    def __init__(self, gap_seconds: float, limit: int = MAX_MOVES_PER_BROKER) -> None:
        self._limit = limit
        self._gap_seconds = gap_seconds
        self._allowed: defaultdict[str, float] = defaultdict(lambda: 1.0)
        self._under_way = Counter[str]()
        self._begun: dict[str, int] = {}
        self._halved_at = Counter[str]()

    def try_begin_move(self, move: Move) -> bool:
        if any(self._under_way[broker] >= int(self._allowed[broker]) for broker in _brokers_of_move(move)):
            return False
        self._begun[move.bundle] = len(self._begun) + 1
        self._under_way.update(_brokers_of_move(move))
        return True

    async def end_move(self, move: Move, client_gap: ClientGapMeasurement | None) -> None:
        """Wait until a bundle's clients are back or late, and adapt the limits. `client_gap`: None if not begun."""
        in_time = await client_gap.clients_reconnected_within(self._gap_seconds) if client_gap else None
        for broker in _brokers_of_move(move):
            self._under_way[broker] -= 1
            allowed = self._allowed[broker]
            if in_time:
                step = 1 / int(allowed) if broker in self._halved_at else 1
                self._allowed[broker] = min(allowed + step, self._limit)
            # Concurrent moves tend to be late together: only the first of them halves the number.
            elif in_time is False and self._begun[move.bundle] > self._halved_at[broker]:
                self._allowed[broker] = max(allowed / 2, 1.0)
                self._halved_at[broker] = len(self._begun)
                _log.info("%s: clients of %s were late; limit now %d moves", broker, move.bundle, self._allowed[broker])


class MoveQueue:
    """The moves of a wave that have not begun yet, shared by several workers. Without a pace, all may begin."""

    def __init__(self, moves: Sequence[Move], pace: AdaptivePace | None) -> None:
        self._waiting = dict(enumerate(moves))
        self._pace = pace
        self._turn = asyncio.Condition()

    async def next_index(self) -> int | None:
        """Wait until a move may begin, and return its index; None if no moves are left."""
        async with self._turn:
            while self._waiting:
                for number, move in self._waiting.items():
                    if self._pace is None or self._pace.try_begin_move(move):
                        del self._waiting[number]
                        return number
                await self._turn.wait()
        return None

    async def record_end(self, move: Move, client_gap: ClientGapMeasurement | None) -> None:
        if self._pace is not None:
            await self._pace.end_move(move, client_gap)
            async with self._turn:
                # Each of the two brokers may take two more bundles. The worker that calls this takes one itself.
                if self._waiting:
                    self._turn.notify(3)
                else:
                    self._turn.notify_all()

    async def clear_remaining_moves(self) -> None:
        async with self._turn:
            self._waiting.clear()
            self._turn.notify_all()


def _brokers_of_move(move: Move) -> tuple[str, str]:
    return move.source, move.destination


async def _ignore_move(_: Move) -> None: ...


async def carry_out_moves(
    admin: BundleAdmin,
    moves: Sequence[Move],
    *,
    concurrency: int,
    timeout_seconds: float,
    on_outcome: Callable[[MoveOutcome], None],
    unloaded_bundles: Container[str] = (),
    uses_affinity: bool = True,
    stop_reason: Callable[[], Reason | None] = lambda: None,
    skip_reason: Callable[[Move], Reason | None] = lambda _: None,
    before_move: Callable[[Move], Awaitable[None]] = _ignore_move,
    meter: ClientGapMeter | None = None,
    pace: AdaptivePace | None = None,
) -> list[MoveOutcome]:
    """Carry out the moves of one wave and return their outcomes in order. A failure does not stop the others.

    A retry is safe: a bundle on its planned broker is not unloaded again, and one that an earlier attempt unloaded is
    placed. After a cancellation, bundles that were being moved have no outcome.

    Args:
        moves: the moves of one wave; no hash range appears twice.
        timeout_seconds: limit for each phase: until the unload reaches a broker, and until the bundle has an owner.
        on_outcome: called as soon as an outcome is known. If it raises an error, no further move starts.
        unloaded_bundles: bundles that an earlier attempt might have unloaded; only these move from a third broker.
        stop_reason: called before each move; returns why no further move may start, or None.
        skip_reason: called before a bundle's first unload; returns why this move must not be made, or None.
        before_move: called before a bundle's first unload. If it raises an error, the bundle is not unloaded.
        pace: adapts the number of concurrent moves per broker, up to `concurrency`. It needs a meter.
        uses_affinity: True if the leader stores destinations, as under the modular load manager.
    """
    waiting = MoveQueue(moves, pace)
    outcomes: dict[int, MoveOutcome] = {}

    async def carry_out(move: Move) -> tuple[MoveOutcome, ClientGapMeasurement | None]:
        before = move.bundle in unloaded_bundles
        if meter is None:
            return await BundleMove(admin, move, timeout_seconds, before, skip_reason, before_move).carry_out(), None
        client_gap = meter.new_measurement(move, is_retry=before)

        async def count_and_begin(move: Move) -> None:
            await client_gap.count_clients_before_unload(before_move(move))

        moved = BundleMove(admin, move, timeout_seconds, before, skip_reason, count_and_begin)
        return client_gap.outcome_with_gap(await moved.carry_out()), client_gap

    async def work() -> None:
        try:
            while (number := await waiting.next_index()) is not None:
                move, left = moves[number], stop_reason()
                outcome, client_gap = await carry_out(move) if left is None else (unmoved(move, left), None)
                outcomes[number] = outcome if uses_affinity else outcome.model_copy(update={"destination_kept": False})
                on_outcome(outcomes[number])
                await waiting.record_end(move, client_gap)
        except BaseException:
            await waiting.clear_remaining_moves()
            raise

    workers = [work() for _ in range(min(concurrency, len(moves)))]
    try:
        ended = await asyncio.gather(*workers, return_exceptions=True)
        failures = [failure for failure in ended if failure is not None]
        if failures:
            raise failures[0]
        if meter:
            await meter.wait_for_clients(stop_reason)
    finally:
        if meter:
            await meter.close()
    return [outcomes[number] for number in range(len(moves))]
