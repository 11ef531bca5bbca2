"""The sentence on what is in force, from what is stored."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pulsar_rebalancer.errors import RebalancerError
from pulsar_rebalancer.state.orders.in_force import JudgedRun, closings
from pulsar_rebalancer.state.orders.sentence import sentence

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pulsar_rebalancer.config.resolution import Origin
    from pulsar_rebalancer.config.settings import Settings
    from pulsar_rebalancer.storage.layout import ClusterStorage
    from pulsar_rebalancer_airflow.state_store import StateStore


def in_force(
    store: StateStore,
    storage: ClusterStorage,
    settings: Settings,
    started: datetime | None,
    origins: Mapping[str, Origin] | None = None,
) -> str:
    """Return what is in force now for the next run, and by whom.

    Args:
        store: of the cluster.
        storage: likewise.
        settings: those that are in force.
        started: when the run began that a stop may have hit; None: none is under way.
        origins: where settings come from.
    """
    now = datetime.now(UTC)
    try:
        told = replace(store.told(storage, store.drains(storage), started), origins=origins or {})
    except RebalancerError as error:
        return f"Nothing is moved: {error.message}"
    return sentence(settings, closings(settings, told.control, now, JudgedRun(now, store.last_plan())), told, now)
