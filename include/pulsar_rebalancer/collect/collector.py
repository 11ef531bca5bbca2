"""Collect the brokers' reports and write them to a run's folder. This module makes no decisions."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from pulsar_rebalancer.collect.broker_settings import Runtimes, read_isolation, read_policies, read_runtimes
from pulsar_rebalancer.collect.extensible_reports import read_load_reports
from pulsar_rebalancer.collect.load_report import MAX_NAME_CHARS, UsableReports
from pulsar_rebalancer.collect.split_candidates import read_candidates
from pulsar_rebalancer.config.clusters_file import ClusterEntry, RunParams
from pulsar_rebalancer.config.field_types import Mode
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.errors import SettingsError
from pulsar_rebalancer.isolation import Policies
from pulsar_rebalancer.names import namespace_of
from pulsar_rebalancer.pulsar import PulsarAdmin
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run import tables
from pulsar_rebalancer.run.plan import was_recently_split
from pulsar_rebalancer.run.request import RunRequest
from pulsar_rebalancer.run.snapshot import SplitCandidates, StateBefore
from pulsar_rebalancer.run.tables import BROKERS, BUNDLES, CLUSTER, Cell, table
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer.strategies.shedders.registry import resolve
from pulsar_rebalancer.texts import one_line


def report_count_by_bundle(bundles: pa.Table) -> Counter[str]:
    return Counter(_non_null_texts(bundles["bundle"]))


def cluster_table(
    request: RunRequest, broker_count: int, runtimes: Runtimes, reports: UsableReports, bundles: int, policies: Policies
) -> pa.Table:
    """Return the table `cluster` with its one row. `broker_count` is the number of brokers that the cluster lists."""
    manager = runtimes.leader_config.get("loadManagerClassName", "").rpartition(".")[2]
    row = {
        "leader": runtimes.leader,
        "leader_read": runtimes.leader in runtimes.configs,
        "load_manager": one_line(manager, MAX_NAME_CHARS),
        "brokers_listed": broker_count,
        "brokers_reported": len(reports.reports),
        "bundles": bundles,
        **runtimes.table_columns(),
        "policies_readable": policies.readable,
        "policies_problem": None if policies.readable else policies.problem,
        "policies_unclear": policies.problem or None if policies.readable else None,
    }
    return _table_with_sample_key([row], CLUSTER, request)


def broker_table(
    request: RunRequest, listing_counts: Mapping[str, int], reports: UsableReports, policies: Policies
) -> pa.Table:
    rows = []
    for broker, times in sorted(listing_counts.items()):
        row: dict[str, Cell] = {"broker": broker, "listings": times, "error": reports.error_by_broker.get(broker)}
        row["reserved_by"] = policies.reserving_policy(broker)
        report = reports.reports.get(broker)
        rows.append({**row, **(report.broker_columns if report else {})})
    return _table_with_sample_key(rows, BROKERS, request)


def bundle_table(request: RunRequest, bundles: pa.Table, counts: Mapping[str, int], policies: Policies) -> pa.Table:
    kinds = policies.policy_kind_by_namespace(set(map(namespace_of, counts)))
    names = _non_null_texts(bundles["bundle"])
    columns: dict[str, pa.Array[Any] | pa.ChunkedArray[Any]] = {
        name: bundles[name] for name in bundles.column_names
    } | {
        "cluster": pa.array([request.cluster] * len(names), pa.string()),
        "owners": pa.array([counts[name] for name in names], pa.int64()),
        "policy": pa.array([kinds[namespace_of(name)] for name in names], pa.string()),
    }
    return pa.table([columns[name] for name in BUNDLES.names], schema=BUNDLES)


def _table_with_sample_key(rows: Iterable[Mapping[str, Cell]], schema: pa.Schema, request: RunRequest) -> pa.Table:
    key: dict[str, Cell] = {"cluster": request.cluster, "collected_at": request.collected_at}
    return table([{**row, **key} for row in rows], schema)


def _non_null_texts(column: pa.ChunkedArray[Any]) -> list[str]:
    return [text for text in column.to_pylist() if text is not None]


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunTrigger:
    """The event that started a run. `requested_by` is empty for scheduled runs."""

    now: datetime
    airflow_run_id: str
    run_params: RunParams = field(default_factory=RunParams)
    requested_by: str = ""


@dataclass(frozen=True, slots=True)
class EarlierData:
    """Data from earlier runs.

    `state_folder` has the moving averages and the extensible load manager's load data; None for neither. If
    `stores_load_data`, the load data is stored for the next run.
    """

    state_folder: StoragePath | None = None
    state_before: StateBefore = field(default_factory=StateBefore)
    stores_load_data: bool = True

    def long_term_means(self, settings: Settings) -> pa.Table | None:
        if settings.split_mode is Mode.OFF or self.state_folder is None:
            return None
        means = tables.find_state_table(self.state_folder, self.state_before.decision.means, tables.MEANS)
        return means.read_table(["bundle", *tables.LONG_TERM_RATES]) if means else None


@dataclass(frozen=True)
class Sample:
    """One sample of a cluster.

    `request` has the effective settings, `tables.INPUT` describes the tables, and `state_before` has the state
    store's documents at the time of the sample.
    """

    request: RunRequest
    input_tables: Mapping[str, pa.Table]
    policies: Policies
    state_before: StateBefore
    split_candidates: SplitCandidates = field(default_factory=SplitCandidates)


NO_EARLIER_DATA = EarlierData()


async def collect_sample(
    admin: PulsarAdmin, entry: ClusterEntry, trigger: RunTrigger, history: EarlierData = NO_EARLIER_DATA
) -> Sample:
    """Take one sample of a cluster. Settings are resolved first, so invalid ones are rejected early.

    Raises:
        SettingsError: `wrong_setting` or `contradiction`.
        AdminError: brokers, leader or system topics cannot be read; `no_load_report`; `wrong_setting`.
    """
    begun = time.monotonic()
    if entry.error:
        raise SettingsError(Reason.WRONG_SETTING, f"cluster {entry.name}: {entry.error}")
    listings = Counter(await admin.brokers())
    brokers = sorted(listings)
    runtimes = await read_runtimes(admin, brokers)
    request = _run_request(entry, trigger, runtimes.cluster_settings())
    settings = request.resolved.settings
    answers, isolation = await asyncio.gather(
        read_load_reports(
            admin,
            runtimes.config_by_responding_broker(),
            settings,
            now=trigger.now + timedelta(seconds=time.monotonic() - begun),
            state_folder=history.state_folder,
            store=history.stores_load_data,
        ),
        read_isolation(admin),
    )
    reports = UsableReports.from_answers(answers, brokers, runtimes)
    reported = reports.bundle_table()
    owners = report_count_by_bundle(reported)
    policies = await read_policies(
        admin,
        isolation,
        brokers=brokers,
        bundles=owners,
        reads_failure_domains=settings.failure_domains,
        without_persistent=reports.non_persistent_only_brokers,
        responding_brokers=list(reports.reports),
    )
    bundles = bundle_table(request, reported, owners, policies)
    by_name = {
        "cluster": cluster_table(request, len(brokers), runtimes, reports, bundles.num_rows, policies),
        "brokers": broker_table(request, listings, reports, policies),
        "bundles": bundles,
    }
    candidates = await _read_split_candidates(admin, bundles, request, history)
    return Sample(request, by_name, policies, history.state_before, candidates)


def _run_request(entry: ClusterEntry, trigger: RunTrigger, broker_settings: Mapping[str, str]) -> RunRequest:
    return RunRequest(
        cluster=entry.name,
        airflow_run_id=trigger.airflow_run_id,
        requested_by=trigger.requested_by,
        params=trigger.run_params,
        resolved=resolve(entry.given, broker_settings, trigger.run_params),
        collected_at=trigger.now,
    )


async def _read_split_candidates(
    admin: PulsarAdmin, bundles: pa.Table, request: RunRequest, history: EarlierData
) -> SplitCandidates:
    settings, splits = request.resolved.settings, history.state_before.moves.splits
    means, now = history.long_term_means(settings), request.collected_at
    return await read_candidates(admin, bundles, means, settings, lambda name: was_recently_split(name, splits, now))


def write_sample(sample: Sample, run: StoragePath) -> None:
    tables.write(run, sample.input_tables)
    sample.policies.write(run)
    if sample.split_candidates.bundles:
        sample.split_candidates.write(run)
    sample.request.write(run)
    sample.state_before.write(run)
