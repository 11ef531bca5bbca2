"""Describe the orders in force in one sentence, based on the stored documents."""

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
    """Return a sentence that says which orders apply to the next run and who gave them.

    Args:
        settings: the effective settings.
        started: start of the run in progress, to decide whether a stop affects it; None if no run is in progress.
        origins: source of each setting, by name, if known.
    """
    now = datetime.now(UTC)
    try:
        orders = replace(store.told(storage, store.drained(storage), started), origins=origins or {})
    except RebalancerError as error:
        return f"Nothing is moved: {error.message}"
    return sentence(settings, closings(settings, orders.control, now, JudgedRun(now, store.last_plan())), orders, now)
