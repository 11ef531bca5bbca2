"""What the clusters file keeps from being moved."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pulsar_rebalancer.names import namespace_of, regex_of
from pulsar_rebalancer.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Collection

    from pulsar_rebalancer.config.settings import Settings


def of_bundle(bundle: str, namespaces: Collection[str], patterns: Collection[str]) -> Reason | None:
    """Return why a bundle is excluded, `namespace_excluded` or `bundle_excluded`; None when it is not.

    Args:
        bundle: `tenant/namespace/0x…_0x…`.
        namespaces: excluded ones, `tenant/namespace`.
        patterns: of names of bundles that are excluded.
    """
    if namespace_of(bundle) in namespaces:
        return Reason.NAMESPACE_EXCLUDED
    if any(re.fullmatch(regex_of(pattern), bundle) for pattern in patterns):
        return Reason.BUNDLE_EXCLUDED
    return None


def since(planned: Settings, present: Settings, bundle: str, brokers: Collection[str]) -> Reason | None:
    """Return why a part of a plan is excluded by now; what was excluded when it was planned has been overruled.

    Args:
        planned: settings of the plan.
        present: settings of the clusters file.
        bundle: what the part is about.
        brokers: where it is, and where it is to go.
    """
    return None if _reason(planned, bundle, brokers) else _reason(present, bundle, brokers)


def _reason(settings: Settings, bundle: str, brokers: Collection[str]) -> Reason | None:
    if any(broker in settings.excluded_brokers for broker in brokers):
        return Reason.BROKER_EXCLUDED
    return of_bundle(bundle, settings.excluded_namespaces, settings.excluded_bundles)
