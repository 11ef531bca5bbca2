"""Scalable topics (`topic://`, Pulsar 5.0). A scalable topic exists as long as one of its segments exists.

Names and answers follow PIP-460, PIP-468 and ScalableTopicMetadata.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable


def scalable_topics(topics: Iterable[str]) -> dict[str, list[str]]:
    """Return, for each scalable topic, the descriptors (`0000-7fff-1`) of its segments that are among the topics."""
    found: dict[str, list[str]] = {}
    for topic in topics:
        if topic.startswith("segment:"):
            parent, _, descriptor = topic.removeprefix("segment:").rpartition("/")
            found.setdefault(f"topic:{parent}", []).append(descriptor)
    return found


def layout(descriptors: Iterable[str]) -> dict[str, Any]:
    """Return the metadata of a scalable topic with these segments."""
    segments = {}
    for start, end, number in (descriptor.split("-") for descriptor in descriptors):
        keys = {"start": int(start, 16), "end": int(end, 16)}
        segments[number] = {"segmentId": int(number), "hashRange": keys, "state": "ACTIVE"}
    return {"epoch": 0, "nextSegmentId": len(segments), "segments": segments, "properties": {}}
