"""Ask the brokers and write down what they say; nothing is decided here."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pulsar_rebalancer.admin.builtin_shedding import shedding_is_on, splitting_is_on
from pulsar_rebalancer.collect.extensible import load_reports
from pulsar_rebalancer.collect.split_candidates import read_candidates
from pulsar_rebalancer.config.enums import Mode
from pulsar_rebalancer.config.resolution import RunParams, disagreements, from_brokers, resolve
from pulsar_rebalancer.errors import AdminError, SettingsError, SnapshotError
from pulsar_rebalancer.names import namespace_of
from pulsar_rebalancer.policies.cluster_policies import Policies, read_isolation, read_policies
from pulsar_rebalancer.reasons import Reason, Trait
from pulsar_rebalancer.run import tables
from pulsar_rebalancer.run.request import RunRequest
from pulsar_rebalancer.run.splits import recently_split
from pulsar_rebalancer.run.topic_loads import Candidates
from pulsar_rebalancer.texts import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from pulsar_rebalancer.admin import PulsarAdmin
    from pulsar_rebalancer.collect.load_report import BrokerReport
    from pulsar_rebalancer.config.clusters_file import ClusterEntry
    from pulsar_rebalancer.config.settings import Settings
    from pulsar_rebalancer.state.state_documents import BundleSplit
    from pulsar_rebalancer.storage.path import StoragePath

_log = logging.getLogger(__name__)

_LONGEST_NAME = 200


@dataclass(frozen=True)
class Collected:
    """What one sample of a cluster holds.

    Attributes:
        request: who asked for what, and the effective settings.
        tables: `cluster`, `brokers` and `bundles`, as `tables.INPUT` describes them.
        policies: what policies say about its namespaces and brokers.
        candidates: what was read of bundles that may have to be split.
    """

    request: RunRequest
    tables: Mapping[str, pa.Table]
    policies: Policies
    candidates: Candidates = field(default_factory=Candidates)


async def collect(
    admin: PulsarAdmin,
    entry: ClusterEntry,
    params: RunParams,
    *,
    now: datetime,
    airflow_run_id: str,
    requested_by: str = "",
    state_folder: StoragePath | None = None,
    means: str = "",
    splits: Mapping[str, BundleSplit] | None = None,
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
        state_folder: where the means of bundles lie, and what brokers under the extensible load manager published.
        means: name of the file there with the means of the last counted sample; empty when there is none.
        splits: bundles that were split lately.

    Raises:
        SettingsError: `wrong_setting` or `contradiction`.
        AdminError: the list of brokers, the leader or every broker's configuration cannot be read; the credentials
            are refused; `no_load_report` when the load manager gives none; `client_missing`, or the system topics of
            the extensible load manager cannot be read.
    """
    if entry.error:
        raise SettingsError(Reason.WRONG_SETTING, f"cluster {entry.name}: {entry.error}")
    listings = Counter(await admin.brokers())
    brokers = sorted(listings)
    leader, (runtimes, failed) = await asyncio.gather(admin.leader(), _runtimes(admin, brokers))
    runtime = runtimes.get(leader) or next(iter(runtimes.values()), {})
    live = from_brokers(runtime)
    if any(map(splitting_is_on, runtimes.values())):
        live["auto_split"] = "true"  # one broker that splits is enough
    resolved = resolve(entry.given, live, params)
    silent = {broker for broker, reason in failed.items() if reason.has(Trait.NO_ANSWER)}
    asked = {broker: runtimes.get(broker, runtime) for broker in brokers if broker not in silent}
    answers, isolation = await asyncio.gather(
        load_reports(admin, asked, resolved.settings, now=now, state_folder=state_folder),
        read_isolation(admin, resolved.settings.pulsar_cluster),
    )
    reports, refused = _usable(answers, brokers, runtime)
    errors = {broker: refused.get(broker) or failed[broker] for broker in brokers if broker not in reports}
    bundles = pa.concat_tables([report.bundles for report in reports.values()] or [tables.BUNDLES.empty_table()])
    owners = Counter(_texts(bundles["bundle"]))
    policies = await read_policies(
        admin,
        isolation,
        brokers=brokers,
        bundles=owners,
        failure_domains=resolved.settings.failure_domains,
        without_persistent=_without_persistent(reports),
        answering=list(reports),
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
        "load_manager": one_line(runtime.get("loadManagerClassName", "").rpartition(".")[2], _LONGEST_NAME),
        "brokers_listed": len(brokers),
        "brokers_reported": len(reports),
        "bundles": bundles.num_rows,
        **_switches(runtimes.values()),
        "policies_readable": policies.readable,
        "policies_problem": None if policies.readable else policies.problem,
        "policies_unclear": policies.problem or None if policies.readable else None,
    }
    by_name = {
        "cluster": _with_key([cluster_row], tables.CLUSTER, request),
        "brokers": _brokers(listings, reports, errors, policies, request),
        "bundles": _bundles(bundles, owners, policies, entry.name),
    }
    known = _long_term_means(state_folder, means, resolved.settings)
    grace = resolved.settings.split_grace_minutes
    candidates = await read_candidates(
        admin,
        by_name["bundles"],
        known,
        resolved.settings,
        waits=lambda bundle: recently_split(bundle, splits or {}, now, grace),
    )
    return Collected(request, by_name, policies, candidates)


def save(collected: Collected, run: StoragePath) -> None:
    """Write a sample to `<run>/input/*.parquet`, `<run>/input/policies.json` and `<run>/input/settings.json`."""
    tables.write(run, collected.tables)
    collected.policies.write(run)
    if collected.candidates.bundles:
        collected.candidates.write(run)
    collected.request.write(run)


