"""Namespaces, bundles and brokers that the clusters file excludes from moves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsar_rebalancer.names import namespace_of
from pulsar_rebalancer.patterns import matches, of_glob
from pulsar_rebalancer.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Collection

    from pulsar_rebalancer.config.settings import Settings


def of_bundle(bundle: str, namespaces: Collection[str], patterns: Collection[str]) -> Reason | None:
    """Return why a bundle is excluded: `namespace_excluded` or `bundle_excluded`; None if it is not excluded.

    Args:
        bundle: name, `tenant/namespace/0x…_0x…`.
        namespaces: names of excluded namespaces, `tenant/namespace`.
        patterns: patterns that match the names of excluded bundles.
    """
    if namespace_of(bundle) in namespaces:
        return Reason.NAMESPACE_EXCLUDED
    if any(matches(of_glob(pattern), bundle) for pattern in patterns):
        return Reason.BUNDLE_EXCLUDED
    return None


def since(planned: Settings, present: Settings, bundle: str, brokers: Collection[str]) -> Reason | None:
    """Return why a planned move or split is now excluded; None if it is not excluded.

    Exclusions that already applied at the time of planning are ignored, because the plan overruled them.

    Args:
        planned: the plan's settings.
        present: the current settings from the clusters file.
        bundle: the bundle to move or split.
        brokers: the bundle's current broker, and its destination if there is one.
    """
    return None if _reason(planned, bundle, brokers) else _reason(present, bundle, brokers)


def _reason(settings: Settings, bundle: str, brokers: Collection[str]) -> Reason | None:
    if any(broker in settings.excluded_brokers for broker in brokers):
        return Reason.BROKER_EXCLUDED
    return of_bundle(bundle, settings.excluded_namespaces, settings.excluded_bundles)
