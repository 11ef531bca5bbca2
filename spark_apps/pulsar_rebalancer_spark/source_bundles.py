"""Bundles as columns on the driver: what strategies ask of each."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pulsar_rebalancer.names import is_of_brokers, regex_of
from pulsar_rebalancer.policies.cluster_policies import Policies
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.bundle_columns import COLUMNS
from pulsar_rebalancer.run.tables import BUNDLES, TRAFFIC
from pulsar_rebalancer.storage.path import damage_of, failures_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pulsar_rebalancer.config.settings import Settings
    from pulsar_rebalancer.storage.path import StoragePath
    from pulsar_rebalancer_spark.run_input import RunInput

Column: TypeAlias = Any
"""Of Arrow: its stubs tell an array and one in chunks apart."""

FREE = ""
"""Stands for the namespaces under no policy: for all of them the same holds."""

_READ = ["cluster", "broker", "bundle", "policy"]


class SourceBundles(NamedTuple):
    """What the brokers report.

    Attributes:
        bundles: of the sources; broker, bundle, policy.
        served: of all brokers, how many bundles of a namespace under a policy each reports, by broker and namespace.
    """

    bundles: pa.Table
    served: Counter[tuple[str, str]]


def read(run: RunInput, sources: Collection[str]) -> SourceBundles:
    """Return the bundles of a run that its sources report.

    Raises:
        SnapshotError: the bundles table cannot be read.
    """
    served: Counter[tuple[str, str]] = Counter()
    found = [pa.schema([BUNDLES.field(name) for name in _READ]).empty_table()]
    names, under_policies = pa.array(list(sources), pa.string()), run.policies != Policies()
    file = run.folder / "input" / "bundles.parquet"
    file_system, path = file.open()
    with failures_of(file.uri, "read"), damage_of(file.uri), pq.ParquetFile(path, filesystem=file_system) as held:
        # One part after the other: the driver never holds all bundles.
        for batch in held.iter_batches(columns=_READ):
            of_run = batch.filter(pc.equal(batch["cluster"], pa.scalar(run.cluster)))
            found.append(pa.table(of_run.filter(pc.is_in(of_run["broker"], names))))
            if under_policies:
                under = of_run.filter(pc.is_valid(of_run["policy"]))
                named = pa.table({"broker": under["broker"], "namespace": _namespaces(under["bundle"])})
                counted = named.group_by(["broker", "namespace"]).aggregate([([], "count_all")])
                served.update({(row["broker"], row["namespace"]): row["count_all"] for row in counted.to_pylist()})
    return SourceBundles(pa.concat_tables(found).drop_columns("cluster"), served)


def read_all(run: RunInput) -> pa.Table:
    """Return the bundles of a run by broker and name, all that brokers report of them (`strategies.bundles.COLUMNS`).

    `strategies.bundles.Bundles` would put them in order as well, but only once the means are there.

    Raises:
        SnapshotError: the bundles table cannot be read.
    """
    reported = [name for name in BUNDLES.names if name in COLUMNS.names]
    found = (run.folder / "input" / "bundles.parquet").read_table(["cluster", *reported])
    of_run = found.filter(pc.equal(found["cluster"], pa.scalar(run.cluster))).drop_columns("cluster")
    return of_run.sort_by([("broker", "ascending"), ("bundle", "ascending")])


def with_reason(
    bundles: pa.Table,
    settings: Settings,
    passed_over: Mapping[str, Reason],
    forbidden: Mapping[tuple[str, str], Reason],
) -> pa.Table:
    """Return bundles with `reason`: why each must stay whatever its traffic, else null.

    Args:
        bundles: broker, bundle, policy.
        settings: the namespaces and bundles that are excluded.
        passed_over: what the run knows against a bundle, by bundle.
        forbidden: why policies keep a namespace's bundles on a broker, by broker and namespace (`policies.forbidden`).
    """
    names: Column = bundles["bundle"]
    # Few are of brokers, so the specification itself is asked.
    may_be = pc.or_(pc.starts_with(names, "pulsar/"), pc.starts_with(names, "sla-monitor/"))
    of_brokers = {name: Reason.SYSTEM_NAMESPACE for name in names.filter(may_be).to_pylist() if is_of_brokers(name)}
    reasons = [_looked_up(names, of_brokers)]
    if settings.excluded_namespaces:
        reasons.append(
            _looked_up(_namespaces(names), dict.fromkeys(settings.excluded_namespaces, Reason.NAMESPACE_EXCLUDED))
        )
    if settings.excluded_bundles:
        pattern = f"^(?:{'|'.join(map(regex_of, settings.excluded_bundles))})$"
        excluded = pc.match_substring_regex(names, pattern)
        reasons.append(pc.if_else(excluded, pa.scalar(Reason.BUNDLE_EXCLUDED), pa.scalar(None, pa.string())))
    reasons.append(_looked_up(names, passed_over))
    if forbidden:
        reasons.append(_forbids(bundles, forbidden))
    return bundles.append_column("reason", pc.coalesce(*reasons))


def with_means(bundles: pa.Table, cluster: str, means: StoragePath, *further: str) -> pa.Table:
    """Return bundles with their mean traffic, in plus out: `msg_rate` (msg/s) and `msg_throughput` (bytes/s), in order.

    One that was left out and is not known has no mean: it carries 0, and has a reason to stay.

    Args:
        bundles: with their names.
        cluster: theirs.
        means: the file of means with this sample.
        further: columns of it that are wanted as they are.

    Raises:
        SnapshotError: the means cannot be read.
    """
    known = means.read_table(["cluster", "bundle", *TRAFFIC, *further])
    known = known.filter(pc.equal(known["cluster"], pa.scalar(cluster)))
    at: Column = pc.index_in(bundles["bundle"], known["bundle"])
    for name in ("msg_rate", "msg_throughput"):
        mean: Column = pc.add(known[f"{name}_in"], known[f"{name}_out"])
        bundles = bundles.append_column(name, pc.fill_null(mean.take(at), 0.0))
    for name in further:
        bundles = bundles.append_column(name, known[name].take(at))
    return bundles


def _namespaces(bundles: Column) -> Column:
    return pc.replace_substring_regex(bundles, "/[^/]*$", "")


def _looked_up(keys: Column, reasons: Mapping[str, Reason]) -> Column:
    """Return the reason of each key, null for one without."""
    at: Column = pc.index_in(keys, pa.array(list(reasons), pa.string()))
    return pa.array(list(reasons.values()), pa.string()).take(at)


def _forbids(bundles: pa.Table, forbidden: Mapping[tuple[str, str], Reason]) -> Column:
    namespace = pc.if_else(pc.is_null(bundles["policy"]), pa.scalar(FREE), _namespaces(bundles["bundle"]))
    keys = pc.binary_join_element_wise(bundles["broker"], namespace, " ")
    return _looked_up(keys, {" ".join(key): reason for key, reason in forbidden.items()})
