"""What the splits of a plan have done so far: noted before the first one, then one outcome after the other.

The record in the state store protects parts of a split bundle from being split again, and tells the next run which
share of the bundle's means they carry on with. The file beside the plan keeps the details for report.
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
"""Records are kept for that long at least: brokers may go on reporting the bundle for a moment."""


class SplitHistory:
    """The history of the splits of one plan, over all attempts of their task.

    Args:
        stored: the documents of the cluster as they are stored now.
        store: changes the stored document as it is by then: what others wrote meanwhile stays.
        run: the run's folder.
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
        """Return the splits without an outcome, or with one that another attempt can mend."""
        return remaining(splits, self.outcomes)

    def plan(self, splits: Sequence[Split], now: datetime) -> None:
        """Store the splits as planned: whatever happens to the task, their bundles are not split again at once."""
        planned = {
            split.bundle: BundleSplit(
                at=now, plan_id=self._run.name, positions=split.positions, shares=split.shares, outcome=""
            )
            for split in splits
        }
        self._store(lambda state: state.model_copy(update={"splits": state.splits | planned}))

    def leave(self, outcomes: Sequence[SplitOutcome]) -> None:
        """Write outcomes of splits that will not be begun; those that were begun or have one keep what they are."""
        left = {outcome.bundle: outcome for outcome in outcomes if outcome.bundle not in self.begun}
        self.outcomes = left | self.outcomes
        write_outcomes(outcomes_file(self._run), self.outcomes)

    def add(self, outcome: SplitOutcome, now: datetime) -> None:
        """Note an outcome, in the file and in the store."""
        earlier = self.outcomes.get(outcome.bundle)
        attempts = outcome.attempts + (earlier.attempts if earlier else 0)
        if outcome.bundle in self._unended and outcome.reason.has(RETRIED | Trait.NEEDS_PERSON):
            attempts = max(attempts, 1)  # an attempt that was killed may have split it
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

    Old ones go once a sample has counted after the split: with it the parts take means over.

    Args:
        splits: by bundle.
        outcome: of the run.
        now: the present.
        grace_minutes: `split_grace_minutes`.
        counted_at: time of the last sample that counted; None: there are no means to take over.
    """
    longest = max(SHORTEST_MEMORY, timedelta(minutes=grace_minutes))
    young = {
        name: split
        for name, split in splits.items()
        if -longest <= now - split.at <= longest or (counted_at is not None and counted_at < split.at <= now)
    }
    return remembered(young, outcome.splits, outcome.plan_id)
