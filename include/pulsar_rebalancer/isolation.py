"""Isolation policies, anti-affinity groups and failure domains of a cluster, interpreted as in Pulsar."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict, JsonValue

from pulsar_rebalancer.names import is_java_compatible, is_matchable_name, match_mask, matches_pattern
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.storage.documents import VersionedDocument

_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,9}")
_MAX_QUOTE_CHARS = 80
_PATTERN_FIELDS = ("namespaces", "primary", "secondary")
_FAILOVER_FIELD = "auto_failover_policy"


class IsolationPolicy(BaseModel):
    """One namespace isolation policy.

    Attributes:
        namespaces: patterns of `tenant/namespace`.
        primary: patterns of host names; matching brokers are reserved for the policy's namespaces.
        secondary: patterns of host names for failover.
        min_limit: secondary brokers are used while fewer than this many primary brokers are active.
        problems: errors in Pulsar's document, by field name; invalid parts are left out above.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    namespaces: tuple[str, ...] = ()
    primary: tuple[str, ...] = ()
    secondary: tuple[str, ...] = ()
    min_limit: int = 0
    problems: dict[str, str] = {}

    def covers(self, namespace: str) -> bool:
        """Return whether `namespaces` match a namespace's whole name (NamespaceIsolationPolicyImpl)."""
        return _matches_any(self.namespaces, namespace)

    def reserves(self, broker: str) -> bool:
        return _matches_any(self.primary, host_of(broker))

    def allowed_brokers(self, brokers: Sequence[str]) -> list[str]:
        """Return the permitted brokers (LoadManagerShared.applyNamespacePolicies, MinAvailablePolicy)."""
        primary = [broker for broker in brokers if self.reserves(broker)]
        if len(primary) >= self.min_limit:
            return primary
        return [b for b in brokers if self.reserves(b) or _matches_any(self.secondary, host_of(b))]


def host_of(broker: str) -> str:
    return broker.rpartition(":")[0]


def parse_isolation(document: Mapping[str, JsonValue]) -> tuple[IsolationPolicy, ...]:
    """Return the policies in Pulsar's order; the first policy that covers a namespace applies to it."""
    return tuple(_parsed_policy(name, policy) for name, policy in document.items())


def policy_of(policies: Iterable[IsolationPolicy], namespace: str) -> IsolationPolicy | None:
    """Return the first policy that covers a namespace; None if no policy does. Unreadable policies are ignored."""
    return next((policy for policy in policies if policy.covers(namespace)), None)


def policies_of(policies: Iterable[IsolationPolicy], namespaces: Iterable[str]) -> dict[str, IsolationPolicy | None]:
    """Return the result of `policy_of` for each namespace; this is faster for many namespaces."""
    ruling: dict[str, IsolationPolicy | None] = dict.fromkeys(namespaces)
    left = pa.array(filter(is_matchable_name, ruling), pa.string())
    for policy in policies:
        for pattern in policy.namespaces:
            covered = match_mask(pattern, left)
            ruling |= dict.fromkeys(map(str, left.filter(covered).to_pylist()), policy)
            left = left.filter(pc.invert(covered))
    return ruling


def policy_problem(policies: Iterable[IsolationPolicy], namespace: str, first_match: IsolationPolicy | None) -> str:
    """Return why the permitted brokers of a namespace are unknown, given its first matching policy; empty if known.

    A policy with unreadable namespaces could apply to any namespace that no earlier policy covers. One with
    unreadable primary brokers could reserve any broker, which affects namespaces without a policy.
    """
    if not is_matchable_name(namespace):
        return f"{_quoted_text(namespace)} is not a valid namespace name"
    for policy in policies:
        if policy is first_match:
            return next((text for part, text in policy.problems.items() if part != "namespaces"), "")
        if "namespaces" in policy.problems:
            return policy.problems["namespaces"]
    return next((policy.problems["primary"] for policy in policies if "primary" in policy.problems), "")


class _ParsedField(NamedTuple):
    value: Any
    problem: str


