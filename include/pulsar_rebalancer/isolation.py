"""Namespace isolation policies: which brokers are for which namespaces, read the way Java reads them."""

from __future__ import annotations

import re
import warnings
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# Java reads `[a[b]]` as a union and `[a&&b]` as an intersection, Python does not and says nothing.
_JAVA_SETS = re.compile(r"\[[^\]]*(?:\[|&&)")
_PATTERNS = ("namespaces", "primary", "secondary")
_FAILOVER = "auto_failover_policy"


class IsolationPolicy(BaseModel):
    """One namespace isolation policy.

    Attributes:
        name: its name.
        namespaces: patterns of `tenant/namespace`.
        primary: patterns of the hosts of the brokers that it reserves for its namespaces.
        secondary: patterns of the hosts that help out.
        min_limit: primary brokers below which the secondary ones help out.
        problems: what is wrong with a part, by the part's name in Pulsar's document; the parts above then hold what
            could be read of it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    namespaces: tuple[str, ...] = ()
    primary: tuple[str, ...] = ()
    secondary: tuple[str, ...] = ()
    min_limit: int = 0
    problems: dict[str, str] = {}

    def covers(self, namespace: str) -> bool:
        """Whether `tenant/namespace` is under the policy (NamespaceIsolationPolicyImpl: the whole name matches)."""
        return _matches(self.namespaces, namespace)

    def reserves(self, broker: str) -> bool:
        """Whether the broker's host, without its port, is a primary one."""
        return _matches(self.primary, host_of(broker))

    def candidates(self, brokers: Sequence[str]) -> list[str]:
        """Brokers for the policy's namespaces (LoadManagerShared.applyNamespacePolicies, MinAvailablePolicy).

        Args:
            brokers: all active brokers; the failover counts them.
        """
        primary = [broker for broker in brokers if self.reserves(broker)]
        if len(primary) >= self.min_limit:
            return primary
        return [b for b in brokers if self.reserves(b) or _matches(self.secondary, host_of(b))]


def host_of(broker: str) -> str:
    """A brokerId without its port."""
    return broker.rpartition(":")[0]


def parse_isolation(document: Mapping[str, Any]) -> tuple[IsolationPolicy, ...]:
    """The policies of `namespaceIsolationPolicies` in Pulsar's order: the first that covers a namespace rules it."""
    return tuple(_policy(name, policy) for name, policy in document.items())


def policy_of(policies: Iterable[IsolationPolicy], namespace: str) -> IsolationPolicy | None:
    """The policy that rules a namespace, as far as policies could be read; None when none does."""
    return next((policy for policy in policies if policy.covers(namespace)), None)


def doubt(policies: Sequence[IsolationPolicy], namespace: str) -> str:
    """Why it cannot be told which brokers a namespace may be on; empty when it can.

    A policy whose namespaces cannot be read may rule every namespace that no earlier one rules. Brokers that cannot be
    read may be any, so the brokers left for the namespaces under no policy are unknown as well.
    """
    for policy in policies:
        if policy.covers(namespace):
            return next((text for part, text in policy.problems.items() if part != "namespaces"), "")
        if "namespaces" in policy.problems:
            return policy.problems["namespaces"]
    return next((policy.problems["primary"] for policy in policies if "primary" in policy.problems), "")


class _Part(NamedTuple):
    value: Any
    problem: str


def _policy(name: str, policy: object) -> IsolationPolicy:
    if not isinstance(policy, dict):
        problem = f"isolation policy {name!r} is no JSON object"
        return IsolationPolicy(name=name, problems=dict.fromkeys((*_PATTERNS, _FAILOVER), problem))
    parts = {key: _patterns(policy.get(key) or []) for key in _PATTERNS}
    failover = _min_limit(policy.get(_FAILOVER))
    problems = {key: part.problem for key, part in (parts | {_FAILOVER: failover}).items() if part.problem}
    return IsolationPolicy(
        name=name,
        **{key: part.value for key, part in parts.items()},
        min_limit=failover.value,
        problems={key: f"isolation policy {name!r}: {key}: {problem}" for key, problem in problems.items()},
    )


def _patterns(given: object) -> _Part:
    if not isinstance(given, list) or not all(isinstance(pattern, str) for pattern in given):
        return _Part((), "no list of texts")
    unreadable = [pattern for pattern in given if not _is_readable(pattern)]
    problem = f"{unreadable[0][:80]!r} is no pattern that can be read here" if unreadable else ""
    return _Part(tuple(pattern for pattern in given if pattern not in unreadable), problem)


def _is_readable(pattern: str) -> bool:
    if _JAVA_SETS.search(pattern):
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)
            _compiled(pattern)
    except (re.error, FutureWarning, OverflowError, RecursionError):
        return False
    return True


def _min_limit(given: object) -> _Part:
    if given is None:
        return _Part(0, "")
    if not isinstance(given, dict) or given.get("policy_type") != "min_available":
        return _Part(0, "no policy of type min_available")
    parameters = given.get("parameters")
    limit = parameters.get("min_limit") if isinstance(parameters, dict) else None
    try:
        return _Part(int(str(limit)), "")
    except ValueError:
        return _Part(0, f"min_limit {limit!r} is no whole number")


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII)


def _matches(patterns: Sequence[str], text: str) -> bool:
    return any(_compiled(pattern).fullmatch(text) for pattern in patterns)
