"""Which bundles of a fired pair may move at all; the others are passed over with a reason."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pulsar_rebalancer.snapshot import namespace_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

HEARTBEAT_NAMESPACE = r"(?:pulsar|sla-monitor)/[^:/]+:[0-9]+"
"""Heartbeat and SLA-monitor namespaces, which no strategy of Pulsar looks at (NamespaceService, 4.2.4 and 5.0.1)."""

SYSTEM_NAMESPACE = "pulsar/system"
"""Pulsar would move its bundles; the rebalancer never does."""

_HEARTBEAT = re.compile(HEARTBEAT_NAMESPACE)


def is_heartbeat(bundle: str) -> bool:
    """Whether the bundle belongs to a heartbeat or SLA-monitor namespace."""
    return _HEARTBEAT.fullmatch(namespace_of(bundle)) is not None


def preset_reason(
    bundle: Mapping[str, Any], excluded_namespaces: Collection[str], passed_over: Mapping[str, str]
) -> str | None:
    """Why a bundle must stay whatever its traffic; None when it may move.

    Args:
        bundle: a row of the bundles table.
        excluded_namespaces: `tenant/namespace` names.
        passed_over: reason by bundle, for those that validation left out or that moved within the grace period.
    """
    name = bundle["bundle"]
    if is_heartbeat(name) or namespace_of(name) == SYSTEM_NAMESPACE:
        return "system_namespace"
    if namespace_of(name) in excluded_namespaces:
        return "namespace_excluded"
    return passed_over.get(name)
