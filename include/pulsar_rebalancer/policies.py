"""Which namespaces and brokers isolation policies and anti-affinity groups take out of free balancing."""

from __future__ import annotations

import asyncio
import re
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pulsar_rebalancer.errors import AdminError
from pulsar_rebalancer.snapshot import namespace_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_NAMESPACE = re.compile(r"[^/:]+/[^/:]+")
# Java reads `[a[b]]` as a union and `[a&&b]` as an intersection, Python does not and says nothing.
_JAVA_SETS = re.compile(r"\[[^\]]*(?:\[|&&)")


class PolicyCalls(Protocol):
    """What policies need of the admin client."""

    async def cluster_name(self) -> str:
        """The cluster's name inside Pulsar."""

    async def isolation_policies(self, cluster: str) -> dict[str, Any]:
        """Isolation policies by name; empty when there is none."""

    async def anti_affinity_group(self, namespace: str) -> str:
        """Anti-affinity group of `tenant/namespace`; empty when it is in none."""


@dataclass(frozen=True)
class Policies:
    """What policies say about a cluster.

    Attributes:
        namespaces: `isolation` or `anti_affinity` by namespace; those under neither are not in it.
        reserved: isolation policy by broker that it reserves.
        problem: why policies could not be read; empty when they could. Then nothing is known to be free.
    """

    namespaces: Mapping[str, str]
    reserved: Mapping[str, str]
    problem: str = ""


async def read_policies(
    admin: PolicyCalls, *, cluster: str, brokers: Sequence[str], bundles: Iterable[str]
) -> Policies:
    """Read the policies that concern these brokers and bundles.

    Args:
        admin: the admin client; it bounds how many requests are under way.
        cluster: the cluster's name inside Pulsar; asked of the brokers when empty.
        brokers: brokerIds.
        bundles: bundle names.
    """
    namespaces = sorted({name for name in map(namespace_of, bundles) if _is_users(name)})
    try:
        policies = parse_isolation(await admin.isolation_policies(cluster or await admin.cluster_name()))
        isolated = {name: "isolation" for name in namespaces if any(p.covers(name) for p in policies)}
        free = [name for name in namespaces if name not in isolated]
        groups = await asyncio.gather(*(_group(admin, name) for name in free))
    except (AdminError, ValueError) as error:
        return Policies({}, {}, str(error))
    grouped = {name: "anti_affinity" for name, group in zip(free, groups, strict=True) if group}
    return Policies(isolated | grouped, _reserved(policies, brokers))


@dataclass(frozen=True)
class IsolationPolicy:
    """One namespace isolation policy.

    Attributes:
        name: its name.
        namespaces: patterns of `tenant/namespace`.
        primary: patterns of the brokers' hosts.
    """

    name: str
    namespaces: tuple[re.Pattern[str], ...]
    primary: tuple[re.Pattern[str], ...]

    def covers(self, namespace: str) -> bool:
        """Whether `tenant/namespace` is under the policy (NamespaceIsolationPolicyImpl: the whole name matches)."""
        return any(pattern.fullmatch(namespace) for pattern in self.namespaces)

    def reserves(self, broker: str) -> bool:
        """Whether the broker's host, without its port, is a primary one."""
        return any(pattern.fullmatch(broker.rpartition(":")[0]) for pattern in self.primary)


def parse_isolation(document: Mapping[str, Any]) -> list[IsolationPolicy]:
    """The policies of `namespaceIsolationPolicies`, by name.

    Raises:
        ValueError: one is not of the documented shape, or holds a pattern that cannot be told the way Java tells it.
    """
    found = []
    for name, policy in sorted(document.items()):
        if not isinstance(policy, dict):
            raise ValueError(f"isolation policy {name!r} is no JSON object")
        found.append(IsolationPolicy(name, _patterns(name, policy, "namespaces"), _patterns(name, policy, "primary")))
    return found


def _patterns(name: str, policy: Mapping[str, Any], key: str) -> tuple[re.Pattern[str], ...]:
    given = policy.get(key) or []
    if not isinstance(given, list) or not all(isinstance(pattern, str) for pattern in given):
        raise ValueError(f"isolation policy {name!r}: {key} is no list of texts")
    return tuple(_pattern(name, key, pattern) for pattern in given)


def _pattern(name: str, key: str, pattern: str) -> re.Pattern[str]:
    problem = f"isolation policy {name!r}: {key}: {pattern[:80]!r} is no pattern that can be read here"
    if _JAVA_SETS.search(pattern):
        raise ValueError(problem)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)
            return re.compile(pattern, re.ASCII)
    except (re.error, FutureWarning, OverflowError, RecursionError):
        raise ValueError(problem) from None


def _reserved(policies: Sequence[IsolationPolicy], brokers: Sequence[str]) -> dict[str, str]:
    """Brokers that are primary in a policy: other namespaces may not be placed there.

    (SimpleResourceAllocationPolicies.isSharedBroker; a manual destination is not checked against it.) Where every
    broker is primary in some policy, none is set apart from the others, and none is left out.
    """
    found = {}
    for broker in brokers:
        owner = next((policy.name for policy in policies if policy.reserves(broker)), None)
        if owner is not None:
            found[broker] = owner
    return {} if len(found) == len(brokers) else found


async def _group(admin: PolicyCalls, namespace: str) -> str:
    try:
        return await admin.anti_affinity_group(namespace)
    except AdminError as error:
        # Deleted since its bundles were reported.
        if error.reason == "not_found":
            return ""
        raise


def _is_users(namespace: str) -> bool:
    """Whether it is a namespace of users: heartbeat and SLA namespaces hold a `:` or three parts."""
    return _NAMESPACE.fullmatch(namespace) is not None and namespace != "pulsar/system"
