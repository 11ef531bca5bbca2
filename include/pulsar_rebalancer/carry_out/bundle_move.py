"""Move a bundle: unload it, look up one of its topics, and query the brokers for the owner.

With the modular load manager, the leader keeps a planned destination in memory until the bundle's next
placement (ModularLoadManagerImpl.setNamespaceBundleAffinity), so only a response from the new owner itself
proves that the bundle is on its destination.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus

from pulsar_rebalancer.errors import AdminError, SnapshotError
from pulsar_rebalancer.names import is_in_bundle
from pulsar_rebalancer.pulsar import BundleAdmin
from pulsar_rebalancer.reasons import Reason, Trait
from pulsar_rebalancer.run.outcome import MoveOutcome
from pulsar_rebalancer.run.plan import Move

_log = logging.getLogger(__name__)

_SAME_BROKER_ERROR = "cannot be transfer to same broker"
"""Part of the error (status 500) that ExtensibleLoadManagerImpl returns if the destination already owns the bundle."""

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0

_MAX_LOOKUP_TOPICS = 10
"""Maximum number of a bundle's topics to look up if brokers refuse lookups."""

_LOOKUP_REFUSALS = (Reason.NOT_FOUND, Reason.FORBIDDEN, Reason.UNAUTHORIZED)
_REFUSAL_STATUSES = (HTTPStatus.BAD_REQUEST, HTTPStatus.METHOD_NOT_ALLOWED)


@dataclass(frozen=True, slots=True)
class _MoveResult:
    """The result of one attempt, or of the whole move. `may_retry`: another unload might succeed."""

    reason: Reason
    owner: str = ""
    error: str = ""
    may_retry: bool = False


# Further unloads of a bundle that landed elsewhere. A client's lookup can win the race with the planned destination,
# but hardly ever three times, and every unload interrupts the bundle's clients.
MAX_RETRIES = 2


