"""What isolation policies, anti-affinity groups and failure domains say about namespaces and brokers."""

from __future__ import annotations

from typing import ClassVar

from pulsar_rebalancer.policies.isolation import IsolationPolicy, policy_of
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.storage.documents import VersionedDocument


class Policies(VersionedDocument):
    """`input/policies.json`: what policies say about a cluster, as far as it could be read.

    Attributes:
        isolation: isolation policies in Pulsar's order.
        groups: anti-affinity group by namespace; those in none are not in it.
        domains: failure domain by broker; empty when domains are off.
        unknown: why it is not known where a namespace may be, by namespace: an admin reason code or a sentence.
        without_persistent: brokers that take no persistent topics, while others do.
        readable: whether anything is known about the namespaces at all.
        problem: what could not be read, and which policy no broker can serve; empty when all is well.
    """

    FILE: ClassVar[str] = "input/policies.json"

    isolation: tuple[IsolationPolicy, ...] = ()
    groups: dict[str, str] = {}
    domains: dict[str, str] = {}
    unknown: dict[str, str] = {}
    without_persistent: tuple[str, ...] = ()
    readable: bool = True
    problem: str = ""

    def kind(self, namespace: str) -> str | None:
        """Return `unknown`, `isolation` or `anti_affinity`, the first that applies; None for one under neither."""
        if namespace in self.unknown:
            return "unknown"
        if policy_of(self.isolation, namespace):
            return "isolation"
        return Reason.ANTI_AFFINITY if namespace in self.groups else None

    def reserved_by(self, broker: str) -> str | None:
        """Return the first isolation policy of which the broker is primary: other namespaces may not be placed there.

        (NamespaceIsolationPolicies.isSharedBroker; Pulsar does not check a manual destination against it.)
        """
        return next((policy.name for policy in self.isolation if policy.reserves(broker)), None)
