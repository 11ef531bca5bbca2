"""Namespaces, their bundles (hash ranges) and topics.

Hashes and ranges are those of Pulsar's NamespaceBundleFactory and NamespaceBundles. The hash is the unsigned CRC32 of
the full topic name, including that of a segment of a scalable topic. A range includes its lower bound but not its upper
bound, except the last upper bound, 0xffffffff.
"""

from __future__ import annotations

import itertools
import re
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pulsar_simulator.faults import Refusal

FULL_RANGE = 0xFFFFFFFF
_RANGE_PATTERN = re.compile(r"0x([0-9a-fA-F]{1,8})_0x([0-9a-fA-F]{1,8})")
_DOMAINS = ("persistent", "non-persistent", "segment", "topic")
_SEGMENT_NAMES = ("0000-3fff-0", "4000-7fff-1", "8000-bfff-2", "c000-ffff-3")
_SEGMENT_PATTERN = re.compile(r".+/[0-9a-f]{4}-[0-9a-f]{4}-[0-9]+")


def topic_hash(topic: str) -> int:
    """Return the hash of a full topic name (`persistent://…`), 0 to 2**32 - 1."""
    return zlib.crc32(topic.encode())


def even_boundaries(bundle_count: int) -> tuple[int, ...]:
    """Return the `bundles + 1` bounds that divide the hash space into equal ranges."""
    step = (FULL_RANGE + 1) // bundle_count
    return (*(step * i for i in range(bundle_count)), FULL_RANGE)


def range_text(lower: int, upper: int) -> str:
    """Return a range as text, `0xllllllll_0xuuuuuuuu`, in lower case."""
    return f"0x{lower:08x}_0x{upper:08x}"


@dataclass(frozen=True, slots=True)
class Namespace:
    """One namespace of the simulated cluster.

    Attributes:
        name: `tenant/namespace`.
        bundles: number of equal hash ranges, at least 1.
        topics_per_bundle: number of loaded topics in every bundle that has traffic.
        domains: `persistent`, `non-persistent` or `segment`, assigned to a bundle's topics in turn. A scalable
            topic has four segments.
        anti_affinity_group: name of the group; empty if there is none.
    """

    name: str
    bundles: int
    topics_per_bundle: int = 2
    domains: tuple[str, ...] = ("persistent",)
    anti_affinity_group: str = ""


