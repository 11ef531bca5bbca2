"""Ask about the few bundles that may have to be split: their topics and the bounds of their namespaces."""

from __future__ import annotations

import asyncio
import logging
import math
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from pulsar_rebalancer.collect.load_report import figure
from pulsar_rebalancer.config.enums import Mode
from pulsar_rebalancer.config.pulsar_settings import MIB
from pulsar_rebalancer.errors import AdminError
from pulsar_rebalancer.names import is_of_brokers, namespace_of, range_of
from pulsar_rebalancer.run.topic_loads import FEWEST_TOPICS, Candidate, Candidates, TopicLoad

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from pulsar_rebalancer.admin import PulsarAdmin
    from pulsar_rebalancer.config.settings import Settings

_log = logging.getLogger(__name__)

MOST_BUNDLES = 20
"""Bundles that are asked about in one run; the others wait."""

MOST_TOPICS = 100_000
"""Topics of all of them together; a bundle with more is not split by its topics."""

MOST_SECONDS = 30
"""For reading the topics of all of them: a plan must not grow old by bundles that might be split."""


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
    namespaces = sorted({namespace_of(row["bundle"]) for row in chosen})
    bounds = dict(zip(namespaces, await asyncio.gather(*(_bounds(admin, n) for n in namespaces)), strict=True))
    topics: dict[str, tuple[TopicLoad, ...] | None] = {}
    try:
        async with asyncio.timeout(MOST_SECONDS):
            for broker in sorted({row["broker"] for row in chosen}):
                # Answered for all topics of a broker at once, which may be long: one answer is held at a time.
                stats = await _topic_stats(admin, broker)
                for name in (row["bundle"] for row in chosen if row["broker"] == broker):
                    left = MOST_TOPICS - sum(len(found or ()) for found in topics.values())
                    topics[name] = await _topics(admin, name, stats, left)
                del stats
    except TimeoutError:
        _log.warning("topics of %d bundles were not read within %d s", len(chosen) - len(topics), MOST_SECONDS)
    names = [row["bundle"] for row in chosen]
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


def choose(
    bundles: pa.Table, means: pa.Table | None, settings: Settings, waits: Callable[[str], bool] = lambda _: False
) -> list[dict[str, Any]]:
    """Return bundle and broker of those that may meet a condition of splitting, those furthest above a bound first.

    Bundles that are not split anyway take no place of others: those of the brokers' own and of excluded namespaces are
    left out, those that wait come last.

    A mean exceeds a bound only if the mean before or the present figure does, so both are looked at.

    Args:
        bundles: the bundles table.
        means: the means table of the last counted sample, or None.
        settings: effective settings.
        waits: whether a bundle is not split again yet.
    """
    rate, bandwidth = float(settings.max_bundle_msg_rate), float(settings.max_bundle_bandwidth * MIB)
    large = (
        (_figure("topics") > settings.max_bundle_topics)
        | (_figure("msg_rate_in") + _figure("msg_rate_out") > rate)
        | (_figure("msg_throughput_in") + _figure("msg_throughput_out") > bandwidth)
    )
    if settings.max_bundle_sessions > 0:
        large |= _figure("producers") + _figure("consumers") > settings.max_bundle_sessions
    of_means: dict[str, float] = {}
    if means is not None:
        busy = (_figure("long_term_msg_rate") > rate) | (_figure("long_term_msg_throughput") > bandwidth)
        known = means.filter(busy)
        large |= pc.field("bundle").isin(known["bundle"].combine_chunks())
        of_means = {
            row["bundle"]: max(
                _times(row["long_term_msg_rate"], rate), _times(row["long_term_msg_throughput"], bandwidth)
            )
            for row in known.to_pylist()
        }
    rows = bundles.filter(large & (_figure("topics") >= FEWEST_TOPICS)).to_pylist()

    def excess(row: Mapping[str, Any]) -> float:
        figures = (
            _times(row["topics"], settings.max_bundle_topics),
            _times(_sum(row, "producers", "consumers"), settings.max_bundle_sessions),
            _times(_sum(row, "msg_rate_in", "msg_rate_out"), rate),
            _times(_sum(row, "msg_throughput_in", "msg_throughput_out"), bandwidth),
        )
        return max(*figures, of_means.get(row["bundle"], 0.0))

    rows.sort(key=lambda row: (waits(row["bundle"]), -excess(row), row["bundle"]))
    once: dict[str, dict[str, Any]] = {}
    for row in rows:
        if not is_of_brokers(row["bundle"]) and namespace_of(row["bundle"]) not in settings.excluded_namespaces:
            once.setdefault(row["bundle"], row)
    if len(once) > MOST_BUNDLES:
        _log.warning("%d bundles may have to be split; %d of them are looked at", len(once), MOST_BUNDLES)
    return list(once.values())[:MOST_BUNDLES]


def _times(figure: float | None, bound: float) -> float:
    """Return how many times its bound a figure is; a bound of 0 or less is none."""
    return (figure or 0.0) / bound if bound > 0 else 0.0


def _sum(row: Mapping[str, Any], *names: str) -> float:
    return sum(row[name] or 0.0 for name in names)


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
    figures = [figure(load.get(f"{kind}{way}")) for way in ("In", "Out")] if isinstance(load, dict) else []
    return sum(found for found in figures if found is not None and 0 <= found < math.inf)
