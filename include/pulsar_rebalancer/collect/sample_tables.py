"""The tables `cluster`, `brokers` and `bundles` of one sample."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pulsar_rebalancer.collect.usable_reports import LONGEST_NAME
from pulsar_rebalancer.names import namespace_of
from pulsar_rebalancer.run.tables import BROKERS, BUNDLES, CLUSTER, Cell, table
from pulsar_rebalancer.texts import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pulsar_rebalancer.collect.runtimes import Runtimes
    from pulsar_rebalancer.collect.usable_reports import UsableReports
    from pulsar_rebalancer.policies.cluster_policies import Policies
    from pulsar_rebalancer.run.request import RunRequest


def owners_of(reported: pa.Table) -> Counter[str]:
    """Return how many brokers report each bundle, by bundle."""
    return Counter(_texts(reported["bundle"]))


def cluster_table(
    request: RunRequest, listed: int, runtimes: Runtimes, reports: UsableReports, bundles: int, policies: Policies
) -> pa.Table:
    """Return the table `cluster`, which has one row.

    Args:
        listed: number of brokers that the cluster lists.
        bundles: number of rows in the table `bundles`.
    """
    manager = runtimes.of_leader.get("loadManagerClassName", "").rpartition(".")[2]
    row = {
        "leader": runtimes.leader,
        "leader_read": runtimes.leader in runtimes.by_broker,
        "load_manager": one_line(manager, LONGEST_NAME),
        "brokers_listed": listed,
        "brokers_reported": len(reports.by_broker),
        "bundles": bundles,
        **runtimes.switches(),
        "policies_readable": policies.readable,
        "policies_problem": None if policies.readable else policies.problem,
        "policies_unclear": policies.problem or None if policies.readable else None,
    }
    return _with_key([row], CLUSTER, request)


def broker_table(
    request: RunRequest, listings: Mapping[str, int], reports: UsableReports, policies: Policies
) -> pa.Table:
    """Return the table `brokers`: one row per listed broker, including how many times that broker is listed."""
    rows = []
    for broker, times in sorted(listings.items()):
        row: dict[str, Cell] = {"broker": broker, "listings": times, "error": reports.errors.get(broker)}
        row["reserved_by"] = policies.reserved_by(broker)
        report = reports.by_broker.get(broker)
        rows.append({**row, **(report.columns if report else {})})
    return _with_key(rows, BROKERS, request)


def bundle_table(request: RunRequest, reported: pa.Table, owners: Mapping[str, int], policies: Policies) -> pa.Table:
    """Return the table `bundles`: the reported bundles, each with its number of owners and its kind of policy."""
    kinds = policies.kinds(set(map(namespace_of, owners)))
    names = _texts(reported["bundle"])
    columns: dict[str, pa.Array[Any] | pa.ChunkedArray[Any]] = {
        name: reported[name] for name in reported.column_names
    } | {
        "cluster": pa.array([request.cluster] * len(names), pa.string()),
        "owners": pa.array([owners[name] for name in names], pa.int64()),
        "policy": pa.array([kinds[namespace_of(name)] for name in names], pa.string()),
    }
    return pa.table([columns[name] for name in BUNDLES.names], schema=BUNDLES)


def _with_key(rows: Iterable[Mapping[str, Cell]], schema: pa.Schema, request: RunRequest) -> pa.Table:
    key: dict[str, Cell] = {"cluster": request.cluster, "collected_at": request.collected_at}
    return table([{**row, **key} for row in rows], schema)


def _texts(column: pa.ChunkedArray[Any]) -> list[str]:
    return [text for text in column.to_pylist() if text is not None]