def _long_term_means(folder: StoragePath | None, name: str, settings: Settings) -> pa.Table | None:
    """Return the long-term means by bundle, if they decide what is split: the modular load manager's conditions."""
    if settings.split_mode is Mode.OFF or folder is None or not name:
        return None
    try:
        found = (folder / name).read_table()
    except SnapshotError as error:  # gone: bundles start anew with this sample
        _log.warning("%s", error)
        return None
    for name in tables.LONG_TERM:  # files of earlier releases lack them
        if name not in found.column_names:
            found = found.append_column(name, pa.nulls(found.num_rows, pa.float64()))
    return found.select(["bundle", *tables.LONG_TERM])


async def _runtimes(admin: PulsarAdmin, brokers: Sequence[str]) -> tuple[dict[str, dict[str, str]], dict[str, Reason]]:
    """Return the configuration by broker that gave it, and reason codes of the others.

    Raises:
        AdminError: no broker gave its configuration, so neither settings nor switches are known.
    """

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
    runtimes = {broker: answer for broker, answer in answers.items() if not isinstance(answer, AdminError)}
    return runtimes, {broker: error.reason for broker, error in errors.items()}


def _usable(
    answers: Mapping[str, BrokerReport | AdminError | None], brokers: Sequence[str], runtime: Mapping[str, str]
) -> tuple[dict[str, BrokerReport], dict[str, Reason]]:
    """Return the reports that can be used, and why there is none of the other brokers.

    Raises:
        AdminError: there is no report at all because of the credentials or the load manager.
    """
    reports: dict[str, BrokerReport] = {}
    refused: dict[str, Reason] = {}
    for broker, answer in answers.items():
        if isinstance(answer, AdminError):
            _log.warning("%s", answer)
            refused[broker] = answer.reason
        elif answer is None:
            refused[broker] = Reason.NO_LOAD_REPORT
        elif _is_of_another(answer, broker, brokers):
            names = one_line(" ".join(answer.names), _LONGEST_NAME)
            _log.warning("%s answered with the load report of %s", broker, names)
            refused[broker] = Reason.WRONG_BROKER
        else:
            reports[broker] = answer
    if not reports:
        _refuse_if_hopeless(answers, refused, runtime)
    return reports, refused


def _refuse_if_hopeless(
    answers: Mapping[str, BrokerReport | AdminError | None],
    refused: Mapping[str, Reason],
    runtime: Mapping[str, str],
) -> None:
    for answer in answers.values():
        if isinstance(answer, AdminError) and answer.reason.has(Trait.CREDENTIALS):
            raise answer
    if Reason.NO_LOAD_REPORT in refused.values():
        manager = one_line(runtime.get("loadManagerClassName", "of an unknown class"), _LONGEST_NAME)
        raise AdminError(Reason.NO_LOAD_REPORT, f"no broker gives a load report: the load manager is {manager}")


def _is_of_another(report: BrokerReport, broker: str, brokers: Sequence[str]) -> bool:
    """Return whether the report is certainly another listed broker's: a proxy answered in the broker's place."""
    names = {name.lower() for name in report.names}
    return broker.lower() not in names and any(other.lower() in names for other in brokers)


def _without_persistent(reports: Mapping[str, BrokerReport]) -> list[str]:
    """Return the brokers that take no persistent topics; none where no broker does: the cluster serves no such."""
    closed = [broker for broker, report in reports.items() if not report.takes_persistent_topics]
    return closed if len(closed) < len(reports) else []


def _switches(runtimes: Iterable[Mapping[str, str]]) -> dict[str, bool | str]:
    """Return the settings that more than one balancer or broker must agree on; one broker that differs is enough."""
    runtimes = list(runtimes)
    return {
        "builtin_shedding": any(map(shedding_is_on, runtimes)),
        "even_distribution": any(
            r.get("loadBalancerDistributeBundlesEvenlyEnabled", "").strip().lower() == "true" for r in runtimes
        ),
        "settings_in_disagreement": ",".join(disagreements(runtimes)),
    }


def _with_key(rows: Iterable[Mapping[str, tables.Cell]], schema: pa.Schema, request: RunRequest) -> pa.Table:
    key: dict[str, tables.Cell] = {"cluster": request.cluster, "collected_at": request.collected_at}
    return tables.table([{**row, **key} for row in rows], schema)


def _brokers(
    listings: Mapping[str, int],
    reports: Mapping[str, BrokerReport],
    errors: Mapping[str, Reason],
    policies: Policies,
    request: RunRequest,
) -> pa.Table:
    rows = []
    for broker, times in sorted(listings.items()):
        row: dict[str, tables.Cell] = {"broker": broker, "listings": times, "error": errors.get(broker)}
        row["reserved_by"] = policies.reserved_by(broker)
        rows.append({**row, **(reports[broker].columns if broker in reports else {})})
    return _with_key(rows, tables.BROKERS, request)


def _bundles(reported: pa.Table, owners: Mapping[str, int], policies: Policies, cluster: str) -> pa.Table:
    kinds = {name: policies.kind(name) for name in set(map(namespace_of, owners))}
    names = _texts(reported["bundle"])
    columns: dict[str, pa.Array[Any] | pa.ChunkedArray[Any]] = {
        name: reported[name] for name in reported.column_names
    } | {
        "cluster": pa.array([cluster] * len(names), pa.string()),
        "owners": pa.array([owners[name] for name in names], pa.int64()),
        "policy": pa.array([kinds[namespace_of(name)] for name in names], pa.string()),
    }
    return pa.table([columns[name] for name in tables.BUNDLES.names], schema=tables.BUNDLES)


def _texts(column: pa.ChunkedArray[Any]) -> list[str]:
    return [text for text in column.to_pylist() if text is not None]
