"""Read a cluster's policies and its brokers' runtime configuration."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle

from pydantic import JsonValue

from pulsar_rebalancer.config.clusters_file import differing_settings, live_settings
from pulsar_rebalancer.errors import AdminError
from pulsar_rebalancer.isolation import IsolationPolicy, Policies, parse_isolation, policies_of, policy_problem
from pulsar_rebalancer.names import namespace_of
from pulsar_rebalancer.pulsar import PulsarAdmin
from pulsar_rebalancer.pulsar.client import shedding_is_on, splitting_is_on
from pulsar_rebalancer.reasons import Reason, Trait
from pulsar_rebalancer.texts import one_line

_NAMESPACE = re.compile(r"[^/:]+/[^/:]+")
_MAX_NAMED = 3
_MAX_ASKED_BROKERS = 8
"""Maximum number of brokers that share the namespace requests. One broker takes seconds for a thousand requests."""


@dataclass(frozen=True, slots=True)
class ClusterIsolation:
    cluster: str
    policies: tuple[IsolationPolicy, ...]


async def read_isolation(admin: PulsarAdmin) -> ClusterIsolation | AdminError:
    try:
        cluster = await admin.cluster_name()
        return ClusterIsolation(cluster, parse_isolation(await admin.isolation_policies(cluster)))
    except AdminError as error:
        return error


async def read_policies(
    admin: PulsarAdmin,
    isolation_read: ClusterIsolation | AdminError,
    *,
    brokers: Sequence[str],
    bundles: Iterable[str],
    reads_failure_domains: bool = False,
    without_persistent: Collection[str] = (),
    responding_brokers: Sequence[str] = (),
) -> Policies:
    """Read the policies for these brokers and bundles. If one request fails, the other policies are still read.

    Args:
        brokers: brokerIds of all active brokers.
        bundles: names of the loaded bundles; namespaces without loaded bundles are skipped.
        reads_failure_domains: True to read failure domains, across which anti-affinity groups are spread first.
        without_persistent: brokers that, according to their load reports, accept no persistent topics.
        responding_brokers: brokers that have just responded; some of them get the namespace requests.
    """
    namespaces = sorted({name for name in set(map(namespace_of, bundles)) if _is_user_namespace(name)})
    if isinstance(isolation_read, AdminError):
        unread = dict.fromkeys(namespaces, str(isolation_read.reason))
        return Policies(unknown=unread, readable=False, problem=f"isolation policies cannot be read: {isolation_read}")
    isolation = isolation_read.policies
    ruling = policies_of(isolation, namespaces)
    unknown = {name: why for name in namespaces if (why := policy_problem(isolation, name, ruling[name]))}
    problems = [f"{why}, so bundles of {_name_list(names)} stay" for why, names in _names_by_text(unknown)]
    problems += _policy_problems(isolation, brokers, [policy for name, policy in ruling.items() if name not in unknown])
    groups, failed = await _read_anti_affinity_groups(admin, namespaces, responding_brokers[:_MAX_ASKED_BROKERS])
    if failed:
        unknown |= {name: error.reason for name, error in failed.items()}
        first_error = next(iter(failed.values()))
        problems.append(f"anti-affinity groups cannot be read, so bundles of {_name_list(failed)} stay: {first_error}")
    domains: dict[str, str] = {}
    if reads_failure_domains and groups:
        try:
            domains = _domain_by_broker(await admin.failure_domains(isolation_read.cluster))
        except AdminError as error:
            unknown |= dict.fromkeys(groups, error.reason)
            problems.append(f"failure domains cannot be read, so bundles of {_name_list(groups)} cannot move: {error}")
    return Policies(
        isolation=isolation,
        groups=groups,
        domains=domains,
        unknown=unknown,
        without_persistent=tuple(sorted(without_persistent)),
        readable=not namespaces or len(unknown) < len(namespaces),
        problem=one_line("; ".join(problems)),
    )


async def _read_anti_affinity_groups(
    admin: PulsarAdmin, namespaces: Sequence[str], brokers: Sequence[str]
) -> tuple[dict[str, str], dict[str, AdminError]]:
    async def ask(namespace: str, broker: str) -> str | AdminError:
        try:
            return await admin.anti_affinity_group(namespace, broker)
        except AdminError as error:
            if broker and error.reason.has(Trait.NO_ANSWER):
                return await ask(namespace, "")
            # The namespace was deleted after its bundles were reported.
            return "" if error.reason == Reason.NOT_FOUND else error

    asked = zip(namespaces, cycle(brokers or [""]))
    answers = dict(zip(namespaces, await asyncio.gather(*(ask(*pair) for pair in asked)), strict=True))
    failed = {name: answer for name, answer in answers.items() if isinstance(answer, AdminError)}
    return {name: answer for name, answer in answers.items() if isinstance(answer, str) and answer.strip()}, failed


def _domain_by_broker(document: Mapping[str, JsonValue]) -> dict[str, str]:
    domain_of: dict[str, str] = {}
    for name, domain in document.items():
        brokers = domain.get("brokers") if isinstance(domain, dict) else None
        domain_of |= {broker: name for broker in _as_list(brokers) if isinstance(broker, str)}
    return domain_of


def _as_list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _policy_problems(
    policies: Sequence[IsolationPolicy], brokers: Sequence[str], matches: Sequence[IsolationPolicy | None]
) -> Iterator[str]:
    """Yield a sentence for each policy, or lack of one, that leaves a loaded namespace without an active broker."""
    names = {policy.name for policy in matches if policy}
    for policy in policies:
        if policy.name in names and not policy.allowed_brokers(brokers):
            yield f"isolation policy {policy.name[:80]!r} has no active broker, so bundles of its namespaces stay"
    if None in matches and brokers and all(any(policy.reserves(broker) for policy in policies) for broker in brokers):
        yield "isolation policies reserve all brokers, so bundles of namespaces without a policy cannot move"


def _names_by_text(texts: Mapping[str, str]) -> list[tuple[str, list[str]]]:
    names: dict[str, list[str]] = {}
    for name, text in texts.items():
        names.setdefault(text, []).append(name)
    return list(names.items())


def _name_list(names: Collection[str]) -> str:
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return ", ".join(sorted(names)[:_MAX_NAMED]) + more


def _is_user_namespace(namespace: str) -> bool:
    """Return whether a namespace belongs to users. Heartbeat and SLA namespaces have a `:` or three parts."""
    return _NAMESPACE.fullmatch(namespace) is not None and namespace != "pulsar/system"


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Runtimes:
    """The runtime configuration of a cluster's brokers; `leader` is empty if there is none."""

    leader: str
    configs: Mapping[str, Mapping[str, str]]
    error_by_broker: Mapping[str, Reason]

    @property
    def leader_config(self) -> Mapping[str, str]:
        """Return the leader's configuration, or another broker's if the leader's could not be read."""
        return self.configs.get(self.leader) or next(iter(self.configs.values()), {})

    def cluster_settings(self) -> dict[str, str]:
        splits = any(map(splitting_is_on, self.configs.values()))
        return live_settings(self.leader_config) | ({"auto_split": "true"} if splits else {})

    def config_by_responding_broker(self) -> dict[str, Mapping[str, str]]:
        """Return each broker that responded, even with an error, and its configuration (the leader's if unknown)."""
        others = {broker for broker, reason in self.error_by_broker.items() if not reason.has(Trait.NO_ANSWER)}
        return {broker: self.configs.get(broker, self.leader_config) for broker in sorted(others | {*self.configs})}

    def table_columns(self) -> dict[str, bool | str]:
        """Return the table `cluster`'s columns of brokers' settings: a flag is true if any broker has it on."""
        runtimes = self.configs.values()
        even = (runtime.get("loadBalancerDistributeBundlesEvenlyEnabled", "") for runtime in runtimes)
        return {
            "builtin_shedding": any(map(shedding_is_on, runtimes)),
            "even_distribution": any(value.strip().lower() == "true" for value in even),
            "settings_in_disagreement": ",".join(differing_settings(runtimes)),
        }


async def read_runtimes(admin: PulsarAdmin, brokers: Sequence[str]) -> Runtimes:
    """Read the leader and every broker's configuration. Raises AdminError without a leader or a configuration."""
    leader, (by_broker, failed) = await asyncio.gather(admin.leader(), _configs_and_errors(admin, brokers))
    return Runtimes(leader, by_broker, failed)


async def _configs_and_errors(
    admin: PulsarAdmin, brokers: Sequence[str]
) -> tuple[dict[str, dict[str, str]], dict[str, Reason]]:
    async def ask(broker: str) -> dict[str, str] | AdminError:
        try:
            return await admin.runtime_configuration(broker)
        except AdminError as error:
            _log.warning("%s", error)
            return error

    answers = dict(zip(brokers, await asyncio.gather(*map(ask, brokers)), strict=True))
    errors = {broker: answer for broker, answer in answers.items() if isinstance(answer, AdminError)}
    if errors and len(errors) == len(brokers):
        raise next(iter(errors.values()))
    by_broker = {broker: answer for broker, answer in answers.items() if not isinstance(answer, AdminError)}
    return by_broker, {broker: error.reason for broker, error in errors.items()}
