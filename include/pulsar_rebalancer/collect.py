"""Collect: ask the brokers, write down what they say. Nothing is decided here."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from pulsar_rebalancer import snapshot
from pulsar_rebalancer.errors import AdminError, SettingsError, SnapshotError
from pulsar_rebalancer.extensible import ReportCalls, load_reports
from pulsar_rebalancer.handover import shedding_is_on
from pulsar_rebalancer.load_report import broker_row, bundle_columns, names_of
from pulsar_rebalancer.policies import Policies, PolicyCalls, read_policies
from pulsar_rebalancer.resolution import RunParams, disagreements, from_brokers, resolve
from pulsar_rebalancer.run import RunRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from pulsar_rebalancer.clusters import ClusterEntry
    from pulsar_rebalancer.storage import Folder

log = logging.getLogger(__name__)

_NOT_THERE = frozenset({"unreachable", "timeout", "certificate_refused"})
_CREDENTIALS = frozenset({"unauthorized", "forbidden"})

Report = dict[str, Any]


class Admin(PolicyCalls, ReportCalls, Protocol):
    """What collect needs of the admin client; every call raises `AdminError`."""

    async def brokers(self) -> list[str]:
        """BrokerIds of the active brokers."""

    async def leader(self) -> str:
        """BrokerId of the leader; empty when there is none."""

    async def runtime_configuration(self, broker: str) -> dict[str, str]:
        """Effective settings of a broker, every value a text."""


@dataclass(frozen=True)
class Collected:
    """What one sample of a cluster holds.

    Attributes:
        request: who asked for what, and the effective settings.
        tables: `cluster`, `brokers` and `bundles`, as `snapshot.INPUT` describes them.
        policies: what policies say about its namespaces and brokers.
    """

    request: RunRequest
    tables: Mapping[str, pa.Table]
    policies: Policies


async def collect(
    admin: Admin,
    entry: ClusterEntry,
    params: RunParams,
    *,
    now: datetime,
    airflow_run_id: str,
    requested_by: str = "",
    kept_in: Folder | None = None,
) -> Collected:
    """Take one sample of a cluster.

    Settings are resolved before a load report is asked for: contradictions are refused first.

    Args:
        admin: the admin client of the cluster.
        entry: the cluster in the clusters file.
        params: those of a manual run.
        now: time of the sample.
        airflow_run_id: the DAG run.
        requested_by: who started a manual run.
        kept_in: the cluster's state folder, where is kept what brokers under the extensible load manager published.

    Raises:
        SettingsError: `wrong_setting` or `contradiction`.
        AdminError: the list of brokers, the leader or every broker's configuration cannot be read; the credentials
            are refused; `no_load_report` when the load manager gives none; `client_missing`, or the system topics of
            the extensible load manager cannot be read.
    """
    if entry.error:
        raise SettingsError("wrong_setting", f"cluster {entry.name}: {entry.error}")
    listings = Counter(await admin.brokers())
    brokers = sorted(listings)
    leader = await admin.leader()
    runtimes, failed = await _runtimes(admin, brokers)
    runtime = runtimes.get(leader) or next(iter(runtimes.values()), {})
    resolved = resolve(entry.given, from_brokers(runtime), params)
    asked = {broker: runtimes.get(broker, runtime) for broker in brokers if failed.get(broker) not in _NOT_THERE}
    answers = await load_reports(admin, asked, resolved.settings, now=now, kept_in=kept_in)
    reports, more = _sort_out(answers, brokers, runtime)
    errors = {broker: more.get(broker) or failed[broker] for broker in brokers if broker not in reports}
    columns = bundle_columns((broker, report["lastStats"]) for broker, report in reports.items())
    policies = await read_policies(
        admin,
        cluster=resolved.settings.pulsar_cluster,
        brokers=brokers,
        bundles=columns["bundle"],
        failure_domains=resolved.settings.failure_domains,
        without_persistent=_closed(reports),
    )
    request = RunRequest(
        cluster=entry.name,
        airflow_run_id=airflow_run_id,
        requested_by=requested_by,
        params=params,
        resolved=resolved,
        collected_at=now,
    )
    cluster_row = {
        "leader": leader,
        "leader_read": leader in runtimes,
        "load_manager": runtime.get("loadManagerClassName", "").rpartition(".")[2],
        "brokers_listed": len(brokers),
        "brokers_reported": len(reports),
        "bundles": len(columns["bundle"]),
        **_switches(runtimes.values()),
        "policies_readable": policies.readable,
        "policies_problem": None if policies.readable else policies.problem,
        "policies_unclear": policies.problem or None if policies.readable else None,
    }
    tables = {
        "cluster": _keyed([cluster_row], snapshot.CLUSTER, request),
        "brokers": _brokers(listings, reports, errors, policies, request),
        "bundles": _bundles(columns, policies, entry.name),
    }
    return Collected(request, tables, policies)


def save(collected: Collected, run: Folder) -> None:
    """Write a sample to `<run>/input/*.parquet`, `<run>/input/policies.json` and `<run>/input/settings.json`."""
    snapshot.write(run, collected.tables)
    collected.policies.write(run)
    collected.request.write(run)


async def _runtimes(admin: Admin, brokers: Sequence[str]) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """Configuration by broker that gave it, and reason codes of the others.

    Raises:
        AdminError: no broker gave its configuration, so neither settings nor switches are known.
    """

    async def ask(broker: str) -> dict[str, str] | AdminError:
        try:
            return await admin.runtime_configuration(broker)
        except AdminError as error:
            log.warning("%s", error)
            return error

    answers = dict(zip(brokers, await asyncio.gather(*map(ask, brokers)), strict=True))
    errors = {broker: answer for broker, answer in answers.items() if isinstance(answer, AdminError)}
    if errors and len(errors) == len(brokers):
        raise next(iter(errors.values()))
    runtimes = {broker: answer for broker, answer in answers.items() if not isinstance(answer, AdminError)}
    return runtimes, {broker: error.reason for broker, error in errors.items()}


def _sort_out(
    answers: Mapping[str, Report | AdminError | None], brokers: Sequence[str], runtime: Mapping[str, str]
) -> tuple[dict[str, Report], dict[str, str]]:
    """Reports that can be used, and reason codes of the brokers that gave none.

    Raises:
        AdminError: there is no report at all because of the credentials or the load manager.
    """
    reports: dict[str, Report] = {}
    errors: dict[str, str] = {}
    for broker, answer in answers.items():
        if isinstance(answer, AdminError):
            log.warning("%s", answer)
            errors[broker] = answer.reason
        elif answer is None:
            errors[broker] = "no_load_report"
        elif _is_of_another(answer, broker, brokers):
            log.warning("%s answered with the load report of %s", broker, " ".join(names_of(answer)))
            errors[broker] = "wrong_broker"
        elif not isinstance(answer.get("lastStats"), dict):
            errors[broker] = "bad_answer"
        else:
            reports[broker] = answer
    if not reports:
        _refuse_if_hopeless(answers, errors, runtime)
    return reports, errors


def _refuse_if_hopeless(
    answers: Mapping[str, Report | AdminError | None], errors: Mapping[str, str], runtime: Mapping[str, str]
) -> None:
    for answer in answers.values():
        if isinstance(answer, AdminError) and answer.reason in _CREDENTIALS:
            raise answer
    if "no_load_report" in errors.values():
        manager = runtime.get("loadManagerClassName", "of an unknown class")
        raise AdminError("no_load_report", f"no broker gives a load report: the load manager is {manager}")


def _is_of_another(report: Report, broker: str, brokers: Sequence[str]) -> bool:
    """Whether the report is certainly another listed broker's: a proxy or service answered in the broker's place."""
    names = {name.lower() for name in names_of(report)}
    return broker.lower() not in names and any(other.lower() in names for other in brokers)


def _closed(reports: Mapping[str, Report]) -> list[str]:
    """Brokers that take no persistent topics; none where no broker does: the cluster serves the other kind alone."""
    closed = [broker for broker, report in reports.items() if report.get("persistentTopicsEnabled") is False]
    return closed if len(closed) < len(reports) else []


def _switches(runtimes: Iterable[Mapping[str, str]]) -> dict[str, Any]:
    """Settings that more than one balancer or broker must agree on; one broker that differs is enough."""
    runtimes = list(runtimes)

    return {
        "builtin_shedding": any(map(shedding_is_on, runtimes)),
        "even_distribution": any(
            r.get("loadBalancerDistributeBundlesEvenlyEnabled", "").strip().lower() == "true" for r in runtimes
        ),
        "settings_in_disagreement": ",".join(disagreements(runtimes)),
    }


def _keyed(rows: Iterable[Mapping[str, Any]], schema: pa.Schema, request: RunRequest) -> pa.Table:
    key = {"cluster": request.cluster, "collected_at": request.collected_at}
    return snapshot.table([{**row, **key} for row in rows], schema)


def _brokers(
    listings: Mapping[str, int],
    reports: Mapping[str, Report],
    errors: Mapping[str, str],
    policies: Policies,
    request: RunRequest,
) -> pa.Table:
    interval = request.resolved.settings.host_usage_interval_minutes * 60
    rows = []
    for broker in sorted(listings):
        row: dict[str, Any] = {"broker": broker, "listings": listings[broker], "error": errors.get(broker)}
        row["reserved_by"] = policies.reserved_by(broker)
        if broker in reports:
            row |= broker_row(reports[broker], collected_at=request.collected_at, host_interval_s=interval)
        rows.append(row)
    return _keyed(rows, snapshot.BROKERS, request)


def _bundles(columns: dict[str, list[Any]], policies: Policies, cluster: str) -> pa.Table:
    names = columns["bundle"]
    owners = Counter(names)
    kinds = {name: policies.kind(name) for name in set(map(snapshot.namespace_of, owners))}
    policy = {name: kinds[snapshot.namespace_of(name)] for name in owners}
    complete = columns | {
        "cluster": [cluster] * len(names),
        "owners": [owners[name] for name in names],
        "policy": [policy[name] for name in names],
    }
    try:
        return pa.Table.from_pydict(complete, schema=snapshot.BUNDLES)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise SnapshotError("file_damaged", f"bundles do not fit their columns: {error}") from None
