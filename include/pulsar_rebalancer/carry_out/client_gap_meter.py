"""Measure what moves cost clients, using the brokers' topic statistics.

A source is queried for clients before the unload; then the new owner is polled until they are back. The
measurement delays a move only briefly and never makes it fail; without a response, the cost is unknown.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from pulsar_rebalancer.carry_out.bundle_move import retry_delays
from pulsar_rebalancer.errors import AdminError
from pulsar_rebalancer.pulsar import PulsarAdmin
from pulsar_rebalancer.pulsar.bundle_calls import ClientCounts, has_clients, stats_by_topic
from pulsar_rebalancer.pulsar.exchange import TOPIC_NAMES_SIZE
from pulsar_rebalancer.reasons import Reason, Trait
from pulsar_rebalancer.run.outcome import ClientGap, MoveOutcome
from pulsar_rebalancer.run.plan import Move
from pulsar_rebalancer.texts import one_line

_log = logging.getLogger(__name__)

MAX_TOPICS = 10
"""Maximum number of a bundle's topics whose clients are counted: each topic costs several requests."""

MAX_CONCURRENT_COUNTS = 4
"""Maximum number of topics per broker whose clients are counted at once: a slow broker must not delay moves."""

MAX_COUNT_BEFORE_S = 2.0
"""Maximum seconds to count clients before an unload. A broker that takes longer is not asked again in this wave."""

MAX_WATCH_S = 15.0
"""Maximum seconds to wait for clients at the new owner. Pulsar's clients retry after 0.1, 0.2, 0.4 … seconds, so a
client makes seven attempts."""

_LONGEST_PAUSE_S = 1.0

_MAX_WAVE_S = 600.0
"""Seconds after which a wave no longer waits for clients; the wave's task is limited to 15 minutes."""

_COUNT_REFUSALS = (Reason.FORBIDDEN, Reason.UNAUTHORIZED)


