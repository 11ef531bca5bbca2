"""Carrying out the moves of one wave: unload, trigger placement, read the owner back, try again what went astray.

With the modular load manager a planned destination is remembered once, in the leader's memory, and consumed by the
first placement after it (ModularLoadManagerImpl.setNamespaceBundleAffinity). So the success of an unload says nothing
about where the bundle lands: only what the brokers say they own does. The extensible load manager hands a bundle over
before it answers, and is asked in the same way.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol
from zlib import crc32

from pydantic import BaseModel, ConfigDict

from pulsar_rebalancer.errors import AdminError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pulsar_rebalancer.plan import Move

_log = logging.getLogger(__name__)

_OK = frozenset({"moved", "already_there"})
_REFUSED_ON_THE_WAY = frozenset({"foreign_redirect", "certificate_refused"})
"""Where the leader sent the unload on to nothing was sent; but it may remember the destination by then."""
_REFUSALS = {"conflict": "destination_gone"} | {
    code: code for code in ("bad_range", "not_found", "unauthorized", "forbidden", "read_only", *_REFUSED_ON_THE_WAY)
}
"""Errors of an unload after which it surely was not carried out, and trying again would not help."""

_SAME_BROKER = "cannot be transfer to same broker"
"""How the extensible load manager refuses to move a bundle to its owner (ExtensibleLoadManagerImpl, 500)."""

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0
_LAST_HASH = 0xFFFFFFFF


class Admin(Protocol):
    """What moving takes of `pulsar_rebalancer.admin.PulsarAdmin`; every method may raise `AdminError`."""

    async def owns(self, broker: str, bundle: str) -> bool:
        """Whether the broker itself says that it owns the bundle."""
        ...

    async def owner(self, bundle: str, likely: Sequence[str] = ()) -> str | None:
        """The owner as the brokers say, the likely ones asked first; None while nobody owns the bundle."""
        ...

    async def topics_of_bundle(self, bundle: str) -> list[str]:
        """Full names of the bundle's topics."""
        ...

    async def lookup_owner(self, topic: str) -> str:
        """The owner that a lookup names; places the topic's bundle if nobody owns it."""
        ...

    async def unload(self, bundle: str, destination: str) -> None:
        """Unload a bundle, to be placed on the destination by the next lookup."""
        ...


