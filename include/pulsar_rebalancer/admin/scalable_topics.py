"""Find the segments of scalable topics (`topic://`, Pulsar 5.0, PIP-460 and PIP-468) that are in a bundle.

A segment is itself a topic, `segment://tenant/namespace/topic/0000-7fff-1`, and its full name determines its bundle
(ConsistentHashingTopicBundleAssigner of 5.0.1). Brokers can omit segments from topic lists, because they read these
lists from the metadata of persistent topics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel, Field, ValidationError

from pulsar_rebalancer.admin.exchange import TOPIC_NAMES
from pulsar_rebalancer.admin.url_paths import path, split_bundle, split_topic
from pulsar_rebalancer.errors import AdminError
from pulsar_rebalancer.names import is_in_bundle
from pulsar_rebalancer.reasons import Reason

if TYPE_CHECKING:
    from pulsar_rebalancer.admin.answers import BrokerAnswer
    from pulsar_rebalancer.admin.transport import Transport

_MOST_READ = 100
"""Maximum number of scalable topics that are read to find a segment in a bundle."""


class _HashRange(BaseModel):
    start: int = Field(ge=0, le=0xFFFF)
    end: int = Field(ge=0, le=0xFFFF)


class _Segment(BaseModel):
    id: int = Field(alias="segmentId", ge=0)
    keys: _HashRange = Field(alias="hashRange")


class _Layout(BaseModel):
    segments: dict[str, _Segment]


async def segments_in(transport: Transport, bundle: str) -> list[str]:
    """Return the segments of one scalable topic that are in the bundle; empty if the bundle contains no segments.

    Raises:
        AdminError: a request fails. "Not found" is not an error: brokers that do not support scalable topics respond
            this way.
    """
    tenant, local, _ = split_bundle(bundle)
    folder = path("admin", "v2", "scalable", tenant, local)
    listed = await _found(transport, folder)
    for topic in sorted(listed.strings() if listed else ())[:_MOST_READ]:
        answer = await _found(transport, f"{folder}{path(split_topic(topic)[3])}")
        inside = [name for name in _segments_of(topic, answer) if is_in_bundle(name, bundle)] if answer else []
        if inside:
            return inside
    return []


async def _found(transport: Transport, url_path: str) -> BrokerAnswer | None:
    try:
        return await transport.get(url_path, size=TOPIC_NAMES)
    except AdminError as error:
        if error.reason is not Reason.NOT_FOUND:
            raise
        return None


def _segments_of(topic: str, answer: BrokerAnswer) -> list[str]:
    try:
        layout = _Layout.model_validate(answer.mapping())
    except ValidationError:
        raise answer.bad("the answer holds no segments") from None
    parent = topic.partition("://")[2]
    return [f"segment://{parent}/{s.keys.start:04x}-{s.keys.end:04x}-{s.id}" for s in layout.segments.values()]