class Topology:
    """All namespaces and bundles. Other modules refer to a bundle by its index in `bundles`."""

    def __init__(self, namespaces: list[Namespace]) -> None:
        self.namespaces = {namespace.name: namespace for namespace in namespaces}
        self._boundaries = {n.name: even_boundaries(n.bundles) for n in namespaces}
        self._members: dict[str, Sequence[int]] = {}
        self.bundles: list[str] = []
        """Full bundle names, `tenant/namespace/0x…_0x…`."""
        for name, bounds in self._boundaries.items():
            self._members[name] = range(len(self.bundles), len(self.bundles) + len(bounds) - 1)
            self.bundles += [f"{name}/{range_text(a, b)}" for a, b in itertools.pairwise(bounds)]
        self._index = {bundle: i for i, bundle in enumerate(self.bundles)}
        self._topics: dict[int, list[str]] = {}
        self._weights: dict[str, float] = {}

    def find_namespace(self, name: str) -> Namespace:
        """Return the namespace with this name.

        Raises:
            Refusal: 404 if there is no such namespace.
        """
        try:
            return self.namespaces[name]
        except KeyError:
            raise Refusal(404, "Namespace not found") from None

    def boundaries(self, namespace: str) -> tuple[int, ...]:
        """Return the bounds of a namespace's bundles, ascending."""
        self.find_namespace(namespace)
        return self._boundaries[namespace]

    def index(self, bundle: str) -> int:
        """Return the index of the bundle with this full name. Invalid names cause the same errors as on brokers.

        Raises:
            Refusal: 404 for an unknown namespace, 412 for an unknown range, 500 for a string that is not a range.
        """
        namespace, _, text = bundle.rpartition("/")
        return self.index_of_range(namespace, text)

    def index_of_range(self, namespace: str, text: str) -> int:
        """Return the index of the namespace's bundle that has the given range. Raise the same errors as `index`."""
        bounds = self.boundaries(namespace)
        match = _RANGE_PATTERN.fullmatch(text)
        if match is None:
            raise Refusal(
                500,
                "\n --- An unexpected error occurred in the server ---\n\nMessage: Invalid bundle range format\n\n"
                "Stacktrace:\n\njava.lang.IllegalArgumentException: Invalid bundle range format\n\tat "
                "org.apache.pulsar.common.naming.NamespaceBundleFactory.getBundle(NamespaceBundleFactory.java)\n",
            )
        lower, upper = (int(part, 16) for part in match.groups())
        i = self._index.get(f"{namespace}/{range_text(lower, upper)}")
        if i is not None:
            return i
        which = "upper" if lower in bounds else "lower"
        raise Refusal(412, f"Invalid {which} boundary for bundle {namespace}/{text} in the bundles list")

    def bundle_of_topic(self, topic: str) -> int:
        """Return the index of the bundle that contains the topic with this full name.

        Raises:
            Refusal: 404 for an unknown namespace, 412 for a string that is not a topic name.
        """
        domain, separator, path = topic.partition("://")
        tenant, _, rest = path.partition("/")
        namespace, _, local = rest.partition("/")
        nameless = _SEGMENT_PATTERN.fullmatch(local) is None if domain == "segment" else not local
        if not separator or domain not in _DOMAINS or nameless:
            raise Refusal(412, f"Topic name is not valid: {topic}")
        bounds = self.boundaries(f"{tenant}/{namespace}")
        slot = min(bisect_right(bounds, topic_hash(topic)) - 1, len(bounds) - 2)
        return self._members[f"{tenant}/{namespace}"][slot]

    def namespace_of(self, bundle: int) -> Namespace:
        """Return a bundle's namespace."""
        return self.namespaces[self.bundles[bundle].rpartition("/")[0]]

    def range_of(self, bundle: int) -> str:
        """Return a bundle's range as text."""
        return self.bundles[bundle].rpartition("/")[2]

    def bounds(self, bundle: int) -> tuple[int, int]:
        """Return a bundle's lower and upper bounds."""
        lower, upper = (int(part, 16) for part in self.range_of(bundle).split("_"))
        return lower, upper

    def bundles_of(self, namespace: str) -> Sequence[int]:
        """Return the indices of a namespace's bundles, sorted by range."""
        self.find_namespace(namespace)
        return self._members[namespace]

    def topic_count(self, bundle: int) -> int:
        """Return the number of topics in a bundle. This is faster than `topics`."""
        topics = self._topics.get(bundle)
        return self.namespace_of(bundle).topics_per_bundle if topics is None else len(topics)

    def topics(self, bundle: int) -> list[str]:
        """Return the full names of a bundle's topics.

        The names for a whole namespace are generated at once, by trying names until every bundle has enough topics.
        """
        if bundle not in self._topics:
            namespace = self.namespace_of(bundle)
            self._topics.update(zip(self._members[namespace.name], self._find_topics(namespace), strict=True))
        return self._topics[bundle]

    def share_by_topic(self, bundle: int) -> dict[str, float]:
        """Return each topic's share (0 to 1) of its bundle's traffic.

        The share of the k-th topic is 1/k of the first topic's share.
        """
        weights = {topic: self._weights.get(topic, 1 / k) for k, topic in enumerate(self.topics(bundle), 1)}
        return {topic: weight / sum(weights.values()) for topic, weight in weights.items()}

    def split(self, bundle: int, cuts: Sequence[int]) -> list[int]:
        """Split a bundle. The lowest part keeps the bundle's index; the others get new indices in ascending order.

        Args:
            bundle: index of the bundle.
            cuts: positions within the bundle's range, ascending.

        Returns:
            The indices of the parts.
        """
        name, (lower, upper), shares = self.namespace_of(bundle).name, self.bounds(bundle), self.share_by_topic(bundle)
        self._weights.update(shares)
        topics = self._topics[bundle]
        parts = [bundle, *range(len(self.bundles), len(self.bundles) + len(cuts))]
        del self._index[self.bundles[bundle]]
        self.bundles += [""] * len(cuts)
        for part, (low, high) in zip(parts, itertools.pairwise((lower, *cuts, upper)), strict=True):
            self.bundles[part] = f"{name}/{range_text(low, high)}"
            self._index[self.bundles[part]] = part
        self._boundaries[name] = tuple(sorted({*self._boundaries[name], *cuts}))
        members = list(self._members[name])
        where = members.index(bundle)
        self._members[name] = [*members[:where], *parts, *members[where + 1 :]]
        for part in parts:
            self._topics[part] = [topic for topic in topics if self.bundle_of_topic(topic) == part]
        return parts

    def _find_topics(self, namespace: Namespace) -> list[list[str]]:
        by_range: list[list[str]] = [[] for _ in range(namespace.bundles)]
        missing = namespace.bundles * namespace.topics_per_bundle
        first = self._members[namespace.name][0]
        for number in itertools.count():
            if not missing:
                return by_range
            for domain in namespace.domains:
                local = f"t{number // 4}/{_SEGMENT_NAMES[number % 4]}" if domain == "segment" else f"t{number}"
                topic = f"{domain}://{namespace.name}/{local}"
                slot = by_range[self.bundle_of_topic(topic) - first]
                turn = namespace.domains[len(slot) % len(namespace.domains)]
                if len(slot) < namespace.topics_per_bundle and domain == turn:
                    slot.append(topic)
                    missing -= 1
        return by_range


def scalable_topics(topics: Iterable[str]) -> dict[str, list[str]]:
    """Return, for each scalable topic, the descriptors (`0000-7fff-1`) of its segments that are among the topics."""
    found: dict[str, list[str]] = {}
    for topic in topics:
        if topic.startswith("segment:"):
            parent, _, descriptor = topic.removeprefix("segment:").rpartition("/")
            found.setdefault(f"topic:{parent}", []).append(descriptor)
    return found


def scalable_layout(descriptors: Iterable[str]) -> dict[str, Any]:
    """Return a scalable topic's metadata with these segments, as in PIP-460 and PIP-468 (ScalableTopicMetadata)."""
    segments = {}
    for start, end, number in (descriptor.split("-") for descriptor in descriptors):
        keys = {"start": int(start, 16), "end": int(end, 16)}
        segments[number] = {"segmentId": int(number), "hashRange": keys, "state": "ACTIVE"}
    return {"epoch": 0, "nextSegmentId": len(segments), "segments": segments, "properties": {}}
