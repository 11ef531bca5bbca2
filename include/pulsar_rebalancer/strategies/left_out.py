"""Determine which brokers can be neither source nor destination, and which are not compared with others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.strategies.shedders.registry import profile_shown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pulsar_rebalancer.config.settings import Settings
    from pulsar_rebalancer.policies.cluster_policies import Policies
    from pulsar_rebalancer.run.snapshot import Snapshot


def left_out_of(run: Snapshot, settings: Settings | None = None, policies: Policies | None = None) -> dict[str, Reason]:
    """Return a run's brokers that can be neither source nor destination, each with the reason.

    Args:
        settings: settings without the rules that a person lifted; None for the run's own.
        policies: policies without the rules that a person lifted; None for the run's own.
    """
    quarantined, drained = run.validation.quarantined, run.before.drains.brokers
    return left_out(settings or run.settings, policies or run.policies, quarantined=quarantined, drained=drained)


def left_out(
    settings: Settings, policies: Policies, *, quarantined: Iterable[str] = (), drained: Iterable[str] = ()
) -> dict[str, Reason]:
    """Return the brokers that can be neither source nor destination, each with the most serious reason.

    Args:
        quarantined: brokers that validation left out or that have no report; unknown names are returned too.
    """
    reasons = apart(settings, policies, drained) | dict.fromkeys(quarantined, Reason.BROKER_QUARANTINED)
    return reasons | dict.fromkeys(settings.excluded_brokers, Reason.BROKER_EXCLUDED)


def apart(settings: Settings, policies: Policies, drained: Iterable[str]) -> dict[str, Reason]:
    """Return the brokers that are not compared with other brokers, each with the reason.

    These brokers are drained, or accept no persistent topics and are therefore useless as the destination in a pair. If
    an isolation policy reserves a broker without persistent topics, the broker is compared, because it receives bundles
    from the policy's namespaces.
    """
    unpaired = policies.without_persistent if profile_shown(settings).thresholds(settings) else ()
    closed = (name for name in unpaired if policies.reserved_by(name) is None)
    return dict.fromkeys(closed, Reason.NO_PERSISTENT_TOPICS) | dict.fromkeys(drained, Reason.DRAINING)
