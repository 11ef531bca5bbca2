"""What the splits of a plan have done so far: noted before the first one, then one outcome after the other.

The record in the state store protects parts of a split bundle from being split again, and tells the next run which
share of the bundle's means they carry on with. The file beside the plan keeps the details for report.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from pulsar_rebalancer.names import namespace_of
from pulsar_rebalancer.reasons import Reason, Trait
from pulsar_rebalancer.run.splits import outcomes_file, parts_of, read_outcomes
from pulsar_rebalancer.splitting.algorithms import HashRange
from pulsar_rebalancer.state.model import BundleSplit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from pulsar_rebalancer.run.outcome import Outcome
    from pulsar_rebalancer.run.splits import Split, SplitOutcome
    from pulsar_rebalancer.state.model import MovesState
    from pulsar_rebalancer.storage.path import StoragePath

RETRIED = Trait.PASSING | Trait.RETRIED
"""Outcomes that a retry of the task can mend."""

SHORTEST_MEMORY = timedelta(hours=1)
"""Records are kept for that long at least: the parts take over means at the next sample that counts."""


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
        own = {name: split for name, split in stored.splits.items() if split.plan_id == run.name}
        self.begun = frozenset(own)
        self._unended = frozenset(name for name, split in own.items() if split.outcome in ("", Reason.INTERRUPTED))
        self.outcomes = read_outcomes(run)

    def remaining(self, splits: Sequence[Split]) -> list[Split]:
        """Return the splits without an outcome, or with one that another attempt can mend."""
        done = {bundle for bundle, outcome in self.outcomes.items() if not outcome.reason.has(RETRIED)}
        return [split for split in splits if split.bundle not in done]

    def plan(self, splits: Sequence[Split], now: datetime) -> None:
        """Store the splits as planned: whatever happens to the task, their bundles are not split again at once."""
        planned = {
            split.bundle: BundleSplit(
                at=now, plan_id=self._run.name, positions=split.positions, shares=split.shares, outcome=""
            )
            for split in splits
        }
        self._store(lambda state: state.model_copy(update={"splits": state.splits | planned}))

    def add(self, outcome: SplitOutcome, now: datetime) -> None:
        """Note an outcome, in the file and in the store."""
        earlier = self.outcomes.get(outcome.bundle)
        attempts = outcome.attempts + (earlier.attempts if earlier else 0)
        if outcome.bundle in self._unended and outcome.reason.has(RETRIED | Trait.NEEDS_PERSON):
            attempts = max(attempts, 1)  # an attempt that was killed may have split it
        self.outcomes[outcome.bundle] = outcome.model_copy(update={"attempts": attempts})
        outcomes_file(self._run).write_json([self.outcomes[name].model_dump(mode="json") for name in self.outcomes])

        def change(state: MovesState) -> MovesState:
            known = state.splits[outcome.bundle].model_copy(update={"at": now, "outcome": outcome.reason})
            return state.model_copy(update={"splits": state.splits | {outcome.bundle: known}})

        self._store(change)


def tidied(
    splits: Mapping[str, BundleSplit], outcome: Outcome, now: datetime, grace_minutes: float
) -> dict[str, BundleSplit]:
    """Return the records of splits after a run.

    Bundles that were left alone do not count as split; of interrupted ones nobody knows. Old records go.

    Args:
        splits: by bundle.
        outcome: of the run.
        now: the present.
        grace_minutes: `split_grace_minutes`.
    """
    untouched = {split.bundle for split in outcome.splits if not split.attempts and not split.ok}
    untouched -= {split.bundle for split in outcome.splits if split.reason is Reason.INTERRUPTED}
    longest = max(SHORTEST_MEMORY, timedelta(minutes=grace_minutes))
    kept = {name: split for name, split in splits.items() if -longest <= now - split.at <= longest}
    own = {name for name, split in kept.items() if split.plan_id == outcome.plan_id}
    return {
        name: split if split.outcome or name not in own else split.model_copy(update={"outcome": Reason.INTERRUPTED})
        for name, split in kept.items()
        if name not in own or name not in untouched
    }


def parts_by_bundle(splits: Mapping[str, BundleSplit]) -> dict[str, dict[str, float]]:
    """Return what bundles became, or were to become: share of the traffic by part, by bundle."""
    return {
        bundle: dict(zip(parts_of(bundle, split.positions), split.shares, strict=True))
        for bundle, split in splits.items()
    }


def recently_split(bundle: str, splits: Mapping[str, BundleSplit], now: datetime, grace_minutes: float) -> bool:
    """Return whether a bundle is one that was split within the grace period, or a part of one."""
    grace = timedelta(minutes=grace_minutes)
    return any(
        namespace_of(name) == namespace_of(bundle)
        and HashRange.of(name).contains(HashRange.of(bundle))
        and -grace <= now - split.at <= grace
        for name, split in splits.items()
    )
