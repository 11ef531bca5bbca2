"""The audit trail: one file per change in the state folder, with the person, the change, the time and the reason."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import JsonValue

    from pulsar_rebalancer.state.orders.control_document import Order
    from pulsar_rebalancer.storage.layout import ClusterStorage
    from pulsar_rebalancer.storage.path import StoragePath
    from pulsar_rebalancer_airflow.state_store import StateStore


def loss(store: StateStore, lost: Mapping[str, str]) -> dict[str, JsonValue]:
    """Return the errors (`lost`) and JSON texts (`was`) of lost documents, by key, for `note`; empty if none."""
    texts: dict[str, JsonValue] = {key: json.dumps(store.raw(key), default=str) for key in lost}
    return {"lost": dict(lost), "was": texts} if lost else {}


def note(storage: ClusterStorage, action: str, order: Order, details: Mapping[str, JsonValue]) -> StoragePath:
    """Write `state/change-<time>-<action>.json`, and return its path.

    An earlier file for the same order is replaced.
    """
    file = storage.state / f"change-{order.at:%Y%m%dT%H%M%S.%fZ}-{action}.json"
    who_and_why = {"at": order.at.isoformat(), "action": action, "by": order.by, "reason": order.reason}
    file.write_json({**who_and_why, **details})
    return file
