"""Carry out a plan's splits one after the other, and check the namespace's bounds after each split.

A broker responds with 204 whether or not it split the bundle, so only the bounds show the outcome. A split cannot be
undone, so a bundle that already has a bound inside its range is not split again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from pulsar_rebalancer.config.enums import SplitAlgorithm
from pulsar_rebalancer.errors import AdminError, SnapshotError
from pulsar_rebalancer.names import HashRange, namespace_of
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.splits import SplitOutcome, not_split

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pulsar_rebalancer.admin.bundle_calls import BundleAdmin
    from pulsar_rebalancer.run.splits import Split

_log = logging.getLogger(__name__)

_PAUSE_S = 0.2
"""Seconds between two reads of the bounds: other brokers learn of a split with some delay."""


async def carry_out_splits(
    bundles: BundleAdmin,
    splits: Sequence[Split],
    *,
    most_bundles: int,
    timeout_seconds: float,
    on_outcome: Callable[[SplitOutcome], None],
    held: Callable[[], Reason | None] = lambda: None,
    leaves: Callable[[Split], Reason | None] = lambda _: None,
    begin: Callable[[Split], None] = lambda _: None,
) -> list[SplitOutcome]:
    """Carry out splits one after the other. A failed split does not stop the others.

    A retry is safe: a bundle that already has the planned bounds counts as split and is not split again.

    Args:
        most_bundles: maximum number of bundles in a namespace.
        timeout_seconds: maximum time until the new bounds appear after a split.
        on_outcome: called for each bundle as soon as its outcome is known.
        held: called before each split; returns why no further split may start, or None.
        leaves: called for each bundle that has not been split yet; returns why it must not be split, or None.
        begin: called before each request. If it raises an error, the request is not sent.
    """
    outcomes = []
    for split in splits:
        started = time.monotonic()
        if (left := held()) is not None:
            outcome = not_split(split, left)
        else:
            work = _BundleSplit(bundles, split, most_bundles, timeout_seconds, leaves, begin)
            outcome = (await work.outcome()).model_copy(update={"seconds": time.monotonic() - started})
        outcomes.append(outcome)
        on_outcome(outcome)
    return outcomes


class _BundleSplit:
    """Splits one bundle."""

    def __init__(
        self,
        bundles: BundleAdmin,
        split: Split,
        most_bundles: int,
        timeout_s: float,
        leaves: Callable[[Split], Reason | None],
        begin: Callable[[Split], None],
    ) -> None:
        self._bundles = bundles
        self._split = split
        self._most_bundles = most_bundles
        self._timeout_s = timeout_s
        self._leaves = leaves
        self._begin = begin
        self._attempts = 0
        self._found: tuple[int, ...] = ()

    async def outcome(self) -> SplitOutcome:
        """Split the bundle and return the outcome.

        Raises:
            SnapshotError: `begin` could not write its record; nothing was requested.
        """
        error = ""
        try:
            reason = await self._check() or await self._ask()
        except AdminError as failure:
            reason, error = failure.reason, failure.message
        except SnapshotError:
            raise
        except Exception as failure:
            _log.exception("%s: the split broke off", self._split.bundle)
            reason, error = Reason.UNEXPECTED_ERROR, f"{type(failure).__name__}, see the task's log"
        return SplitOutcome(
            bundle=self._split.bundle,
            positions=self._split.positions,
            found=self._found,
            reason=reason,
            attempts=self._attempts,
            error=error,
        )

    async def _check(self) -> Reason | None:
        """Check whether the split must be requested; return None if so, else the reason code."""
        bounds = await self._bundles.bounds(namespace_of(self._split.bundle))
        lower, upper = HashRange.of(self._split.bundle)
        if lower not in bounds or upper not in bounds:
            return Reason.RANGE_GONE
        self._found = self._within(bounds)
        if self._found:
            return self._judged(Reason.ALREADY_SPLIT)
        left = self._leaves(self._split)
        if left is None and len(bounds) - 1 + len(self._split.positions) > self._most_bundles:
            return Reason.NAMESPACE_FULL
        return left

    async def _ask(self) -> Reason:
        """Request the split, wait until its bounds appear, and return the reason code of the result.

        Raises:
            AdminError: the request failed, and the bounds have not changed.
        """
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
            _log.warning("%s: split failed, reading the bounds: %s", self._split.bundle, error)
        until = time.monotonic() + (0 if failed and failed.status else self._timeout_s)
        while not self._found:
            try:
                self._found = self._within(await self._bundles.bounds(namespace_of(self._split.bundle)))
            except AdminError as error:
                _log.info("%s: bounds not read yet: %s", self._split.bundle, error)
            if self._found or time.monotonic() > until:
                break
            await asyncio.sleep(_PAUSE_S)
        if not self._found and failed is not None:
            raise failed
        return self._judged(Reason.SPLIT) if self._found else Reason.NOT_SPLIT

    def _within(self, bounds: Sequence[int]) -> tuple[int, ...]:
        lower, upper = HashRange.of(self._split.bundle)
        return tuple(bound for bound in bounds if lower < bound < upper)

    def _judged(self, as_planned: Reason) -> Reason:
        return as_planned if self._found == self._split.positions else Reason.SPLIT_ELSEWHERE
