"""The history of a plan's splits: all are recorded as planned, then each split's start and end are recorded.

The records in the state store prevent the parts of a split bundle (the bundles it was split into) from being split
again. They also contain the share of the bundle's moving averages that each part inherits in the next run. The run's
splits file records each split before its request, and its outcome afterwards.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from pulsar_rebalancer.reasons import Reason, Trait
from pulsar_rebalancer.run.attempts import records_of, remaining, remembered, write_outcomes
from pulsar_rebalancer.run.splits import not_split, outcomes_file, read_outcomes
from pulsar_rebalancer.state.state_documents import BundleSplit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from pulsar_rebalancer.run.outcome import Outcome
    from pulsar_rebalancer.run.splits import Split, SplitOutcome
    from pulsar_rebalancer.state.state_documents import MovesState
    from pulsar_rebalancer.storage.path import StoragePath

SHORTEST_MEMORY = timedelta(hours=1)
"""Minimum time for which records are kept: brokers may still report the bundle for a moment after its split."""


class SplitHistory:
    """The history of one plan's splits, across all attempts of their task.

    Args:
        stored: the cluster's currently stored `moves` document.
        store: function that applies a change to the latest stored document, so that other writers' changes are
            preserved.

    Attributes:
        planned: True if an earlier attempt recorded the splits as planned.
        outcomes: outcome by bundle; `interrupted` while its split is in progress.
    """

    def __init__(
        self, stored: MovesState, store: Callable[[Callable[[MovesState], MovesState]], None], run: StoragePath
    ) -> None:
        self._store = store
        self._run = run
        self._earlier = read_outcomes(run)
        self.planned = bool(records_of(stored.splits, run.name))
        self.outcomes = dict(self._earlier)

    def remaining(self, splits: Sequence[Split]) -> list[Split]:
        """Return the splits without an outcome, and those whose outcome another attempt could improve."""
        return remaining(splits, self.outcomes)

    def plan(self, splits: Sequence[Split], now: datetime) -> None:
        """Store the splits as planned. From now on they count as recent splits, even if the task is killed."""
        planned = {
            split.bundle: BundleSplit(
                at=now, plan_id=self._run.name, positions=split.positions, shares=split.shares, outcome=""
            )
            for split in splits
        }
        self._store(lambda state: state.model_copy(update={"splits": state.splits | planned}))

    def begin(self, split: Split) -> None:
        """Record that a split is about to be requested. If the task is killed, a retry reads this record."""
        earlier = self._earlier.get(split.bundle)
        attempts = 1 + (earlier.attempts if earlier else 0)
        self.outcomes[split.bundle] = not_split(split, Reason.INTERRUPTED).model_copy(update={"attempts": attempts})
        self._write()

    def add(self, outcome: SplitOutcome, now: datetime) -> None:
        """Record an outcome in the run's splits file and in the state store."""
        merged = self._merged(outcome)
        self.outcomes[outcome.bundle] = merged
        self._write()

        def change(state: MovesState) -> MovesState:
            known = state.splits[outcome.bundle].model_copy(update={"at": now, "outcome": merged.reason})
            return state.model_copy(update={"splits": state.splits | {outcome.bundle: known}})

        self._store(change)

    def _write(self) -> None:
        write_outcomes(outcomes_file(self._run), self.outcomes)

    def _merged(self, outcome: SplitOutcome) -> SplitOutcome:
        """Return a split's outcome across all attempts.

        If an earlier attempt requested the bounds, the bundle counts as split.
        """
        earlier = self._earlier.get(outcome.bundle)
        if earlier is None or earlier.reason.has(Trait.NOT_BEGUN):
            return outcome
        if outcome.reason.has(Trait.NOT_BEGUN):
            return earlier
        attempts = earlier.attempts
        whole = outcome.attempts or not (outcome.found or outcome.error or outcome.reason is Reason.RANGE_GONE)
        if earlier.reason is Reason.INTERRUPTED and whole:
            attempts -= 1  # the earlier attempt was killed before its request had an effect
        reason = Reason.SPLIT if attempts and outcome.reason is Reason.ALREADY_SPLIT else outcome.reason
        return outcome.model_copy(update={"attempts": outcome.attempts + attempts, "reason": reason})


def tidied(
    splits: Mapping[str, BundleSplit],
    outcome: Outcome,
    now: datetime,
    grace_minutes: float,
    counted_at: datetime | None = None,
) -> dict[str, BundleSplit]:
    """Return the split records to keep after a run (see `attempts.remembered`).

    A record older than the grace period is dropped once a sample has been counted after the split: by then, the parts
    have inherited the bundle's moving averages.

    Args:
        counted_at: time of the last counted sample; None if there are no moving averages to inherit.
    """
    longest = max(SHORTEST_MEMORY, timedelta(minutes=grace_minutes))
    young = {
        name: split
        for name, split in splits.items()
        if -longest <= now - split.at <= longest or (counted_at is not None and counted_at < split.at <= now)
    }
    return remembered(young, outcome.splits, outcome.plan_id)
