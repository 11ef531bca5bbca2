"""The history of a plan's splits: all are recorded before the first one, then each outcome.

The records in the state store protect the parts of a split bundle from being split again, and hold the share of the
bundle's means that each part inherits in the next run. The file next to the plan keeps the details for *report*.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from pulsar_rebalancer.reasons import Trait
from pulsar_rebalancer.run.attempts import RETRIED, is_unended, records_of, remaining, remembered, write_outcomes
from pulsar_rebalancer.run.splits import outcomes_file, read_outcomes
from pulsar_rebalancer.state.state_documents import BundleSplit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from pulsar_rebalancer.run.outcome import Outcome
    from pulsar_rebalancer.run.splits import Split, SplitOutcome
    from pulsar_rebalancer.state.state_documents import MovesState
    from pulsar_rebalancer.storage.path import StoragePath

SHORTEST_MEMORY = timedelta(hours=1)
"""Minimum time that records are kept: brokers may report the bundle for a moment after its split."""


class SplitHistory:
    """The history of the splits of one plan, over all attempts of their task.

    Args:
        stored: the cluster's `moves` document as stored now.
        store: applies a change to the document as stored at that time, so that changes by others are kept.
    """

    def __init__(
        self, stored: MovesState, store: Callable[[Callable[[MovesState], MovesState]], None], run: StoragePath
    ) -> None:
        self._store = store
        self._run = run
        own = records_of(stored.splits, run.name)
        self.begun = frozenset(own)
        self._unended = frozenset(name for name, split in own.items() if is_unended(split))
        self.outcomes = read_outcomes(run)

    def remaining(self, splits: Sequence[Split]) -> list[Split]:
        """Return the splits without an outcome, and those that another attempt may complete."""
        return remaining(splits, self.outcomes)

    def plan(self, splits: Sequence[Split], now: datetime) -> None:
        """Store the splits as planned: from now on each counts as a recent split, whatever happens to the task."""
        planned = {
            split.bundle: BundleSplit(
                at=now, plan_id=self._run.name, positions=split.positions, shares=split.shares, outcome=""
            )
            for split in splits
        }
        self._store(lambda state: state.model_copy(update={"splits": state.splits | planned}))

    def leave(self, outcomes: Sequence[SplitOutcome]) -> None:
        """Write the outcomes of splits that will not be begun, except for splits begun or ended before."""
        left = {outcome.bundle: outcome for outcome in outcomes if outcome.bundle not in self.begun}
        self.outcomes = left | self.outcomes
        write_outcomes(outcomes_file(self._run), self.outcomes)

    def add(self, outcome: SplitOutcome, now: datetime) -> None:
        """Record an outcome in the file and in the store."""
        earlier = self.outcomes.get(outcome.bundle)
        attempts = outcome.attempts + (earlier.attempts if earlier else 0)
        if outcome.bundle in self._unended and outcome.reason.has(RETRIED | Trait.NEEDS_PERSON):
            attempts = max(attempts, 1)  # a killed attempt may have split it
        self.outcomes[outcome.bundle] = outcome.model_copy(update={"attempts": attempts})
        write_outcomes(outcomes_file(self._run), self.outcomes)

        def change(state: MovesState) -> MovesState:
            known = state.splits[outcome.bundle].model_copy(update={"at": now, "outcome": outcome.reason})
            return state.model_copy(update={"splits": state.splits | {outcome.bundle: known}})

        self._store(change)


def tidied(
    splits: Mapping[str, BundleSplit],
    outcome: Outcome,
    now: datetime,
    grace_minutes: float,
    counted_at: datetime | None = None,
) -> dict[str, BundleSplit]:
    """Return the records of splits after a run (`attempts.remembered`).

    Records past their grace period are dropped once a sample has been counted after the split, which is when the parts
    inherit the means.

    Args:
        counted_at: time of the last counted sample; None if there are no means to inherit.
    """
    longest = max(SHORTEST_MEMORY, timedelta(minutes=grace_minutes))
    young = {
        name: split
        for name, split in splits.items()
        if -longest <= now - split.at <= longest or (counted_at is not None and counted_at < split.at <= now)
    }
    return remembered(young, outcome.splits, outcome.plan_id)
