"""Ask about the few bundles that may have to be split: their topics and the bounds of their namespaces."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Literal

from pulsar_rebalancer.collect.large_bundles import choose
from pulsar_rebalancer.collect.load_report import figure
from pulsar_rebalancer.config.enums import Mode
from pulsar_rebalancer.errors import AdminError
from pulsar_rebalancer.names import namespace_of, range_of
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
"""Topics of all of them together; a bundle with more is not split by its topics."""

MOST_SECONDS = 30
"""For reading the topics of all of them: a plan must not grow old by bundles that might be split."""

_LARGEST = {"msgRate": LARGEST["msg_rate_in"], "msgThroughput": LARGEST["msg_throughput_in"]}


async def read_candidates(
    admin: PulsarAdmin,
    bundles: pa.Table,
    means: pa.Table | None,
    settings: Settings,
    waits: Callable[[str], bool] = lambda _: False,
) -> Candidates:
    """Ask the owners of the bundles that may have to be split about their topics, and what those carry.

    Args:
        admin: client of the cluster.
        bundles: the bundles table of the sample.
        means: bundle and long-term means of the last counted sample (`tables.MEANS`); None when there are none.
        settings: effective settings; nothing is asked while `split_mode` is off.
        waits: whether a bundle is not split again yet.
    """
    chosen = choose(bundles, means, settings, waits) if settings.split_mode is not Mode.OFF else []
    if not chosen:
        return Candidates()
    namespaces = sorted({namespace_of(each.bundle) for each in chosen})
    bounds = dict(zip(namespaces, await asyncio.gather(*(_bounds(admin, n) for n in namespaces)), strict=True))
    topics: dict[str, tuple[TopicLoad, ...] | None] = {}
    try:
        async with asyncio.timeout(MOST_SECONDS):
            for broker in sorted({each.broker for each in chosen}):
                # Answered for all topics of a broker at once, which may be long: one answer is held at a time.
                stats = await _topic_stats(admin, broker)
                for name in (each.bundle for each in chosen if each.broker == broker):
                    left = MOST_TOPICS - sum(len(found or ()) for found in topics.values())
                    topics[name] = await _topics(admin, name, stats, left)
                del stats
    except TimeoutError:
        _log.warning("topics of %d bundles were not read within %d s", len(chosen) - len(topics), MOST_SECONDS)
    names = [each.bundle for each in chosen]
    return Candidates(
        bundles=tuple(Candidate(bundle=n, bounds=bounds[namespace_of(n)], topics=topics.get(n)) for n in names)
    )


async def read_candidate(admin: PulsarAdmin, bundle: str, broker: str) -> Candidate:
    """Ask about one bundle that a person wants to split, whatever it carries.

    Args:
        admin: client of the cluster.
        bundle: `tenant/namespace/0x…_0x…`.
        broker: brokerId of its owner.
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
    """Return the topics that the owner lists, those without statistics idle; None when they cannot be read."""
    try:
        positions = await admin.bundles.topic_hash_positions(bundle)
    except AdminError as error:
        _log.warning("%s", error)
        return None
    if len(positions) > most:
        _log.warning("%s has %d topics: too many to look at", bundle, len(positions))
        return None
    loads = _loads(stats, bundle)
    return tuple(
        TopicLoad(position, _carried(loads.get(topic), "msgRate"), _carried(loads.get(topic), "msgThroughput"))
        for topic, position in sorted(positions.items(), key=lambda item: (item[1], item[0]))
    )


def _loads(stats: dict[str, JsonValue], bundle: str) -> dict[str, JsonValue]:
    found: JsonValue = stats
    for key in (namespace_of(bundle), range_of(bundle)):
        found = found.get(key) if isinstance(found, dict) else None
    domains = found.values() if isinstance(found, dict) else ()
    return {topic: load for domain in domains if isinstance(domain, dict) for topic, load in domain.items()}


def _carried(load: JsonValue, kind: Literal["msgRate", "msgThroughput"]) -> float:
    """Return in plus out of one topic; what is no sound figure counts as none."""
    figures = [figure(load.get(f"{kind}{way}")) for way in ("In", "Out")] if isinstance(load, dict) else []
    return sum(found for found in figures if found is not None and 0 <= found <= _LARGEST[kind])
