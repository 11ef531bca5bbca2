"""What brokers published on the system topics, kept between runs: they publish on changes, not when they are asked."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from pydantic import BaseModel, ConfigDict

from pulsar_rebalancer import documents
from pulsar_rebalancer.errors import SnapshotError

if TYPE_CHECKING:
    from collections.abc import Collection

    from pulsar_rebalancer.storage import Folder

FILE = "load-data.json"
"""Name of the file in a cluster's state folder."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Message:
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


class Heard(BaseModel):
    """What was heard last of each broker.

    Attributes:
        load: BrokerLoadData by broker.
        top: top bundles by broker.
    """

    model_config = ConfigDict(extra="forbid")

    version: int = documents.VERSION
    load: dict[str, dict[str, Any]] = {}
    top: dict[str, TopBundles] = {}

    @classmethod
    def read(cls, folder: Folder | None) -> Self:
        """What earlier runs heard; nothing when there is no file of this version: it is heard anew."""
        if folder is None or not (folder / FILE).exists():
            return cls()
        try:
            return documents.read(cls, folder / FILE)
        except SnapshotError as error:
            _log.warning("what brokers published is heard anew: %s", error)
            return cls()

    def write(self, folder: Folder | None) -> None:
        """Keep it for the next run."""
        if folder is not None:
            (folder / FILE).write_json(self.model_dump(mode="json"))

    def keep_only(self, brokers: Collection[str]) -> None:
        """Forget brokers that are not listed any more."""
        for kept in (self.load, self.top):
            for broker in kept.keys() - set(brokers):
                del kept[broker]

    def take_load(self, message: Message) -> bool:
        """Take a message of the topic of load data; whether there was anything in it."""
        self.load.pop(message.broker, None)
        document = _document(message)
        if document is None:
            return False
        self.load[message.broker] = document
        return True

    def take_top(self, message: Message) -> bool:
        """Take a message of the topic of top bundles; whether there was anything in it."""
        self.top.pop(message.broker, None)
        entries = (_document(message) or {}).get("topBundlesLoadData")
        if not isinstance(entries, list):
            return False
        names = (entry.get("bundleName") for entry in entries if isinstance(entry, dict))
        found = tuple(name for name in names if isinstance(name, str))
        self.top[message.broker] = TopBundles(at_ms=message.at_ms, bundles=found)
        return True


def _document(message: Message) -> dict[str, Any] | None:
    if not message.data:
        return None
    try:
        found = json.loads(message.data)
        json.dumps(found, allow_nan=False)  # as it is kept
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict):
        return found
    _log.warning("%s published what is no JSON object", message.broker)
    return None
