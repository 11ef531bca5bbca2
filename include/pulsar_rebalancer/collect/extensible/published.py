"""Store the messages that brokers publish on the system topics for later runs: brokers publish only after changes."""

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
    """A message from a system topic.

    Attributes:
        broker: brokerId, the message's key.
        at_ms: publish time, in ms since 1970.
        data: the content, a JSON object; empty if the broker withdrew its previous message.
    """

    broker: str
    at_ms: int
    data: bytes


class TopBundles(BaseModel):
    """The names of a broker's top bundles, in the broker's order, and the time of the message (in ms since 1970)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    at_ms: int
    bundles: tuple[str, ...]


class Published(VersionedDocument):
    """The last messages from each broker.

    Attributes:
        load: BrokerLoadData figures that the rebalancer uses, by broker.
        top: top bundles by broker.
    """

    model_config = ConfigDict(frozen=False)

    FILE: ClassVar[str] = LOAD_DATA

    load: dict[str, dict[str, JsonValue]] = {}
    top: dict[str, TopBundles] = {}

    @classmethod
    def earlier(cls, folder: StoragePath | None) -> Self:
        """Return the messages that earlier runs received; empty if there is no readable file of this version."""
        try:
            return (cls.find(folder) if folder else None) or cls()
        except SnapshotError as error:
            _log.warning("load data kept from earlier runs cannot be used: %s", error)
            return cls()

    def keep_only(self, brokers: Collection[str]) -> None:
        """Drop the messages from brokers that are no longer listed."""
        for by_broker in (self.load, self.top):
            for broker in by_broker.keys() - set(brokers):
                del by_broker[broker]

    def take_load(self, message: TopicMessage) -> bool:
        """Store a message from the load data topic; return whether it has content."""
        self.load.pop(message.broker, None)
        document = _document(message)
        if document is None:
            return False
        self.load[message.broker] = kept(document)
        return True

    def take_top(self, message: TopicMessage) -> bool:
        """Store a message from the top bundles topic; return whether it has content."""
        self.top.pop(message.broker, None)
        entries = (_document(message) or {}).get("topBundlesLoadData")
        if not isinstance(entries, list):
            return False
        names = (entry.get("bundleName") for entry in entries if isinstance(entry, dict))
        bundles = tuple(name for name in names if isinstance(name, str))
        self.top[message.broker] = TopBundles(at_ms=message.at_ms, bundles=bundles)
        return True


def _document(message: TopicMessage) -> dict[str, JsonValue] | None:
    if not message.data:
        return None
    try:
        document = parse_json(message.data)
        json.dumps(document, allow_nan=False)  # must be storable as JSON
    except (ValueError, RecursionError):
        document = None
    if isinstance(document, dict):
        return document
    _log.warning("%s published a message that is not a JSON object", message.broker)
    return None
