"""Read the topics of the few bundles that may have to be split, and the bounds in their namespaces."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import reduce
from operator import and_
from typing import Literal, NamedTuple
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import JsonValue

from pulsar_rebalancer.collect.load_report import as_float
from pulsar_rebalancer.config.field_types import Mode
from pulsar_rebalancer.config.pulsar_settings import MIB
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.errors import AdminError
from pulsar_rebalancer.names import is_system_bundle, namespace_of
from pulsar_rebalancer.pulsar import PulsarAdmin
from pulsar_rebalancer.pulsar.bundle_calls import stats_by_topic
from pulsar_rebalancer.run.snapshot import MIN_SPLIT_TOPICS, Candidate, SplitCandidates, TopicLoad
from pulsar_rebalancer.run.tables import LARGEST, TRAFFIC

_log = logging.getLogger(__name__)

MAX_EXAMINED_BUNDLES = 20
"""Maximum number of bundles examined in one run; the remaining bundles wait for a later run."""


class LargeBundle(NamedTuple):
    """A bundle that might meet a split condition; `excess_ratio` is the largest ratio of a value to its bound."""

    bundle: str
    broker: str
    excess_ratio: float


class _SplitBounds(NamedTuple):
    """Bounds above which a bundle is split. As in Pulsar, only the session bound is ignored if it is 0 or less."""

    topics: int
    sessions: int
    msg_rate: float
    msg_throughput: float

    @classmethod
    def from_settings(cls, settings: Settings) -> _SplitBounds:
        bandwidth = float(settings.max_bundle_bandwidth * MIB)
        rate = float(settings.max_bundle_msg_rate)
        return cls(settings.max_bundle_topics, settings.max_bundle_sessions, rate, bandwidth)

    def excess_filter(self) -> pc.Expression:
        too_large = (
            (_column("topics") > self.topics)
            | (_column("msg_rate_in") + _column("msg_rate_out") > self.msg_rate)
            | (_column("msg_throughput_in") + _column("msg_throughput_out") > self.msg_throughput)
        )
        if self.sessions > 0:
            too_large |= _column("producers") + _column("consumers") > self.sessions
        return too_large

    def excess_ratio(self, row: Mapping[str, float | None]) -> float:
        return max(
            _ratio_to_bound(row["topics"], self.topics),
            _ratio_to_bound(_column_sum(row, "producers", "consumers"), self.sessions),
            _ratio_to_bound(_column_sum(row, "msg_rate_in", "msg_rate_out"), self.msg_rate),
            _ratio_to_bound(_column_sum(row, "msg_throughput_in", "msg_throughput_out"), self.msg_throughput),
        )

    def excess_ratio_by_bundle(self, means: pa.Table | None) -> dict[str, float]:
        if means is None:
            return {}
        rate, throughput = _column("long_term_msg_rate"), _column("long_term_msg_throughput")
        return {
            row["bundle"]: max(
                _ratio_to_bound(row["long_term_msg_rate"], self.msg_rate),
                _ratio_to_bound(row["long_term_msg_throughput"], self.msg_throughput),
            )
            for row in means.filter((rate > self.msg_rate) | (throughput > self.msg_throughput)).to_pylist()
        }


def large_bundles(
    bundles: pa.Table, means: pa.Table | None, settings: Settings, was_split: Callable[[str], bool] = lambda _: False
) -> list[LargeBundle]:
    """Return the bundles that might meet a split condition, sorted by `excess_ratio`, largest first.

    The number of bundles is limited, so those that would not be split anyway are left out: in the brokers'
    own or in excluded namespaces, or with an invalid value. Those that were split too recently (`was_split`) come
    last. A moving average can exceed a bound only if its previous value (`means`) or the current value does,
    so both are checked.
    """
    bounds = _SplitBounds.from_settings(settings)
    of_means = bounds.excess_ratio_by_bundle(means)
    large = bounds.excess_filter() | pc.field("bundle").isin(pa.array(of_means, pa.string()))
    possible = reduce(and_, map(_has_valid_value, (*TRAFFIC, "topics", "producers", "consumers")))
    rows = bundles.filter(possible).filter(large & (_column("topics") >= MIN_SPLIT_TOPICS)).to_pylist()
    chosen = [
        LargeBundle(name, row["broker"], max(bounds.excess_ratio(row), of_means.get(name, 0.0)))
        for row in rows
        if not is_system_bundle(name := row["bundle"]) and namespace_of(name) not in settings.excluded_namespaces
    ]
    chosen.sort(key=lambda candidate: (was_split(candidate.bundle), -candidate.excess_ratio, candidate.bundle))
    once: dict[str, LargeBundle] = {}
    for candidate in chosen:
        once.setdefault(candidate.bundle, candidate)
    if len(once) > MAX_EXAMINED_BUNDLES:
        _log.warning("%d bundles may have to be split; this run examines only %d", len(once), MAX_EXAMINED_BUNDLES)
    return list(once.values())[:MAX_EXAMINED_BUNDLES]


def _ratio_to_bound(value: float | None, bound: float) -> float:
    return (value or 0.0) / bound if bound > 0 else 0.0


def _column_sum(row: Mapping[str, float | None], *names: str) -> float:
    return sum(row[name] or 0.0 for name in names)


def _column(name: str) -> pc.Expression:
    return pc.coalesce(pc.field(name), pc.scalar(0))  # type: ignore[type-var]


def _has_valid_value(name: str) -> pc.Expression:
    # Integers are compared with integers: Arrow refuses those that a float cannot represent.
    return (_column(name) >= 0) & (_column(name) <= int(LARGEST[name]))


MAX_TOPICS_READ = 100_000
"""Maximum number of topics read in one run. Bundles whose topics are not read can be split only by hash range."""

MAX_READ_SECONDS = 30
"""Maximum seconds for reading the topics of all bundles, so that the plan does not become too old."""

_MAX_PLAUSIBLE_RATE = {"msgRate": LARGEST["msg_rate_in"], "msgThroughput": LARGEST["msg_throughput_in"]}


async def read_candidates(
    admin: PulsarAdmin,
    bundles: pa.Table,
    means: pa.Table | None,
    settings: Settings,
    was_split: Callable[[str], bool] = lambda _: False,
) -> SplitCandidates:
    """Return the bundles that may have to be split, with each topic's load; none if `split_mode` is off.

    `means` (`tables.MEANS`) is as of the last counted sample; `was_split` says whether a bundle was split too recently.
    """
    chosen = large_bundles(bundles, means, settings, was_split) if settings.split_mode is not Mode.OFF else []
    if not chosen:
        return SplitCandidates()
    namespaces = sorted({namespace_of(large.bundle) for large in chosen})
    bounds = dict(zip(namespaces, await asyncio.gather(*(_read_boundaries(admin, n) for n in namespaces)), strict=True))
    topics: dict[str, tuple[TopicLoad, ...] | None] = {}
    try:
        async with asyncio.timeout(MAX_READ_SECONDS):
            for broker in sorted({large.broker for large in chosen}):
                # The answer has all of a broker's topics and may be long, so only one answer is in memory at a time.
                stats = await _read_topic_stats(admin, broker)
                for name in (large.bundle for large in chosen if large.broker == broker):
                    left = MAX_TOPICS_READ - sum(len(loads or ()) for loads in topics.values())
                    topics[name] = await _read_topics(admin, name, stats, left)
                del stats
    except TimeoutError:
        _log.warning("topics of %d bundles were not read within %d s", len(chosen) - len(topics), MAX_READ_SECONDS)
    names = [large.bundle for large in chosen]
    return SplitCandidates(
        bundles=tuple(Candidate(bundle=n, bounds=bounds[namespace_of(n)], topics=topics.get(n)) for n in names)
    )


async def read_candidate(admin: PulsarAdmin, bundle: str, broker: str) -> Candidate:
    bounds, stats = await _read_boundaries(admin, namespace_of(bundle)), await _read_topic_stats(admin, broker)
    return Candidate(bundle=bundle, bounds=bounds, topics=await _read_topics(admin, bundle, stats, MAX_TOPICS_READ))


async def _read_boundaries(admin: PulsarAdmin, namespace: str) -> tuple[int, ...]:
    try:
        return tuple(await admin.bundles.boundaries(namespace))
    except AdminError as error:
        _log.warning("%s", error)
        return ()


async def _read_topic_stats(admin: PulsarAdmin, broker: str) -> dict[str, JsonValue]:
    try:
        return await admin.topic_stats(broker)
    except AdminError as error:
        _log.warning("%s", error)
        return {}


async def _read_topics(
    admin: PulsarAdmin, bundle: str, stats: dict[str, JsonValue], limit: int
) -> tuple[TopicLoad, ...] | None:
    try:
        positions = await admin.bundles.topic_hash_positions(bundle)
    except AdminError as error:
        _log.warning("%s", error)
        return None
    if len(positions) > limit:
        _log.warning("%s has %d topics; this run can read only %d more", bundle, len(positions), limit)
        return None
    loads = stats_by_topic(stats, bundle)
    # Brokers may leave segments of scalable topics out of the positions, but not out of the statistics.
    positions |= {topic: crc32(topic.encode()) for topic in loads if topic.startswith("segment://")}
    return tuple(
        TopicLoad(position, total_rate(loads.get(topic), "msgRate"), total_rate(loads.get(topic), "msgThroughput"))
        for topic, position in sorted(positions.items(), key=lambda item: (item[1], item[0]))
    )


def total_rate(load: JsonValue, kind: Literal["msgRate", "msgThroughput"]) -> float:
    values = [as_float(load.get(f"{kind}{way}")) for way in ("In", "Out")] if isinstance(load, dict) else []
    return sum(rate for rate in values if rate is not None and 0 <= rate <= _MAX_PLAUSIBLE_RATE[kind])
