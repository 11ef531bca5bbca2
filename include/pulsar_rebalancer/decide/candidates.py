"""Which bundles of a fired pair may move at all; the others are passed over with a reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsar_rebalancer.config import exclusions
from pulsar_rebalancer.names import is_of_brokers
from pulsar_rebalancer.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


def preset_reason(
    bundle: str,
    excluded_namespaces: Collection[str],
    passed_over: Mapping[str, Reason],
    excluded_bundles: Collection[str] = (),
) -> Reason | None:
    """Return why a bundle must stay whatever its traffic; None when it may move.

    Args:
        bundle: `tenant/namespace/0x…_0x…`.
        excluded_namespaces: `tenant/namespace` names.
        passed_over: reason by bundle, for those that validation left out or that moved within the grace period.
        excluded_bundles: patterns of bundle names.
    """
    if is_of_brokers(bundle):
        return Reason.SYSTEM_NAMESPACE
    return exclusions.of_bundle(bundle, excluded_namespaces, excluded_bundles) or passed_over.get(bundle)