class MoveOutcome(BaseModel):
    """What became of one move.

    Attributes:
        bundle: `tenant/namespace/0x…_0x…`.
        source: brokerId that the plan took it from.
        destination: brokerId that the plan gave it to.
        owner: brokerId read back at the end; empty when nobody owned it or nobody could tell.
        reason: reason code.
        attempts: unloads tried, without those that were refused at once; 0 when the bundle was left alone.
        seconds: from the first read to the outcome.
        error: what a broker or the connection said, when that decided; never a secret.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    bundle: str
    source: str
    destination: str
    owner: str = ""
    reason: str
    attempts: int = 0
    seconds: float = 0.0
    error: str = ""

    @property
    def ok(self) -> bool:
        """Whether the bundle is where the plan wants it."""
        return self.reason in _OK


async def carry_out(
    admin: Admin,
    moves: Sequence[Move],
    *,
    concurrency: int,
    retries: int,
    timeout_seconds: float,
    on_outcome: Callable[[MoveOutcome], None],
) -> list[MoveOutcome]:
    """Carry out the moves of one wave; what a broker does to one bundle never stops the others.

    Repeating it is safe: a bundle on its planned broker is not unloaded again, one that an earlier run unloaded and
    did not place is placed. When it is cancelled, bundles under way have no outcome and count as recently unloaded.

    Args:
        admin: client of the cluster.
        moves: of one wave, so no hash range twice.
        concurrency: bundles under way at once.
        retries: further unloads of a bundle that did not land on its destination.
        timeout_seconds: until an unload must have reached a broker, and from then until the bundle must have an owner;
            for each attempt.
        on_outcome: called for each bundle as soon as its outcome is known. When it raises, bundles under way are
            still brought to their end, no other one is begun, and the error is raised.

    Returns:
        One outcome per move, in the order of the moves.
    """
    waiting = deque(enumerate(moves))
    outcomes: dict[int, MoveOutcome] = {}

    async def work() -> None:
        try:
            while waiting:
                number, move = waiting.popleft()
                outcomes[number] = await _Journey(admin, move, retries, timeout_seconds).outcome()
                on_outcome(outcomes[number])
        except BaseException:
            waiting.clear()
            raise

    workers = [work() for _ in range(min(concurrency, len(moves)))]
    failures = [failure for failure in await asyncio.gather(*workers, return_exceptions=True) if failure is not None]
    if failures:
        raise failures[0]
    return [outcomes[number] for number in range(len(moves))]


@dataclass(frozen=True, slots=True)
class _End:
    """How an attempt, or the whole move, ended; `again` if another unload may mend it."""

    reason: str
    owner: str = ""
    error: str = ""
    again: bool = False


class _Journey:
    """One bundle on its way."""

    def __init__(self, admin: Admin, move: Move, retries: int, timeout_s: float) -> None:
        self._admin = admin
        self._move = move
        self._bundle = move.bundle
        self._destination = move.destination
        self._retries = retries
        self._timeout_s = timeout_s
        self._attempts = 0
        self._owner: str | None = None  # as read last

    async def outcome(self) -> MoveOutcome:
        """Move the bundle and say what became of it."""
        begun = time.monotonic()
        try:
            end = await self._travel()
        except AdminError as error:
            # Raised by reads alone: before the first unload nothing was done, after one the owner is in doubt.
            end = self._broken_off(error.reason, error.message)
        except Exception as error:
            _log.exception("%s: the move broke off", self._bundle)
            end = self._broken_off("unexpected_error", f"{type(error).__name__}, see the task's log")
        return MoveOutcome(
            bundle=self._bundle,
            source=self._move.source,
            destination=self._destination,
            owner=end.owner,
            reason=end.reason,
            attempts=self._attempts,
            seconds=time.monotonic() - begun,
            error="" if end.reason in _OK else end.error,
        )

    def _broken_off(self, reason: str, error: str) -> _End:
        return _End("unknown_owner" if self._attempts else reason, self._owner or "", error)

    async def _travel(self) -> _End:
        early = await self._check()
        if early is not None:
            return early
        topic = await self._topic()
        if topic is None:
            return _End("no_topic", self._owner or "")
        while True:
            end = await self._attempt(topic)
            if not end.again or self._attempts > self._retries:
                return end
            _log.warning("%s: %s (owner %s), trying again", self._bundle, end.reason, end.owner or "none")
            early = await self._check_destination("moved")
            if early is not None:
                return early

    # before an unload

    async def _check(self) -> _End | None:
        """An end if the bundle is there already, moved on, or its destination does not answer."""
        early = await self._check_destination("already_there")
        if early is not None:
            return early
        # The source is asked first: in the normal case nobody else has to be.
        self._owner = await self._admin.owner(self._bundle, (self._move.source,))
        if self._owner == self._destination:
            return _End("already_there", self._destination)
        if self._owner not in (None, self._move.source):
            return _End("owner_changed", self._owner or "")
        return None

    async def _check_destination(self, if_owner: str) -> _End | None:
        """Ask the destination itself: a killed broker stays in the list of active ones until its session ends."""
        try:
            arrived = await self._admin.owns(self._destination, self._bundle)
        except AdminError as error:
            gone = error.reason == "unreachable"
            return _End("destination_gone" if gone else error.reason, self._owner or "", error.message)
        return _End(if_owner, self._destination) if arrived else None

    async def _topic(self) -> str | None:
        """A topic of the bundle, for the lookup; a lookup of any other one would place another bundle."""
        topics = await self._admin.topics_of_bundle(self._bundle)
        return next((topic for topic in topics if _holds(self._bundle, topic)), None)

    # an unload and what follows

    async def _attempt(self, topic: str) -> _End:
        self._attempts += 1
        failed: AdminError | None = None
        try:
            await self._unload()
        except AdminError as error:
            if error.reason in _REFUSALS:
                # Pulsar, too, remembers an unload only after its success (ModularLoadManagerImpl.doLoadShedding).
                if error.reason not in _REFUSED_ON_THE_WAY:
                    self._attempts -= 1
                return _End(_REFUSALS[error.reason], self._owner or "", error.message)
            if not error.sent:
                self._owner = await self._admin.owner(self._bundle, (self._destination,))
                arrived = self._owner == self._destination
                return _End("moved" if arrived else error.reason, self._owner or "", error.message)
            failed = error  # it may have been carried out all the same: ownership decides
            _log.warning("%s: unload failed, reading ownership: %s", self._bundle, error)
        before, self._owner = self._owner, None
        self._owner = await self._settled(topic, before if failed else None)
        if self._owner == self._destination:
            there = failed is not None and _SAME_BROKER in failed.message
            return _End("already_there" if there else "moved", self._destination)
        if self._owner is None:
            return _End("unowned", again=True, error=failed.message if failed else "")
        if failed is not None and self._owner == before:
            return _End(failed.reason, self._owner, failed.message, again=True)
        return _End("astray", self._owner, again=True)

    async def _unload(self) -> None:
        """Unload; tried again while it reaches nobody.

        It is redirected to a dead leader, or by the leader to a dead owner, until that one's session ends. In the
        second case the leader remembers the destination, and a client may have placed the bundle there meanwhile.

        Raises:
            AdminError: it was refused, failed, or reached nobody within the time-out.
        """
        pauses, until = _pauses(), time.monotonic() + self._timeout_s
        while True:
            try:
                return await self._admin.unload(self._bundle, self._destination)
            except AdminError as error:
                if error.sent or error.reason != "unreachable" or time.monotonic() > until:
                    raise
                _log.info("%s: not unloaded yet: %s", self._bundle, error)
            await asyncio.sleep(next(pauses))
            with suppress(AdminError):
                if await self._admin.owns(self._destination, self._bundle):
                    return None

    async def _settled(self, topic: str, leaving: str | None) -> str | None:
        """The owner after an unload; None when nobody owns the bundle at the end of the time-out.

        Args:
            topic: a topic of the bundle.
            leaving: a broker that may still be busy unloading it, so that owning it proves nothing yet.

        Raises:
            AdminError: the owner cannot be established.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._placed(topic, leaving)
        except TimeoutError:
            return await self._admin.owner(self._bundle, (self._destination,))

    async def _placed(self, topic: str, leaving: str | None) -> str:
        """Look the topic up until the broker that the lookup names says itself that it owns the bundle."""
        pauses = _pauses()
        while True:
            try:
                owner = await self._admin.lookup_owner(topic)
                if owner != leaving and await self._admin.owns(owner, self._bundle):
                    return owner
            except AdminError as error:
                # Normal for a moment: "Failed to acquire ownership", a leader or an owner that just died.
                _log.info("%s: not placed yet: %s", self._bundle, error)
            await asyncio.sleep(next(pauses))


def _pauses() -> Iterator[float]:
    """Seconds between tries."""
    pause = _FIRST_PAUSE_S
    while True:
        yield pause
        pause = min(2 * pause, _LONGEST_PAUSE_S)


def _holds(bundle: str, topic: str) -> bool:
    """Whether the topic is in the bundle: crc32 of its full name, upper bound exclusive but for the last."""
    namespace, _, hash_range = bundle.rpartition("/")
    low, high = (int(bound, 16) for bound in hash_range.split("_"))
    position = crc32(topic.encode())
    inside = low <= position < high or position == high == _LAST_HASH
    return inside and topic.partition("://")[2].startswith(f"{namespace}/")