class ClientGapMeter:
    """Measures the moves of one wave. `record_gap` gets a move's cost, possibly after the move's outcome."""

    def __init__(self, admin: PulsarAdmin, moves: Sequence[Move], record_gap: Callable[[str, ClientGap], None]) -> None:
        self.admin = admin
        self.record_gap = record_gap
        self._bundles: defaultdict[str, list[str]] = defaultdict(list)
        for move in moves:
            self._bundles[move.source].append(move.bundle)
        self._topic_tasks: dict[str, asyncio.Task[dict[str, list[str]]]] = {}
        self._slow_brokers: set[str] = set()
        self._slots: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(MAX_CONCURRENT_COUNTS))
        self._watch_tasks: set[asyncio.Task[ClientGap]] = set()
        self._started_at = time.monotonic()

    def new_measurement(self, move: Move, *, is_retry: bool) -> ClientGapMeasurement:
        """Return the measurement of one move. `is_retry`: an earlier attempt might have unloaded the bundle."""
        return ClientGapMeasurement(self, move, is_retry)

    async def topics_with_clients(self, move: Move) -> list[str]:
        """Return a bundle's topics that have clients; counting other topics' clients would load these topics.

        Raises AdminError if the source does not respond or its statistics are unclear, and TimeoutError if it
        took too long earlier in this wave.
        """
        if move.source in self._slow_brokers:
            raise TimeoutError
        if move.source not in self._topic_tasks:
            self._topic_tasks[move.source] = asyncio.create_task(self._topics_by_bundle(move.source))
        found = (await asyncio.shield(self._topic_tasks[move.source])).get(move.bundle)
        if found is None:
            unclear = f"the statistics of {move.source} do not say which of the bundle's topics have clients"
            raise AdminError(Reason.NOT_FOUND, unclear)
        return found

    async def _topics_by_bundle(self, source: str) -> dict[str, list[str]]:
        stats = await self.admin.topic_stats(source, TOPIC_NAMES_SIZE)
        self._slow_brokers.discard(source)  # moves that begin from now on need not wait for the statistics
        found = {}
        for bundle in self._bundles[source]:
            connected = {name: has_clients(topic) for name, topic in stats_by_topic(stats, bundle).items()}
            names = sorted(name for name, clients in connected.items() if clients)
            if names or (connected and None not in connected.values()):
                found[bundle] = names
        return found

    def mark_broker_slow(self, source: str) -> None:
        self._slow_brokers.add(source)

    async def count_clients(self, topic: str, broker: str) -> ClientCounts | None:
        """Return a topic's connected clients; None on an error response. Raises AdminError without a response."""
        async with self._slots[broker]:
            try:
                return await self.admin.bundles.count_clients(topic, broker)
            except AdminError as error:
                if (error.status or 0) < 400 or error.reason in _COUNT_REFUSALS:
                    raise
                if error.reason is Reason.NOT_FOUND and topic.startswith("non-persistent:"):
                    return ClientCounts(0, 0)  # such a topic exists only while it has clients
                _log.info("clients of %s cannot be counted: %s", topic, error)
                return None

    def start_watching(self, count_coroutine: Coroutine[Any, Any, ClientGap]) -> asyncio.Task[ClientGap]:
        task = asyncio.create_task(count_coroutine)
        self._watch_tasks.add(task)
        task.add_done_callback(self._watch_tasks.discard)
        return task

    async def wait_for_clients(self, stop_reason: Callable[[], object]) -> None:
        """Wait until all clients are back or late; stop once `stop_reason` returns why the wave must end."""
        try:
            while self._watch_tasks and stop_reason() is None and time.monotonic() - self._started_at < _MAX_WAVE_S:
                await asyncio.wait(self._watch_tasks, timeout=1.0)
        except Exception:
            _log.exception("cannot check whether the wave must end, so the wave stops waiting for clients")

    async def close(self) -> None:
        tasks = [*self._watch_tasks, *self._topic_tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclass(eq=False)
class ClientGapMeasurement:
    """The measurement of one move.

    `is_retry` is true if an earlier attempt might have unloaded the bundle: nothing can then be measured.
    `why_unknown` says why clients cannot be counted.
    """

    meter: ClientGapMeter
    move: Move
    is_retry: bool
    why_unknown: str = field(default="", init=False)
    _topic_count: int | None = field(default=None, init=False)
    _baseline: dict[str, ClientCounts] = field(default_factory=dict, init=False)
    _unloaded_at: float = field(default=0.0, init=False)
    _owner_seconds: float | None = field(default=None, init=False)
    _latest_counts: dict[str, ClientCounts | None] = field(default_factory=dict, init=False)  # by topic
    _counted_after_s: float = field(default=0.0, init=False)  # seconds from the unload to the last answer
    _unload_count: int = field(default=0, init=False)
    _count_task: asyncio.Task[ClientGap] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.is_retry:
            self.why_unknown = "an earlier attempt of the task may have unloaded the bundle"

    async def count_clients_before_unload(self, begin: Awaitable[None]) -> None:
        """Count the connected clients before the unload, while awaiting `begin`."""
        await asyncio.gather(begin, self._try_to_count_clients())
        self._unloaded_at = time.monotonic()

    async def _try_to_count_clients(self) -> None:
        try:
            if not self.why_unknown:
                async with asyncio.timeout(MAX_COUNT_BEFORE_S):
                    await self._count_clients()
        except TimeoutError:
            self.meter.mark_broker_slow(self.move.source)
            self.why_unknown = (
                f"{self.move.source} did not say within {MAX_COUNT_BEFORE_S:g} s which clients are connected"
            )
        except AdminError as error:
            self.why_unknown = error.message
        except Exception as error:
            self._note_failure(error)

    async def _count_clients(self) -> None:
        names = await self.meter.topics_with_clients(self.move)
        sample = [names[at * len(names) // MAX_TOPICS] for at in range(MAX_TOPICS)] if names[MAX_TOPICS:] else names
        counts = await asyncio.gather(*(self.meter.count_clients(topic, self.move.source) for topic in sample))
        counted = {topic: clients for topic, clients in zip(sample, counts, strict=True) if clients is not None}
        if names and not counted:
            raise AdminError(Reason.NOT_FOUND, "no broker returned statistics for the topics that have clients")
        self._baseline = {topic: clients for topic, clients in counted.items() if any(clients)}
        self._topic_count = len(names)

    def _note_failure(self, error: Exception) -> None:
        _log.error("%s: clients were not counted", self.move.bundle, exc_info=error)
        self.why_unknown = f"{type(error).__name__}, see the task's log"

    def outcome_with_gap(self, outcome: MoveOutcome) -> MoveOutcome:
        """Return the outcome with the values known so far, and keep counting in the background."""
        self._unload_count = outcome.attempts
        if not outcome.attempts:
            return outcome
        if outcome.reason.has(Trait.NEW_OWNER) and not self.is_retry:
            self._owner_seconds = round(time.monotonic() - self._unloaded_at, 3)
        if not outcome.owner:
            self.why_unknown = self.why_unknown or "the bundle has no known owner"
        if self._baseline and not self.why_unknown:
            self._count_task = self.meter.start_watching(self._watch_clients(outcome.owner))
            so_far = self._measured_gap("the task ended before the bundle's clients were counted")
        else:
            so_far = self._measured_gap(self.why_unknown)
        return outcome.model_copy(update={"client_gap": so_far})

    async def clients_reconnected_within(self, seconds: float) -> bool | None:
        """Return whether all clients reconnected within `seconds` of the unload; None if unknown.

        False if the bundle had no owner by then or was unloaded more than once. Without clients, only the
        owner matters.
        """
        if not self._unload_count or self.is_retry:
            return None
        if self._unload_count > 1 or self._owner_seconds is None or self._owner_seconds > seconds:
            return False
        if self._count_task is None:
            return None if self.why_unknown else True
        left = self._unloaded_at + seconds - time.monotonic()
        await asyncio.wait([self._count_task], timeout=max(left, 0))
        if not self._count_task.done():
            return False
        client_gap = self._count_task.result()
        return None if client_gap.unknown else (client_gap.clients_seconds or math.inf) <= seconds

    async def _watch_clients(self, owner: str) -> ClientGap:
        try:
            async with asyncio.timeout(MAX_WATCH_S):
                await asyncio.gather(*(self._watch_topic_clients(topic, owner) for topic in self._baseline))
        except TimeoutError:
            _log.info("%s: some clients were not back after %g s", self.move.bundle, MAX_WATCH_S)
        except Exception as error:
            self._note_failure(error)
            self._latest_counts.clear()
        answered = self._latest_counts.keys() == self._baseline.keys()
        client_gap = self._measured_gap("" if answered else self.why_unknown or f"{owner} did not answer")
        self.meter.record_gap(self.move.bundle, client_gap)
        return client_gap

    async def _watch_topic_clients(self, topic: str, owner: str) -> None:
        for pause in retry_delays(_LONGEST_PAUSE_S):
            await asyncio.sleep(pause)
            try:
                self._latest_counts[topic] = now = await self.meter.count_clients(topic, owner)
            except AdminError as error:
                self._latest_counts.pop(topic, None)
                self.why_unknown = error.message
                if error.reason in _COUNT_REFUSALS:
                    return
                continue
            self._counted_after_s = round(time.monotonic() - self._unloaded_at, 3)
            if now is not None and all(after >= was for after, was in zip(now, self._baseline[topic], strict=True)):
                return

    def _measured_gap(self, why_unknown: str) -> ClientGap:
        before = sum(map(sum, self._baseline.values()))
        back = sum(
            min(after, was)
            for topic, now in self._latest_counts.items()
            for after, was in zip(now or (0, 0), self._baseline[topic], strict=True)
        )
        counted = before > 0 and not why_unknown
        return ClientGap(
            owner_seconds=self._owner_seconds,
            clients_seconds=self._counted_after_s if counted and back == before else None,
            watched_seconds=self._counted_after_s if counted else None,
            clients_before=None if self._topic_count is None else before,
            clients_back=back if counted else None,
            topics=self._topic_count,
            topics_measured=len(self._baseline),
            errors=sum(now is None for now in self._latest_counts.values()) if counted else None,
            unknown=one_line(why_unknown, 300),
        )
