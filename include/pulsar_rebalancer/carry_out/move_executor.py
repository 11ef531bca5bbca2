"""Carry out the moves of one wave, several at a time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pulsar_rebalancer.carry_out.bundle_move import BundleMove
from pulsar_rebalancer.carry_out.pace import MoveQueue
from pulsar_rebalancer.run.outcome import not_moved

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Container, Sequence

    from pulsar_rebalancer.admin import BundleAdmin
    from pulsar_rebalancer.carry_out.harm_meter import HarmMeter, MoveHarm
    from pulsar_rebalancer.carry_out.pace import AdaptivePace
    from pulsar_rebalancer.reasons import Reason
    from pulsar_rebalancer.run.outcome import MoveOutcome
    from pulsar_rebalancer.run.plan import Move


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
