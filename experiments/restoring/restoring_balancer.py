"""A balancer that knows when brokers start, and restores the remembered placement as runs do."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pulsar_rebalancer.config.resolution import Resolved
from pulsar_rebalancer.decide.by_hand.returning import restored
from pulsar_rebalancer.decide.by_hand.scene import Scene
from pulsar_rebalancer.decide.plan_output import with_filling
from pulsar_rebalancer.decide.remembered import (
    RememberedPlacement,
    close_together,
    is_good,
    may_replace,
    placement_table,
)
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.replay.balancer import Balancer
from pulsar_rebalancer.run.bundle_columns import COLUMNS, Bundles
from pulsar_rebalancer.run.quarantine import ENOUGH_SAMPLES
from pulsar_rebalancer.run.request import RunRequest
from pulsar_rebalancer.run.snapshot import Snapshot
from pulsar_rebalancer.run.state_before import StateBefore
from pulsar_rebalancer.state.state_documents import MovesState, Unload
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer.strategies.sample import hits_after

if TYPE_CHECKING:
    from datetime import datetime

    from pulsar_rebalancer.decide.pipeline import RunDecision
    from pulsar_rebalancer.replay.balancer import IndexedMove
    from pulsar_rebalancer.replay.minute import Minute
    from pulsar_rebalancer.strategies.sample import ClusterSample


ONE_MINUTE = timedelta(minutes=1)


class RestoringBalancer(Balancer):
    """A balancer that leaves out brokers that have just started, and restores if `restore_placement` is on."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._listed = set(self._roster.brokers)
        self._started: dict[str, datetime | None] = dict.fromkeys(self._roster.brokers)
        self._balanced = 0
        self._placement: RememberedPlacement | None = None
        self._remembered_at: datetime | None = None

    def decide(self, minute: Minute) -> list[IndexedMove]:
        """Return the moves that restore the placement or, if there are none, those that the strategy chooses."""
        listed = {self._roster.brokers[number] for number in np.flatnonzero(minute.brokers.registered)}
        self._started |= dict.fromkeys(listed - self._listed, minute.time)
        self._listed = listed
        return super().decide(minute)

    def _left_out(self, minute: Minute) -> dict[int, Reason]:
        ages = {name: minute.time - at for name, at in self._started.items() if at}
        new = [self._roster.broker_at[name] for name, age in ages.items() if age < ENOUGH_SAMPLES * ONE_MINUTE]
        return super()._left_out(minute) | dict.fromkeys(new, Reason.BROKER_QUARANTINED)

    def _shed(self, minute: Minute, sample: ClusterSample) -> RunDecision:
        decided, bundles = super()._shed(minute, sample), _without_grace(sample)
        if self._settings.restore_placement and self._placement:
            scene = Scene(self._snapshot(minute), replace(sample, bundles=Bundles(bundles)), minute.policies)
            if filling := restored(scene, self._placement):
                decided = with_filling(decided, filling)
                shedder = replace(self._kept.shedder, hits=hits_after(decided.decisions))
                self._kept = replace(self._kept, shedder=shedder)
        brokers = sample.taking_part
        self._balanced = self._balanced + 1 if close_together(brokers, minute.policies, self._settings) else 0
        if is_good(self._balanced) and may_replace(self._placement, self._remembered_at, minute.time, brokers):
            self._placement, self._remembered_at = RememberedPlacement.of(placement_table(bundles)), minute.time
        return decided

    def _snapshot(self, minute: Minute) -> Snapshot:
        """Return what a run would know at the end of a minute. Any other property would read a file."""
        snapshot, now = Snapshot(StoragePath(self._seed_of(minute))), minute.time
        ages = {self._roster.bundles[bundle]: self._since(minute, at) for bundle, at in self._moved.items()}
        # In a simulation, every bundle arrives at its destination.
        moved = Unload(at=now, plan_id="", source="", destination="", outcome=Reason.MOVED)
        unloads = {name: moved.model_copy(update={"at": now - timedelta(seconds=age)}) for name, age in ages.items()}
        vars(snapshot).update(
            request=RunRequest(
                cluster="experiment",
                airflow_run_id="",
                resolved=Resolved(settings=self._settings, origins={}),
                collected_at=now,
            ),
            before=StateBefore(moves=MovesState(unloads=unloads)),
            started=self._started,
        )
        return snapshot


def _without_grace(sample: ClusterSample) -> pa.Table:
    """Return the bundles as a table, in which recently unloaded bundles may move."""
    bundles = (bundle for broker in sample.brokers for bundle in sample.bundles.of(broker.broker))
    free = (b._replace(reason=None) if b.reason is Reason.RECENTLY_UNLOADED else b for b in bundles)
    return pa.Table.from_pylist([bundle._asdict() for bundle in free], COLUMNS)
