"""Keep what brokers published on the system topics: they publish on changes, not when they are asked."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from pydantic import BaseModel, ConfigDict, JsonValue

from pulsar_rebalancer.collect.extensible.load_data import kept
from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.storage.documents import VersionedDocument
from pulsar_rebalancer.storage.layout import LOAD_DATA
from pulsar_rebalancer.texts import parse_json

if TYPE_CHECKING:
    from collections.abc import Collection

    from pulsar_rebalancer.storage.path import StoragePath

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TopicMessage:
    """A message of a system topic.

    Attributes:
        broker: its key, a brokerId.
        at_ms: when it was published, ms since 1970.
        data: a JSON document; empty when the broker took back what it published before.
    """

    broker: str
    at_ms: int
    data: bytes


class TopBundles(BaseModel):
    """Names of a broker's top bundles, in its order, and when they were published (ms since 1970)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    at_ms: int
    bundles: tuple[str, ...]


class Published(VersionedDocument):
    """What was received last of each broker.

    Attributes:
        load: what is used of its BrokerLoadData, by broker.
        top: top bundles by broker.
    """

    model_config = ConfigDict(frozen=False)

    FILE: ClassVar[str] = LOAD_DATA

    load: dict[str, dict[str, JsonValue]] = {}
    top: dict[str, TopBundles] = {}

    @classmethod
    def earlier(cls, folder: StoragePath | None) -> Self:
        """Return what earlier runs received; nothing without a file of this version: it is received anew."""
        try:
            return (cls.find(folder) if folder else None) or cls()
        except SnapshotError as error:
            _log.warning("what brokers published is received anew: %s", error)
            return cls()

    def keep_only(self, brokers: Collection[str]) -> None:
        """Forget brokers that are not listed any more."""
        for by_broker in (self.load, self.top):
            for broker in by_broker.keys() - set(brokers):
                del by_broker[broker]

    def take_load(self, message: TopicMessage) -> bool:
        """Take a message of the topic of load data; return whether there was anything in it."""
        self.load.pop(message.broker, None)
        document = _document(message)
        if document is None:
            return False
        self.load[message.broker] = kept(document)
        return True

    def take_top(self, message: TopicMessage) -> bool:
        """Take a message of the topic of top bundles; return whether there was anything in it."""
        self.top.pop(message.broker, None)
        entries = (_document(message) or {}).get("topBundlesLoadData")
        if not isinstance(entries, list):
            return False
        names = (entry.get("bundleName") for entry in entries if isinstance(entry, dict))
        found = tuple(name for name in names if isinstance(name, str))
        self.top[message.broker] = TopBundles(at_ms=message.at_ms, bundles=found)
        return True


def _document(message: TopicMessage) -> dict[str, JsonValue] | None:
    if not message.data:
        return None
    try:
        found = parse_json(message.data)
        json.dumps(found, allow_nan=False)  # as it is kept
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict):
        return found
    _log.warning("%s published what is no JSON object", message.broker)
    return None
