"""`input/splits.json`: data from the *collect* task about the few bundles that may need to be split."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from pydantic import BaseModel, ConfigDict

from pulsar_rebalancer.storage.documents import VersionedDocument

FEWEST_TOPICS = 2
"""A bundle with fewer topics is never split."""


class TopicLoad(NamedTuple):
    """The load of one topic in a bundle.

    Attributes:
        position: hash of the topic's full name.
        msg_rate: inbound plus outbound, in msg/s.
        msg_throughput: inbound plus outbound, in bytes/s.
    """

    position: int
    msg_rate: float = 0.0
    msg_throughput: float = 0.0


class Candidate(BaseModel):
    """One bundle that may need to be split.

    Attributes:
        bundle: `tenant/namespace/0x…_0x…`.
        bounds: bounds of the namespace's bundles, ascending; empty if they could not be read.
        topics: hash, msg/s and bytes/s for each topic that the owner lists; None if they could not be read.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    bundle: str
    bounds: tuple[int, ...] = ()
    topics: tuple[TopicLoad, ...] | None = None


class Candidates(VersionedDocument):
    """The bundles in a run that may need to be split. A run without this file has none."""

    FILE: ClassVar[str] = "input/splits.json"

    bundles: tuple[Candidate, ...] = ()
