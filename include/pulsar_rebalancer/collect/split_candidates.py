"""Read the topics of the few bundles that may have to be split, and the bounds in their namespaces."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Literal
from zlib import crc32

from pulsar_rebalancer.admin.topic_statistics import topics_in
from pulsar_rebalancer.collect.large_bundles import choose
from pulsar_rebalancer.collect.load_report import figure
from pulsar_rebalancer.config.enums import Mode
from pulsar_rebalancer.errors import AdminError
from pulsar_rebalancer.names import namespace_of
from pulsar_rebalancer.run.tables import LARGEST
from pulsar_rebalancer.run.topic_loads import Candidate, Candidates, TopicLoad

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from pydantic import JsonValue

    from pulsar_rebalancer.admin import PulsarAdmin
    from pulsar_rebalancer.config.settings import Settings

_log = logging.getLogger(__name__)

MOST_TOPICS = 100_000
"""Maximum number of topics read in one run. A bundle whose topics would exceed it can be split only by hash range."""

MOST_SECONDS = 30
"""Maximum time for reading the topics of all bundles, in seconds, so that the plan does not become too old."""

_LARGEST = {"msgRate": LARGEST["msg_rate_in"], "msgThroughput": LARGEST["msg_throughput_in"]}


async def read_candidates(
    admin: PulsarAdmin,
    bundles: pa.Table,
    means: pa.Table | None,
    settings: Settings,
    waits: Callable[[str], bool] = lambda _: False,
) -> Candidates:
    """Return the bundles that may have to be split, with the load that the bundle's owner reports for each topic.

    Nothing is requested if `split_mode` is off.

    Args:
        bundles: the sample's bundles table.
        means: long-term moving averages as of the last counted sample (`tables.MEANS`); None if there are none.
        waits: function that returns whether a bundle was split too recently to be split again.
    """
    chosen = choose(bundles, means, settings, waits) if settings.split_mode is not Mode.OFF else []
    if not chosen:
        return Candidates()
    namespaces = sorted({namespace_of(large.bundle) for large in chosen})
    bounds = dict(zip(namespaces, await asyncio.gather(*(_bounds(admin, n) for n in namespaces)), strict=True))
    topics: dict[str, tuple[TopicLoad, ...] | None] = {}
    try:
        async with asyncio.timeout(MOST_SECONDS):
            for broker in sorted({large.broker for large in chosen}):
                # The answer has all of a broker's topics and may be long, so only one answer is in memory at a time.
                stats = await _topic_stats(admin, broker)
                for name in (large.bundle for large in chosen if large.broker == broker):
                    left = MOST_TOPICS - sum(len(loads or ()) for loads in topics.values())
                    topics[name] = await _topics(admin, name, stats, left)
                del stats
    except TimeoutError:
        _log.warning("topics of %d bundles were not read within %d s", len(chosen) - len(topics), MOST_SECONDS)
    names = [large.bundle for large in chosen]
    return Candidates(
        bundles=tuple(Candidate(bundle=n, bounds=bounds[namespace_of(n)], topics=topics.get(n)) for n in names)
    )


async def read_candidate(admin: PulsarAdmin, bundle: str, broker: str) -> Candidate:
    """Return a bundle that a person wants to split, with the load of each topic.

    Unlike other candidates, the bundle may be of any size.
    """
    bounds, stats = await _bounds(admin, namespace_of(bundle)), await _topic_stats(admin, broker)
    return Candidate(bundle=bundle, bounds=bounds, topics=await _topics(admin, bundle, stats, MOST_TOPICS))


async def _bounds(admin: PulsarAdmin, namespace: str) -> tuple[int, ...]:
    try:
        return tuple(await admin.bundles.bounds(namespace))
    except AdminError as error:
        _log.warning("%s", error)
        return ()


async def _topic_stats(admin: PulsarAdmin, broker: str) -> dict[str, JsonValue]:
    try:
        return await admin.topic_stats(broker)
    except AdminError as error:
        _log.warning("%s", error)
        return {}


async def _topics(
    admin: PulsarAdmin, bundle: str, stats: dict[str, JsonValue], most: int
) -> tuple[TopicLoad, ...] | None:
    """Return the load of each of a bundle's topics; None if it cannot be read or there are more than `most` topics."""
    try:
        positions = await admin.bundles.topic_hash_positions(bundle)
    except AdminError as error:
        _log.warning("%s", error)
        return None
    if len(positions) > most:
        _log.warning("%s has %d topics, more than can be examined", bundle, len(positions))
        return None
    loads = topics_in(stats, bundle)
    # Brokers may leave segments of scalable topics out of the positions, but not out of the statistics.
    positions |= {topic: crc32(topic.encode()) for topic in loads if topic.startswith("segment://")}
    return tuple(
        TopicLoad(position, _carried(loads.get(topic), "msgRate"), _carried(loads.get(topic), "msgThroughput"))
        for topic, position in sorted(positions.items(), key=lambda item: (item[1], item[0]))
    )


def _carried(load: JsonValue, kind: Literal["msgRate", "msgThroughput"]) -> float:
    """Return the sum of a topic's incoming and outgoing rates; invalid figures count as 0."""
    figures = [figure(load.get(f"{kind}{way}")) for way in ("In", "Out")] if isinstance(load, dict) else []
    return sum(rate for rate in figures if rate is not None and 0 <= rate <= _LARGEST[kind])
