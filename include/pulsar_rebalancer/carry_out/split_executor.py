"""Carry out a plan's splits one after the other, and check the namespace's bounds after each split.

A broker responds with 204 whether or not it split the bundle, so only the bounds show the outcome. A split
cannot be undone, so a bundle that already has a bound inside its range is not split again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

from pulsar_rebalancer.config.field_types import SplitAlgorithm
from pulsar_rebalancer.errors import AdminError, SnapshotError
from pulsar_rebalancer.names import HashRange, namespace_of
from pulsar_rebalancer.pulsar.bundle_calls import BundleAdmin
from pulsar_rebalancer.reasons import Reason, Trait
from pulsar_rebalancer.run.outcome import Outcome, items_left, records_of_plan, records_to_keep, write_outcomes
from pulsar_rebalancer.run.plan import SPLIT_GRACE, Split, SplitOutcome, outcome_by_split, split_outcomes_file, unsplit
from pulsar_rebalancer.state import BundleSplit, MovesState
from pulsar_rebalancer.storage.path import StoragePath

_log = logging.getLogger(__name__)

_BOUNDS_PAUSE_S = 0.2
"""Seconds between two reads of the bundle bounds: other brokers see a split with some delay."""


async def carry_out_splits(
    bundles: BundleAdmin,
    splits: Sequence[Split],
    *,
    max_bundles: int,
    timeout_seconds: float,
    on_outcome: Callable[[SplitOutcome], None],
    stop_reason: Callable[[], Reason | None] = lambda: None,
    skip_reason: Callable[[Split], Reason | None] = lambda _: None,
    before_split: Callable[[Split], None] = lambda _: None,
) -> list[SplitOutcome]:
    """Carry out splits one after the other. A failed split does not stop the others; a retry is safe.

    Args:
        max_bundles: maximum number of bundles in a namespace.
        timeout_seconds: maximum time until the new bounds appear after a split.
        stop_reason: called before each split; returns why no further split may start, or None.
        skip_reason: called for each bundle that has not been split yet; returns why it must not be split, or None.
        before_split: called before each request. If it raises an error, the request is not sent.
    """
    outcomes = []
    for split in splits:
        started = time.monotonic()
        if (left := stop_reason()) is not None:
            outcome = unsplit(split, left)
        else:
            work = _SplitAttempt(bundles, split, max_bundles, timeout_seconds, skip_reason, before_split)
            outcome = (await work.carry_out()).model_copy(update={"seconds": time.monotonic() - started})
        outcomes.append(outcome)
        on_outcome(outcome)
    return outcomes


class _SplitAttempt:
    def __init__(
        self,
        bundles: BundleAdmin,
        split: Split,
        max_bundles: int,
        timeout_s: float,
        skip_reason: Callable[[Split], Reason | None],
        before_split: Callable[[Split], None],
    ) -> None:
        self._bundles = bundles
        self._split = split
        self._max_bundles = max_bundles
        self._timeout_s = timeout_s
        self._skip_reason = skip_reason
        self._begin = before_split
        self._attempts = 0
        self._found: tuple[int, ...] = ()

    async def carry_out(self) -> SplitOutcome:
        """Split the bundle. Raises SnapshotError if `begin` could not write its record; nothing was requested."""
        error = ""
        try:
            reason = await self._reason_without_request() or await self._request_split()
        except AdminError as failure:
            reason, error = failure.reason, failure.message
        except SnapshotError:
            raise
        except Exception as failure:
            _log.exception("%s: the split failed unexpectedly", self._split.bundle)
            reason, error = Reason.TASK_FAILED, f"{type(failure).__name__}, see the task's log"
        return SplitOutcome(
            bundle=self._split.bundle,
            positions=self._split.positions,
            found=self._found,
            reason=reason,
            attempts=self._attempts,
            error=error,
        )

    async def _reason_without_request(self) -> Reason | None:
        bounds = await self._bundles.boundaries(namespace_of(self._split.bundle))
        lower, upper = HashRange.of_bundle(self._split.bundle)
        if lower not in bounds or upper not in bounds:
            return Reason.RANGE_GONE
        self._found = self._cuts_in_bundle(bounds)
        if self._found:
            return self._success_reason(Reason.SPLIT)
        left = self._skip_reason(self._split)
        if left is None and len(bounds) - 1 + len(self._split.positions) > self._max_bundles:
            return Reason.NAMESPACE_FULL
        return left

    async def _request_split(self) -> Reason:
        """Request the split and wait for its bounds. Raises AdminError if it failed and they have not changed."""
        self._begin(self._split)
        self._attempts, failed = 1, None
        by_range = self._split.algorithm is SplitAlgorithm.RANGE
        # Explicit positions cut as planned even if topics came or went meanwhile; halving the range needs no topic.
        algorithm = SplitAlgorithm.RANGE if by_range else SplitAlgorithm.POSITIONS
        positions = () if by_range else self._split.positions
        try:
            await self._bundles.split(self._split.bundle, algorithm, positions, unload=self._split.unload)
        except AdminError as error:
            if not error.sent:
                self._attempts = 0
            failed = error  # the bundle may have been split nevertheless: only the bounds show the outcome
            _log.warning("%s: the split request failed (%s), but may have taken effect", self._split.bundle, error)
        until = time.monotonic() + (0 if failed and failed.status else self._timeout_s)
        while not self._found:
            try:
                self._found = self._cuts_in_bundle(await self._bundles.boundaries(namespace_of(self._split.bundle)))
            except AdminError as error:
                _log.info("%s: the namespace's bundle bounds could not be read: %s", self._split.bundle, error)
            if self._found or time.monotonic() > until:
                break
            await asyncio.sleep(_BOUNDS_PAUSE_S)
        if not self._found and failed is not None:
            raise failed
        return self._success_reason(Reason.SPLIT) if self._found else Reason.NOT_SPLIT

    def _cuts_in_bundle(self, boundaries: Sequence[int]) -> tuple[int, ...]:
        return tuple(filter(HashRange.of_bundle(self._split.bundle).can_be_cut_at, boundaries))

    def _success_reason(self, reason_if_planned: Reason) -> Reason:
        return reason_if_planned if self._found == self._split.positions else Reason.SPLIT_ELSEWHERE


MIN_RECORD_LIFETIME = timedelta(hours=1)
"""Minimum time for which split records are kept: brokers may still report a bundle for a moment after its split."""


class SplitHistory:
    """The history of one plan's splits, across all attempts of their task.

    `change` applies a change to the latest stored document, so that other writers' changes are preserved. An
    outcome is `interrupted` while its split is in progress.
    """

    def __init__(
        self, stored_state: MovesState, change: Callable[[Callable[[MovesState], MovesState]], None], run: StoragePath
    ) -> None:
        self._store = change
        self._run = run
        self._earlier = outcome_by_split(run)
        self.planned = bool(records_of_plan(stored_state.splits, run.name))
        self.outcomes = dict(self._earlier)

    def remaining_splits(self, splits: Sequence[Split]) -> list[Split]:
        return items_left(splits, self.outcomes)

    def record_planned_splits(self, splits: Sequence[Split], now: datetime) -> None:
        """Store the splits as planned. They count as recent splits, even if the task is killed."""
        planned = {
            split.bundle: BundleSplit(
                at=now, plan_id=self._run.name, positions=split.positions, shares=split.shares, outcome=""
            )
            for split in splits
        }
        self._store(lambda state: state.model_copy(update={"splits": state.splits | planned}))

    def record_begin(self, split: Split) -> None:
        """Record that a split is about to be requested, for a retry if the task is killed."""
        earlier = self._earlier.get(split.bundle)
        attempts = 1 + (earlier.attempts if earlier else 0)
        self.outcomes[split.bundle] = unsplit(split, Reason.INTERRUPTED).model_copy(update={"attempts": attempts})
        self._write_outcomes()

    def add_outcome(self, outcome: SplitOutcome, now: datetime) -> None:
        merged = self._merged_outcome(outcome)
        self.outcomes[outcome.bundle] = merged
        self._write_outcomes()

        def change(state: MovesState) -> MovesState:
            known = state.splits[outcome.bundle].model_copy(update={"at": now, "outcome": merged.reason})
            return state.model_copy(update={"splits": state.splits | {outcome.bundle: known}})

        self._store(change)

    def _write_outcomes(self) -> None:
        write_outcomes(split_outcomes_file(self._run), self.outcomes)

    def _merged_outcome(self, outcome: SplitOutcome) -> SplitOutcome:
        """Return the outcome across all attempts. If an earlier one requested the bounds, the bundle is split."""
        earlier = self._earlier.get(outcome.bundle)
        if earlier is None or earlier.reason.has(Trait.NOT_BEGUN):
            return outcome
        if outcome.reason.has(Trait.NOT_BEGUN):
            return earlier
        attempts = earlier.attempts
        whole = outcome.attempts or not (outcome.found or outcome.error or outcome.reason is Reason.RANGE_GONE)
        if earlier.reason is Reason.INTERRUPTED and whole:
            attempts -= 1  # the earlier attempt was killed before its request had an effect
        return outcome.model_copy(update={"attempts": outcome.attempts + attempts})


def splits_to_keep(
    splits: Mapping[str, BundleSplit], outcome: Outcome, now: datetime, counted_at: datetime | None = None
) -> dict[str, BundleSplit]:
    """Return the split records to keep after a run (see `attempts.remembered`).

    An older record is dropped once a sample has been counted after the split (`counted_at`): by then, the
    parts have inherited the bundle's moving averages. None: there are no averages to inherit.
    """
    longest = max(MIN_RECORD_LIFETIME, SPLIT_GRACE)
    young = {
        name: split
        for name, split in splits.items()
        if -longest <= now - split.at <= longest or (counted_at is not None and counted_at < split.at <= now)
    }
    return records_to_keep(young, outcome.splits, outcome.plan_id)
