"""Brokers that are not compared with the others, because what they carry is meant to differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsar_rebalancer.config.enums import Strategy
from pulsar_rebalancer.policies.cluster_policies import Policies
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.state.manual_plans import Drains

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pulsar_rebalancer.config.settings import Settings
    from pulsar_rebalancer.storage.path import StoragePath


def apart(settings: Settings, drained: Iterable[str], policies: Policies) -> dict[str, Reason]:
    """Return why a broker stands apart: it is emptied, or takes no persistent topics.

    The latter would take a place in AvgShedder's pairs for nothing. Those that an isolation policy reserves take the
    bundles of its namespaces all the same.

    Args:
        settings: the effective ones.
        drained: brokers that are drained.
        policies: of the cluster.
    """
    unpaired = policies.without_persistent if settings.strategy is Strategy.AVG else ()
    closed = (name for name in unpaired if policies.reserved_by(name) is None)
    return dict.fromkeys(closed, Reason.NO_PERSISTENT_TOPICS) | dict.fromkeys(drained, Reason.DRAINING)


def apart_in(folder: StoragePath, settings: Settings) -> dict[str, Reason]:
    """Return the same for a run, from its files.

    Raises:
        SnapshotError: `file_missing`, `file_damaged` or `file_version`.
        StateError: `state_version`.
    """
    drains = Drains.parse((folder / "input" / "state.json").read_json().get("drains"))
    return apart(settings, drains.brokers, Policies.read(folder))
