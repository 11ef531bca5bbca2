"""A cluster's isolation policies, anti-affinity groups and failure domains."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pulsar_rebalancer.policies.isolation import IsolationPolicy, rulings
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.storage.documents import VersionedDocument

if TYPE_CHECKING:
    from collections.abc import Collection


class Policies(VersionedDocument):
    """`input/policies.json`: the cluster's policies that could be read.

    Attributes:
        isolation: isolation policies in Pulsar's order.
        groups: anti-affinity group by namespace, only for namespaces that have one.
        domains: each broker's failure domain; empty if failure domains are off.
        unknown: why the permitted brokers are unknown, by namespace: an admin reason code or a sentence.
        without_persistent: brokers that accept no persistent topics; empty if no broker accepts any.
        readable: True if the policies of at least one namespace are known, or there is no namespace.
        problem: text that lists the policies that could not be read and those without an active broker; empty if there
            is no problem.
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
        """Return each namespace's kind of policy: the first of `unknown`, `isolation`, `anti_affinity` that applies."""
        ruling = rulings(self.isolation, namespaces)

        def kind(namespace: str) -> str | None:
            if namespace in self.unknown:
                return "unknown"
            other = Reason.ANTI_AFFINITY if namespace in self.groups else None
            return "isolation" if ruling[namespace] else other

        return {namespace: kind(namespace) for namespace in namespaces}

    def kind(self, namespace: str) -> str | None:
        """Return the result of `kinds` for one namespace."""
        return self.kinds([namespace])[namespace]

    def reserved_by(self, broker: str) -> str | None:
        """Return the first isolation policy that has the broker as a primary broker; None if there is no such policy.

        The policy keeps all other namespaces off the broker (NamespaceIsolationPolicies.isSharedBroker). Pulsar does
        not apply this rule to manually chosen destinations.
        """
        return next((policy.name for policy in self.isolation if policy.reserves(broker)), None)