@dataclass(eq=False)
class BundleMove:
    """Moves one bundle.

    Attributes:
        timeout_s: limit in seconds for each phase: until an unload reaches a broker, and until the bundle has an owner.
        may_be_unloaded: True if an earlier attempt might have unloaded the bundle.
        skip_reason: returns the reason to call off the move; None if it can go ahead.
        record_begin: called before the first unload, to record it.
    """

    admin: BundleAdmin
    move: Move
    timeout_s: float
    may_be_unloaded: bool
    skip_reason: Callable[[Move], Reason | None]
    record_begin: Callable[[Move], Awaitable[None]]
    _attempts: int = field(default=0, init=False)
    _last_owner: str | None = field(default=None, init=False)  # as last read
    _kept: bool = field(default=False, init=False)  # whether the leader may still remember the destination
    _lookup_refusal: str = field(default="", init=False)  # why the last remaining topic could not be looked up

    async def carry_out(self) -> MoveOutcome:
        """Move the bundle. Raises SnapshotError if `record_begin` could not write its record; nothing was unloaded."""
        begun = time.monotonic()
        try:
            end = await self._move_bundle()
        except AdminError as error:
            # Only reads raise this error: before the first unload nothing has changed, afterwards the owner is unknown.
            end = self._interrupted_result(error.reason, error.message)
        except SnapshotError:
            raise
        except Exception as error:
            _log.exception("%s: the move failed unexpectedly", self.move.bundle)
            end = self._interrupted_result(Reason.TASK_FAILED, f"{type(error).__name__}, see the task's log")
        kept = self._kept and end.owner != self.move.destination
        if kept:
            _log.warning("%s: the leader may send the next unload to %s", self.move.bundle, self.move.destination)
        return MoveOutcome(
            bundle=self.move.bundle,
            source=self.move.source,
            destination=self.move.destination,
            owner=end.owner,
            reason=end.reason,
            attempts=self._attempts,
            seconds=time.monotonic() - begun,
            error="" if end.reason.has(Trait.ON_PLANNED_BROKER) else end.error,
            destination_kept=kept,
        )

    def _interrupted_result(self, reason: Reason, error_text: str) -> _MoveResult:
        return _MoveResult(Reason.UNKNOWN_OWNER if self._attempts else reason, self._last_owner or "", error_text)

    async def _move_bundle(self) -> _MoveResult:
        early = await self._result_without_unload()
        if early is not None:
            return early
        topics = await self._lookup_topics()
        if not topics:
            return _MoveResult(Reason.NO_TOPIC, self._last_owner or "")
        await self.record_begin(self.move)
        while True:
            end = await self._attempt_move(topics)
            if not end.may_retry or self._attempts > MAX_RETRIES:
                return end
            _log.warning("%s: result %s (owner %s); retrying", self.move.bundle, end.reason, end.owner or "none")
            early = await self._check_destination(Reason.MOVED)
            if early is not None:
                return early

    # before an unload

    async def _result_without_unload(self) -> _MoveResult | None:
        early = await self._check_destination(Reason.ALREADY_THERE)
        if early is not None:
            return early
        # Ask the source first: it is normally the owner, and then no other broker needs to be asked.
        self._last_owner = await self.admin.owner(self.move.bundle, (self.move.source,))
        if self._last_owner == self.move.destination:
            return _MoveResult(Reason.ALREADY_THERE, self.move.destination)
        if self._last_owner == self.move.source:
            self.may_be_unloaded = False  # an earlier attempt ended before its unload
        if self.may_be_unloaded:
            return None
        if self._last_owner not in (None, self.move.source):
            return _MoveResult(Reason.OWNER_CHANGED, self._last_owner or "")
        left = self.skip_reason(self.move)
        return None if left is None else _MoveResult(left, self._last_owner or "")

    async def _check_destination(self, reason_if_owner: Reason) -> _MoveResult | None:
        """Query the destination itself, because a killed broker is listed as active until its session ends."""
        try:
            arrived = await self.admin.is_owner(self.move.destination, self.move.bundle)
        except AdminError as error:
            gone = error.reason == Reason.UNREACHABLE
            return _MoveResult(Reason.DESTINATION_GONE if gone else error.reason, self._last_owner or "", error.message)
        return _MoveResult(reason_if_owner, self.move.destination) if arrived else None

    async def _lookup_topics(self) -> list[str]:
        """Return the topics to look up, persistent ones first, because these exist even when not loaded."""
        inside = [t for t in await self.admin.topics_of_bundle(self.move.bundle) if is_in_bundle(t, self.move.bundle)]
        return sorted(inside, key=lambda topic: (not topic.startswith("persistent:"), topic))[:_MAX_LOOKUP_TOPICS]

    # an unload and the steps after it

    async def _attempt_move(self, topics: list[str]) -> _MoveResult:
        self._attempts += 1
        self._lookup_refusal = ""
        failed: AdminError | None = None
        before = self._last_owner
        try:
            await self._unload()
            self._kept = False
        except AdminError as error:
            self._kept = self._leader_may_keep_destination(error, before)
            if error.reason.has(Trait.NOT_UNLOADED):
                # Pulsar also records an unload only after it succeeded (ModularLoadManagerImpl.doLoadShedding).
                if not error.reason.has(Trait.MAY_HAVE_PLAN):
                    self._attempts -= 1
                return _MoveResult(error.reason, self._last_owner or "", error.message)
            if not error.sent:
                self._last_owner = await self.admin.owner(self.move.bundle, (self.move.destination,))
                arrived = self._last_owner == self.move.destination
                self._kept &= self._last_owner == before  # another owner means a placement consumed the destination
                return _MoveResult(Reason.MOVED if arrived else error.reason, self._last_owner or "", error.message)
            failed = error  # the bundle may have been unloaded nevertheless: only its owner shows the outcome
            _log.warning("%s: the unload failed (%s), so the run looks up the owner", self.move.bundle, error)
        self._last_owner = None
        self._last_owner = await self._owner_after_unload(topics, before if failed else None)
        # A new owner means that the leader consumed the destination; without an owner, the next placement will.
        self._kept &= self._last_owner is not None and self._last_owner == before
        if self._last_owner == self.move.destination:
            there = failed is not None and _SAME_BROKER_ERROR in failed.message
            return _MoveResult(Reason.ALREADY_THERE if there else Reason.MOVED, self.move.destination)
        if self._last_owner is None and self._lookup_refusal:
            return _MoveResult(Reason.NO_LOOKUP, error=self._lookup_refusal)
        if self._last_owner is None:
            return _MoveResult(Reason.UNKNOWN_OWNER, may_retry=True, error=failed.message if failed else "")
        if failed is not None and self._last_owner == before:
            return _MoveResult(failed.reason, self._last_owner, failed.message, may_retry=True)
        return _MoveResult(Reason.ASTRAY, self._last_owner, may_retry=True)

    def _leader_may_keep_destination(self, error: AdminError, owner: str | None) -> bool:
        """Return whether the leader, which stores a destination before the unload (NamespacesBase), may keep it."""
        if not error.sent:
            return self._kept or error.broker == owner
        return self._kept or not error.reason.has(Trait.NOT_UNLOADED) or error.reason.has(Trait.MAY_HAVE_PLAN)

    async def _unload(self) -> None:
        """Unload the bundle. If the request reaches no broker, repeat it until the timeout.

        If the leader or the owner has died, requests still go to the dead broker until its session ends. In
        the meantime, a client's lookup can have placed the bundle on the stored destination.
        """
        waits, until = retry_delays(), time.monotonic() + self.timeout_s
        while True:
            try:
                return await self.admin.unload(self.move.bundle, self.move.destination)
            except AdminError as error:
                if error.sent or error.reason != Reason.UNREACHABLE or time.monotonic() > until:
                    raise
                _log.info("%s: not unloaded yet: %s", self.move.bundle, error)
            await asyncio.sleep(next(waits))
            with suppress(AdminError):
                if await self.admin.is_owner(self.move.destination, self.move.bundle):
                    return None

    async def _owner_after_unload(self, topics: list[str], old_owner: str | None) -> str | None:
        """Return the bundle's owner after an unload, or None. While `old_owner` is the owner, wait."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.timeout_s):
                placed = await self._confirmed_owner(topics, old_owner)
                if placed:
                    return placed
        return await self.admin.owner(self.move.bundle, (self.move.destination,))

    async def _confirmed_owner(self, topics: list[str], old_owner: str | None) -> str | None:
        """Look up a topic until the broker named in the response confirms that it owns the bundle.

        If brokers refuse the lookup, the next topic is tried. Return None if no topics are left. Lookups go
        to the destination: the first one that reaches the leader consumes it, and later ones are redirected
        to other brokers until the destination owns the bundle (apache/pulsar#24884).
        """
        waits, destination, left = retry_delays(), self.move.destination, list(topics)
        while left:
            try:
                owner = await self.admin.lookup_owner(left[0], destination)
                if owner != old_owner and await self.admin.is_owner(owner, self.move.bundle):
                    return owner
            except AdminError as error:
                if error.reason in _LOOKUP_REFUSALS or error.status in _REFUSAL_STATUSES:
                    self._lookup_refusal = error.message
                    _log.info("%s: topic %s cannot be looked up: %s", self.move.bundle, left.pop(0), error)
                    continue
                if error.broker == destination and error.reason in (Reason.UNREACHABLE, Reason.TIMEOUT):
                    destination = ""  # the destination may be dead: the leader chooses another broker
                # Normal for a short time: "Failed to acquire ownership", or a leader or owner that has just died.
                _log.info("%s: not placed yet: %s", self.move.bundle, error)
            await asyncio.sleep(next(waits))
        return None


def retry_delays(longest_s: float = _LONGEST_PAUSE_S) -> Iterator[float]:
    """Yield the seconds to wait before each further attempt, at most `longest_s`."""
    pause = _FIRST_PAUSE_S
    while True:
        yield pause
        pause = min(2 * pause, longest_s)
