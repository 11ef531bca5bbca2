"""What isolation policies, anti-affinity groups and failure domains say about namespaces and brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pulsar_rebalancer.policies.isolation import IsolationPolicy, rulings
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.storage.documents import VersionedDocument

if TYPE_CHECKING:
    from collections.abc import Collection


class Policies(VersionedDocument):
    """`input/policies.json`: the policies of a cluster, as far as they could be read.

    Attributes:
        isolation: isolation policies in Pulsar's order.
        groups: anti-affinity group by namespace, for namespaces in a group.
        domains: failure domain by broker; empty if domains are off.
        unknown: by namespace, why its permitted brokers are unknown: an admin reason code or a sentence.
        without_persistent: brokers that take no persistent topics, while others do.
        readable: whether the policies of at least one namespace are known, or there is no namespace.
        problem: what could not be read, and policies that no broker can serve; empty if all is well.
    """

    FILE: ClassVar[str] = "input/policies.json"

    isolation: tuple[IsolationPolicy, ...] = ()
    groups: dict[str, str] = {}
    domains: dict[str, str] = {}
    unknown: dict[str, str] = {}
    without_persistent: tuple[str, ...] = ()
    readable: bool = True
    problem: str = ""

    def kinds(self, namespaces: Collection[str]) -> dict[str, str | None]:
        """Return for each namespace the first of `unknown`, `isolation` and `anti_affinity` that applies, or None."""
        ruling = rulings(self.isolation, namespaces)

        def kind(namespace: str) -> str | None:
            if namespace in self.unknown:
                return "unknown"
            other = Reason.ANTI_AFFINITY if namespace in self.groups else None
            return "isolation" if ruling[namespace] else other

        return {namespace: kind(namespace) for namespace in namespaces}

    def kind(self, namespace: str) -> str | None:
        """Return what `kinds` returns for one namespace."""
        return self.kinds([namespace])[namespace]

    def reserved_by(self, broker: str) -> str | None:
        """Return the first isolation policy with the broker as primary, which closes it to other namespaces.

        See NamespaceIsolationPolicies.isSharedBroker; Pulsar does not check a manual destination against it.
        """
        return next((policy.name for policy in self.isolation if policy.reserves(broker)), None)
