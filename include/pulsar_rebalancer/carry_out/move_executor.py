"""Carry out the moves of one wave, several at a time."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Container, Sequence

from pulsar_rebalancer.carry_out.bundle_move import BundleMove
from pulsar_rebalancer.carry_out.harm_meter import HarmMeter, MoveHarm
from pulsar_rebalancer.pulsar import BundleAdmin
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.outcome import MoveOutcome, not_moved
from pulsar_rebalancer.run.plan import Move

_log = logging.getLogger(__name__)

MOST_AT_A_BROKER = 16
"""Maximum number of concurrent moves from or to one broker. Higher limits did not make waves faster on idle brokers. At
24 or more, bundles landed on brokers other than the planned ones."""


class AdaptivePace:
    """Limits the concurrent moves from or to each broker to what its clients tolerate.

    Each broker's limit starts at one concurrent move. It grows by one with each move whose clients are back in time;
    after the first late move, it grows by only one per round of moves. It is halved, but stays at least one, when
    clients are late or a bundle had to be unloaded again. A move counts as running until its clients are back or late.
    The limit does not change if it is unknown whether clients are back.

    Args:
        gap_seconds: seconds after an unload within which its clients must be back.
        limit: maximum number of concurrent moves from or to one broker.
    """

    def __init__(self, gap_seconds: float, limit: int = MOST_AT_A_BROKER) -> None:
        self._limit = limit
        self._gap_seconds = gap_seconds
        self._allowed: defaultdict[str, float] = defaultdict(lambda: 1.0)
        self._under_way = Counter[str]()
        self._begun: dict[str, int] = {}
        self._halved_at = Counter[str]()

    def begins(self, move: Move) -> bool:
        """Return whether a move may begin now; if so, count it as running."""
        if any(self._under_way[broker] >= int(self._allowed[broker]) for broker in _brokers(move)):
            return False
        self._begun[move.bundle] = len(self._begun) + 1
        self._under_way.update(_brokers(move))
        return True

    async def end(self, move: Move, harm: MoveHarm | None) -> None:
        """Wait until the clients of a moved bundle are back or late, and adapt the limits of its brokers.

        Args:
            harm: the measurement of the move; None if the move was not begun.
        """
        in_time = await harm.back_within(self._gap_seconds) if harm else None
        for broker in _brokers(move):
            self._under_way[broker] -= 1
            allowed = self._allowed[broker]
            if in_time:
                step = 1 / int(allowed) if broker in self._halved_at else 1
                self._allowed[broker] = min(allowed + step, self._limit)
            # Concurrent moves tend to be late together: only the first of them halves the number.
            elif in_time is False and self._begun[move.bundle] > self._halved_at[broker]:
                self._allowed[broker] = max(allowed / 2, 1.0)
                self._halved_at[broker] = len(self._begun)
                _log.info("%s: clients of %s were late; %d at a time", broker, move.bundle, self._allowed[broker])


class MoveQueue:
    """The moves of a wave that have not begun yet, shared by several workers.

    Args:
        moves: the moves of a wave.
        pace: decides which moves may begin; None to let all begin.
    """

    def __init__(self, moves: Sequence[Move], pace: AdaptivePace | None) -> None:
        self._waiting = dict(enumerate(moves))
        self._pace = pace
        self._turn = asyncio.Condition()

    async def next(self) -> int | None:
        """Wait until a move may begin, and return its index; None if no moves are left."""
        async with self._turn:
            while self._waiting:
                for number, move in self._waiting.items():
                    if self._pace is None or self._pace.begins(move):
                        del self._waiting[number]
                        return number
                await self._turn.wait()
        return None

    async def ended(self, move: Move, harm: MoveHarm | None) -> None:
        """Record that a move has ended, so that waiting moves may begin."""
        if self._pace is not None:
            await self._pace.end(move, harm)
            async with self._turn:
                # Each of the two brokers may take two more bundles. The worker that calls this takes one itself.
                if self._waiting:
                    self._turn.notify(3)
                else:
                    self._turn.notify_all()

    async def clear(self) -> None:
        """Prevent further moves from beginning."""
        async with self._turn:
            self._waiting.clear()
            self._turn.notify_all()


def _brokers(move: Move) -> tuple[str, str]:
    return move.source, move.destination


async def _not_recorded(_: Move) -> None: ...


async def carry_out_moves(
    admin: BundleAdmin,
    moves: Sequence[Move],
    *,
    concurrency: int,
    retries: int,
    timeout_seconds: float,
    on_outcome: Callable[[MoveOutcome], None],
    unloaded: Container[str] = (),
    affinity: bool = True,
    held: Callable[[], Reason | None] = lambda: None,
    leaves: Callable[[Move], Reason | None] = lambda _: None,
    begin: Callable[[Move], Awaitable[None]] = _not_recorded,
    meter: HarmMeter | None = None,
    pace: AdaptivePace | None = None,
) -> list[MoveOutcome]:
    """Carry out the moves of one wave. A failed move does not stop the others.

    A retry is safe. A bundle that is already on its planned broker is not unloaded again; a bundle that an earlier
    attempt unloaded is placed. After a cancellation, bundles that were being moved have no outcome and count as
    recently unloaded.

    Args:
        moves: the moves of one wave; no hash range appears twice.
        concurrency: maximum number of bundles that are moved at the same time.
        retries: maximum number of additional unloads of a bundle that is not placed on its destination.
        timeout_seconds: time limit for each of the two phases of an attempt: until the unload reaches a broker, and
            from then until the bundle has an owner.
        on_outcome: called for each bundle as soon as its outcome is known. If it raises an error, moves in progress are
            completed, no further move starts, and the error is raised.
        unloaded: bundles that an earlier attempt might have unloaded. They are moved even if a third broker, neither
            source nor destination, owns them now; other bundles that a third broker owns are not moved.
        held: called before each move; returns why no further move may start, or None. Moves in progress are
            completed.
        leaves: called before the first unload of a bundle; returns why this move must not be made, or None. It is
            not called for bundles that an earlier attempt unloaded.
        begin: called before the first unload of a bundle. If it raises an error, the bundle is not unloaded.
        meter: measures what the moves cost clients; None to measure nothing.
        pace: adapts the number of concurrent moves per broker, up to `concurrency`. It needs a meter.
        affinity: True if the leader stores destinations, as under the modular load manager.

    Returns:
        One outcome per move, in the same order as the moves.
    """
    waiting = MoveQueue(moves, pace)
    outcomes: dict[int, MoveOutcome] = {}

    async def carry_out(move: Move) -> tuple[MoveOutcome, MoveHarm | None]:
        before = move.bundle in unloaded
        if meter is None:
            return await BundleMove(admin, move, retries, timeout_seconds, before, leaves, begin).outcome(), None
        harm = meter.of(move, again=before)

        async def count_and_begin(move: Move) -> None:
            await harm.before(begin(move))

        moved = BundleMove(admin, move, retries, timeout_seconds, before, leaves, count_and_begin)
        return harm.ended(await moved.outcome()), harm

    async def work() -> None:
        try:
            while (number := await waiting.next()) is not None:
                move, left = moves[number], held()
                outcome, harm = await carry_out(move) if left is None else (not_moved(move, left), None)
                outcomes[number] = outcome if affinity else outcome.model_copy(update={"destination_kept": False})
                on_outcome(outcomes[number])
                await waiting.ended(move, harm)
        except BaseException:
            await waiting.clear()
            raise

    workers = [work() for _ in range(min(concurrency, len(moves)))]
    try:
        ended = await asyncio.gather(*workers, return_exceptions=True)
        failures = [failure for failure in ended if failure is not None]
        if failures:
            raise failures[0]
        if meter:
            await meter.finish(held)
    finally:
        if meter:
            await meter.close()
    return [outcomes[number] for number in range(len(moves))]
