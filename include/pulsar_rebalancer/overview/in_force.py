"""What keeps bundles where they are now, and who wants it so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsar_rebalancer.control.in_force import closings, sentence
from pulsar_rebalancer.errors import RebalancerError
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.state.by_hand import Drains

if TYPE_CHECKING:
    from datetime import datetime

    from pulsar_rebalancer.config.clusters_file import ClusterEntry
    from pulsar_rebalancer.control.documents import Control
    from pulsar_rebalancer.storage.layout import ClusterStorage


def in_force(storage: ClusterStorage, entry: ClusterEntry, control: Control, now: datetime) -> str:
    """Return what keeps bundles where they are beside the mode, and which brokers are drained; empty when nothing.

    Args:
        storage: of the cluster.
        entry: of the clusters file as it is now.
        control: what people ordered.
        now: the present.
    """
    found = closings(entry.settings, control, now)
    try:
        drains = Drains.parse(storage.drains.read_json()).brokers if storage.drains.exists() else {}
    except RebalancerError as error:
        return f"Which brokers are drained cannot be read: {error.message}."
    if not drains and all(each.reason is Reason.OBSERVE for each in found):
        return ""
    return f"{sentence(entry.settings, found, drains)}."
