"""Ask about the few bundles that may have to be split: their topics and the bounds of their namespaces."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from pulsar_rebalancer.config.enums import Mode
from pulsar_rebalancer.errors import AdminError
from pulsar_rebalancer.names import namespace_of, range_of
from pulsar_rebalancer.splitting.algorithms import MIB, TopicLoad
from pulsar_rebalancer.splitting.candidates import Candidate, Candidates
from pulsar_rebalancer.splitting.conditions import FEWEST_TOPICS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from pulsar_rebalancer.admin import PulsarAdmin
    from pulsar_rebalancer.config.settings import Settings

_log = logging.getLogger(__name__)

MOST_BUNDLES = 20
"""Bundles that are asked about in one run; the others wait."""

MOST_TOPICS = 100_000
"""Topics of all of them together; a bundle with more is not split by its topics."""


async def read_candidates(
    admin: PulsarAdmin, bundles: pa.Table, means: pa.Table | None, settings: Settings
) -> Candidates:
    """Ask the owners of the bundles that may have to be split about their topics, and what those carry.

    Args:
        admin: client of the cluster.
        bundles: the bundles table of the sample.
        means: bundle and long-term means of the last counted sample (`tables.MEANS`); None when there are none.
        settings: effective settings; nothing is asked while `split_mode` is off.
    """
    chosen = choose(bundles, means, settings) if settings.split_mode is not Mode.OFF else []
    if not chosen:
        return Candidates()
    namespaces = sorted({namespace_of(row["bundle"]) for row in chosen})
    brokers = sorted({row["broker"] for row in chosen})
    bounds = dict(zip(namespaces, await asyncio.gather(*(_bounds(admin, n) for n in namespaces)), strict=True))
    # Statistics of single topics are answered for all topics of a broker at once, which may be long: one by one.
    stats = {broker: await _topic_stats(admin, broker) for broker in brokers}
    found, left = [], MOST_TOPICS
    for row in chosen:
        topics = await _topics(admin, row["bundle"], stats[row["broker"]], left)
        left -= len(topics or ())
        found.append(Candidate(bundle=row["bundle"], bounds=bounds[namespace_of(row["bundle"])], topics=topics))
    return Candidates(bundles=tuple(found))


async def read_candidate(admin: PulsarAdmin, bundle: str, broker: str) -> Candidate:
    """Ask about one bundle that a person wants to split, whatever it carries.

    Args:
        admin: client of the cluster.
        bundle: `tenant/namespace/0x…_0x…`.
        broker: brokerId of its owner.
    """
    bounds, stats = await _bounds(admin, namespace_of(bundle)), await _topic_stats(admin, broker)
    return Candidate(bundle=bundle, bounds=bounds, topics=await _topics(admin, bundle, stats, MOST_TOPICS))


def choose(bundles: pa.Table, means: pa.Table | None, settings: Settings) -> list[dict[str, Any]]:
    """Return bundle and broker of those that may meet a condition of splitting, the largest first.

    A mean exceeds a bound only if the mean before or the present figure does, so both are looked at.

    Args:
        bundles: the bundles table.
        means: the means table of the last counted sample, or None.
        settings: effective settings.
    """
    rate, bandwidth = float(settings.max_bundle_msg_rate), float(settings.max_bundle_bandwidth * MIB)
    large = (
        (_figure("topics") > settings.max_bundle_topics)
        | (_figure("msg_rate_in") + _figure("msg_rate_out") > rate)
        | (_figure("msg_throughput_in") + _figure("msg_throughput_out") > bandwidth)
    )
    if settings.max_bundle_sessions > 0:
        large |= _figure("producers") + _figure("consumers") > settings.max_bundle_sessions
    if means is not None:
        busy = (_figure("long_term_msg_rate") > rate) | (_figure("long_term_msg_throughput") > bandwidth)
        large |= pc.field("bundle").isin(means.filter(busy)["bundle"].combine_chunks())
    rows = bundles.filter(large & (_figure("topics") >= FEWEST_TOPICS)).to_pylist()
    rows.sort(key=lambda row: (-(row["msg_rate_in"] or 0) - (row["msg_rate_out"] or 0), row["bundle"]))
    once: dict[str, dict[str, Any]] = {}
    for row in rows:
        if namespace_of(row["bundle"]) not in settings.excluded_namespaces:
            once.setdefault(row["bundle"], row)
    if len(once) > MOST_BUNDLES:
        _log.warning("%d bundles may have to be split; %d of them are looked at", len(once), MOST_BUNDLES)
    return list(once.values())[:MOST_BUNDLES]


def _figure(name: str) -> pc.Expression:
    return pc.coalesce(pc.field(name), pc.scalar(0))  # type: ignore[type-var]


async def _bounds(admin: PulsarAdmin, namespace: str) -> tuple[int, ...]:
    try:
        return tuple(await admin.bundles.bounds(namespace))
    except AdminError as error:
        _log.warning("%s", error)
        return ()


async def _topic_stats(admin: PulsarAdmin, broker: str) -> Mapping[str, Any]:
    try:
        return await admin.topic_stats(broker)
    except AdminError as error:
        _log.warning("%s", error)
        return {}


async def _topics(admin: PulsarAdmin, bundle: str, stats: Mapping[str, Any], most: int) -> tuple[TopicLoad, ...] | None:
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
        TopicLoad(position, *(_carried(loads.get(topic), kind) for kind in ("msgRate", "msgThroughput")))
        for topic, position in sorted(positions.items(), key=lambda item: (item[1], item[0]))
    )


def _loads(stats: Mapping[str, Any], bundle: str) -> dict[str, Any]:
    found: Any = stats
    for key in (namespace_of(bundle), range_of(bundle)):
        found = found.get(key) if isinstance(found, dict) else None
    domains: Sequence[Any] = list(found.values()) if isinstance(found, dict) else []
    return {topic: load for domain in domains if isinstance(domain, dict) for topic, load in domain.items()}


def _carried(load: Any, kind: str) -> float:
    """Return in plus out of one topic; what is no sound figure counts as none."""
    figures = [load.get(f"{kind}{way}") for way in ("In", "Out")] if isinstance(load, dict) else []
    return sum(float(f) for f in figures if isinstance(f, int | float) and 0 <= f < float("inf"))
