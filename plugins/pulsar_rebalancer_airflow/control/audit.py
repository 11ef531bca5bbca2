"""Who changed what, when and why: a file for each change, beside the copies of the state."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import JsonValue

    from pulsar_rebalancer.state.orders.control_document import Order
    from pulsar_rebalancer.storage.layout import ClusterStorage
    from pulsar_rebalancer.storage.path import StoragePath


def note(storage: ClusterStorage, action: str, order: Order, details: Mapping[str, JsonValue]) -> StoragePath:
    """Write `state/change-<time>-<action>.json`, over what was noted of this order before; return it."""
    file = storage.state / f"change-{order.at:%Y%m%dT%H%M%S.%fZ}-{action}.json"
    said = {"at": order.at.isoformat(), "action": action, "by": order.by, "reason": order.reason}
    file.write_json({**said, **details})
    return file