def _parsed_policy(name: str, policy: object) -> IsolationPolicy:
    if not isinstance(policy, dict):
        problem = f"isolation policy {_quoted_text(name)} is not a JSON object"
        return IsolationPolicy(name=name, problems=dict.fromkeys((*_PATTERN_FIELDS, _FAILOVER_FIELD), problem))
    parts = {key: _parsed_patterns(policy.get(key) or []) for key in _PATTERN_FIELDS}
    failover = _parsed_min_limit(policy.get(_FAILOVER_FIELD))
    problems = {key: part.problem for key, part in (parts | {_FAILOVER_FIELD: failover}).items() if part.problem}
    return IsolationPolicy(
        name=name,
        **{key: part.value for key, part in parts.items()},
        min_limit=failover.value,
        problems={key: f"isolation policy {_quoted_text(name)}: {key}: {problem}" for key, problem in problems.items()},
    )


def _parsed_patterns(value: object) -> _ParsedField:
    if not isinstance(value, list) or not all(isinstance(pattern, str) for pattern in value):
        return _ParsedField((), "the value is not a list of strings")
    unreadable = [pattern for pattern in value if not is_java_compatible(pattern)]
    problem = f"{_quoted_text(unreadable[0])} is not a supported pattern" if unreadable else ""
    return _ParsedField(tuple(pattern for pattern in value if pattern not in unreadable), problem)


def _parsed_min_limit(value: object) -> _ParsedField:
    if value is None:
        return _ParsedField(0, "")
    if not isinstance(value, dict) or value.get("policy_type") != "min_available":
        return _ParsedField(0, "the policy_type is not min_available")
    parameters = value.get("parameters")
    limit = parameters.get("min_limit") if isinstance(parameters, dict) else None
    shown = str(limit) if isinstance(limit, str | int) else type(limit).__name__
    if _WHOLE_NUMBER.fullmatch(shown):
        return _ParsedField(int(shown), "")
    return _ParsedField(0, f"min_limit {_quoted_text(shown)} is not a whole number")


def _matches_any(patterns: Sequence[str], name: str) -> bool:
    return is_matchable_name(name) and any(matches_pattern(pattern, name) for pattern in patterns)


def _quoted_text(text: str) -> str:
    return repr(text[:_MAX_QUOTE_CHARS])


class Policies(VersionedDocument):
    """`input/policies.json`: the cluster's policies that could be read.

    Attributes:
        isolation: isolation policies in Pulsar's order.
        groups: anti-affinity group by namespace.
        domains: each broker's failure domain; empty if failure domains are off.
        unknown: why the permitted brokers are unknown, by namespace: an admin reason code or a sentence.
        without_persistent: brokers that accept no persistent topics; empty if no broker accepts any.
        readable: True if the policies of at least one namespace are known, or there is no namespace.
        problem: the policies that could not be read, or have no active broker, as text.
    """

    FILE: ClassVar[str] = "input/policies.json"

    isolation: tuple[IsolationPolicy, ...] = ()
    groups: dict[str, str] = {}
    domains: dict[str, str] = {}
    unknown: dict[str, str] = {}
    without_persistent: tuple[str, ...] = ()
    readable: bool = True
    problem: str = ""

    def policy_kind_by_namespace(self, namespaces: Collection[str]) -> dict[str, str | None]:
        """Return each namespace's kind of policy: the first of `unknown`, `isolation`, `anti_affinity` that applies."""
        ruling = policies_of(self.isolation, namespaces)

        def kind(namespace: str) -> str | None:
            if namespace in self.unknown:
                return "unknown"
            other = Reason.ANTI_AFFINITY if namespace in self.groups else None
            return "isolation" if ruling[namespace] else other

        return {namespace: kind(namespace) for namespace in namespaces}

    def policy_kind(self, namespace: str) -> str | None:
        return self.policy_kind_by_namespace([namespace])[namespace]

    def reserving_policy(self, broker: str) -> str | None:
        """Return the first isolation policy that has the broker as a primary broker; None if there is none.

        It keeps other namespaces off the broker (NamespaceIsolationPolicies.isSharedBroker), but Pulsar does not
        apply this rule to manually chosen destinations.
        """
        return next((policy.name for policy in self.isolation if policy.reserves(broker)), None)
