"""Which bundles of a fired pair may move at all; the others are passed over with a reason."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pulsar_rebalancer.names import namespace_of
from pulsar_rebalancer.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

HEARTBEAT_NAMESPACE = r"(?:pulsar|sla-monitor)/[^:/]+:[0-9]+"
"""Heartbeat and SLA-monitor namespaces, which no strategy of Pulsar looks at (NamespaceService, 4.2.4 and 5.0.1)."""

SYSTEM_NAMESPACE = "pulsar/system"
"""Pulsar would move its bundles; the rebalancer never does."""

_HEARTBEAT = re.compile(HEARTBEAT_NAMESPACE)


def is_heartbeat(bundle: str) -> bool:
    """Return whether the bundle belongs to a heartbeat or SLA-monitor namespace."""
    return _HEARTBEAT.fullmatch(namespace_of(bundle)) is not None


def preset_reason(
    bundle: str, excluded_namespaces: Collection[str], passed_over: Mapping[str, Reason]
) -> Reason | None:
    """Return why a bundle must stay whatever its traffic; None when it may move.

    Args:
        bundle: `tenant/namespace/0x…_0x…`.
        excluded_namespaces: `tenant/namespace` names.
        passed_over: reason by bundle, for those that validation left out or that moved within the grace period.
    """
    if is_heartbeat(bundle) or namespace_of(bundle) == SYSTEM_NAMESPACE:
        return Reason.SYSTEM_NAMESPACE
    if namespace_of(bundle) in excluded_namespaces:
        return Reason.NAMESPACE_EXCLUDED
    return passed_over.get(bundle)
