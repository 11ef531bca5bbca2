"""A balancer that knows when brokers start, and restores the last good placement if `restore_placement` is on."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np

from pulsar_rebalancer.decide.by_hand.filling import NEW as NEW_FOR
from pulsar_rebalancer.decide.by_hand.returning import within_shares
from pulsar_rebalancer.decide.remembered import KEPT_WITHOUT, close_together, is_good
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.replay.balancer import Balancer, IndexedMove
from pulsar_rebalancer.replay.minute import broker_samples
from pulsar_rebalancer.run.bundle_columns import BundleSample
from pulsar_rebalancer.run.quarantine import ENOUGH_SAMPLES
from pulsar_rebalancer.run.tables import Measure
from pulsar_rebalancer.strategies.sample import CandidateMove

if TYPE_CHECKING:
    from pulsar_rebalancer.replay.columns import Floats, Ints
    from pulsar_rebalancer.replay.minute import Minute

NEW, DAY = (time // timedelta(minutes=1) for time in (NEW_FOR, KEPT_WITHOUT))
"""Minutes for which a broker is new, and for which a placement is kept while one of its brokers is away."""


class RestoringBalancer(Balancer):
    """A balancer that leaves out brokers that have just started, and has a memory, as runs.

    In a minute in which bundles return, the strategy's own moves are put off.
    """

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._began = np.full(len(self._roster.brokers), -DAY)
        self._listed = np.ones(len(self._roster.brokers), dtype=bool)
        self._balanced, self._remembered_at = 0, -DAY
        self._home: Ints | None = None
        self._shares: dict[str, float] = {}

    def decide(self, minute: Minute) -> list[IndexedMove]:
        """Return the moves of bundles back, or those that the strategy chooses."""
        listed = minute.brokers.registered
        self._began[listed & ~self._listed] = minute.number
        self._listed = listed
        traffic = minute.bundles[2] + minute.bundles[3]
        moved = dict(self._moved)
        chosen = super().decide(minute)
        back = self._back(minute, traffic) if self._settings.restore_placement else []
        self._remember(minute, traffic)
        if back:
            self._moved = moved | {move.bundle: minute.number for move in back}
        return back or chosen

    def _left_out(self, minute: Minute) -> dict[int, Reason]:
        started = np.flatnonzero(minute.number - self._began < ENOUGH_SAMPLES).tolist()
        return super()._left_out(minute) | dict.fromkeys(started, Reason.BROKER_QUARANTINED)

    def _back(self, minute: Minute, traffic: Floats) -> list[IndexedMove]:
        age, names = minute.number - self._began, self._roster.brokers
        if self._home is None:
            return []
        lately = minute.brokers.registered & (age >= ENOUGH_SAMPLES) & (age <= NEW)
        ready = minute.brokers.reported & (age >= ENOUGH_SAMPLES)
        away = minute.seen & (minute.owner != self._home) & lately[self._home] & ready[minute.owner]
        # The grace period does not count for what moved before its home started.
        for bundle, at in self._moved.items():
            away[bundle] &= at < self._began[self._home[bundle]]
        bundles = sorted(np.flatnonzero(away).tolist(), key=lambda bundle: -traffic[bundle])
        moves = [
            CandidateMove.of(
                BundleSample(names[minute.owner[bundle]], self._roster.bundles[bundle], msg_throughput=traffic[bundle]),
                pair=0,
                rank=0,
                measure=Measure.THROUGHPUT,
                reason=Reason.TAKEN,
                destination=names[self._home[bundle]],
            )
            for bundle in bundles
        ]
        fitting = within_shares(moves, self._held(minute, traffic), self._shares)
        return [
            IndexedMove(bundle, int(self._home[bundle]))
            for bundle, move in zip(bundles, fitting, strict=True)
            if move.taken
        ]

    def _remember(self, minute: Minute, traffic: Floats) -> None:
        brokers = broker_samples(minute, self._roster, self._settings, self._left_out(minute))
        taking_part = [broker for broker in brokers if broker.left_out is None]
        self._balanced = self._balanced + 1 if close_together(taking_part, minute.policies, self._settings) else 0
        missing = self._shares.keys() - {broker.broker for broker in taking_part}
        may_replace = not missing or minute.number - self._remembered_at > DAY
        if is_good(self._balanced) and may_replace:
            self._home, self._remembered_at = minute.owner.copy(), minute.number
            held, whole = self._held(minute, traffic), float(traffic[minute.seen].sum())
            self._shares = {name: figure / whole for name, figure in held.items() if figure}

    def _held(self, minute: Minute, traffic: Floats) -> dict[str, float]:
        held = np.bincount(minute.owner[minute.seen], traffic[minute.seen], minlength=len(self._roster.brokers))
        return dict(zip(self._roster.brokers, held.tolist(), strict=True))
