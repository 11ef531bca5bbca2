"""Carrying out the moves of one wave: several bundles at once, each brought to its end."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from pulsar_rebalancer.carry_out.bundle_move import BundleMove
from pulsar_rebalancer.run.outcome import not_moved

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence

    from pulsar_rebalancer.admin import BundleAdmin
    from pulsar_rebalancer.reasons import Reason
    from pulsar_rebalancer.run.outcome import MoveOutcome
    from pulsar_rebalancer.run.plan import Move


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
    begin: Callable[[Move], None] = lambda _: None,
) -> list[MoveOutcome]:
    """Carry out the moves of one wave; what a broker does to one bundle never stops the others.

    Repeating it is safe: a bundle on its planned broker is not unloaded again, one that an earlier attempt unloaded and
    did not place is placed. When it is cancelled, bundles under way have no outcome and count as recently unloaded.

    Args:
        admin: asks about bundles and unloads them.
        moves: of one wave, so no hash range twice.
        concurrency: bundles under way at once.
        retries: further unloads of a bundle that did not land on its destination.
        timeout_seconds: until an unload must have reached a broker, and from then until the bundle must have an owner;
            for each attempt.
        on_outcome: called for each bundle as soon as its outcome is known. When it raises, bundles under way are
            still brought to their end, no other one is begun, and the error is raised.
        unloaded: bundles that an earlier attempt may have unloaded: on a third broker they went astray, while others
            that are found there moved on by themselves and are left alone.
        held: asked before each bundle is begun: why no further one is to be; those under way come to their end.
        leaves: asked right before the unload: why this very move is left; what was really unloaded comes to its end.
        begin: called before the first unload of a bundle, which is not unloaded when it raises.
        affinity: whether the leader remembers destinations, as the modular load manager's does.

    Returns:
        One outcome per move, in the order of the moves.
    """
    waiting = deque(enumerate(moves))
    outcomes: dict[int, MoveOutcome] = {}

    async def carry_out(move: Move) -> MoveOutcome:
        before = move.bundle in unloaded
        return await BundleMove(
            admin, move, retries, timeout_seconds, unloaded=before, leaves=leaves, begin=begin
        ).outcome()

    async def work() -> None:
        try:
            while waiting:
                number, move = waiting.popleft()
                left = held()
                outcome = await carry_out(move) if left is None else not_moved(move, left)
                outcomes[number] = outcome if affinity else outcome.model_copy(update={"destination_kept": False})
                on_outcome(outcomes[number])
        except BaseException:
            waiting.clear()
            raise

    workers = [work() for _ in range(min(concurrency, len(moves)))]
    failures = [failure for failure in await asyncio.gather(*workers, return_exceptions=True) if failure is not None]
    if failures:
        raise failures[0]
    return [outcomes[number] for number in range(len(moves))]
