"""The bundles in a run's snapshot as columns, which are read when a strategy needs them."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_rebalancer.decide import stays
from pulsar_rebalancer.names import SYSTEM_NAMESPACE
from pulsar_rebalancer.run.bundle_columns import COLUMNS, Bundles, filled, in_order, served
from pulsar_rebalancer.run.tables import BUNDLES, NO_COSTS, TRAFFIC

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Collection, Iterable, Iterator

    from pulsar_rebalancer.decide.run_input import RunInput
    from pulsar_rebalancer.storage.path import StoragePath

REPORTED = pa.schema([field for field in BUNDLES if field.name in COLUMNS.names])
"""Columns of the bundles table that are kept in memory."""

OF_MEANS = ["cluster", "bundle", *TRAFFIC, "long_term_msg_rate"]
"""Columns of the means table that `with_means` needs."""

_NAMES = pa.schema([BUNDLES.field(name) for name in ("broker", "bundle")])


class _Reported(NamedTuple):
    """Bundles of the announced brokers, and the names of all bundles in the namespaces that `served` counts."""

    bundles: pa.Table
    counted: pa.Table


class RunBundles(Bundles):
    """The bundles that a run's brokers report, with their moving averages.

    To save time, the bundles are read and sorted while the means are computed.

    Args:
        means: function that waits for, and returns, the file with the moving averages after this sample.
        costs: the bundles' costs after this sample (`run.tables.BUNDLE_COSTS`), if they are learned.
    """

    def __init__(self, run: RunInput, means: Callable[[], StoragePath], costs: pa.Table = NO_COSTS) -> None:
        self._run = run
        self._means = means
        self._costs = costs
        self._announced: pa.Array[Any] | None = None

    def announce(self, brokers: Collection[str]) -> None:
        """Set the brokers whose bundles will be requested; bundles on other brokers are not loaded."""
        self._announced = pa.array(list(brokers), pa.string())

    def served(self, namespaces: Collection[str] | None = None) -> Counter[tuple[str, str]]:
        """Return the number of reported bundles for each namespace and broker.

        Args:
            namespaces: namespaces to count, such as those in anti-affinity groups; None for all.

        Raises:
            SnapshotError: the bundles table cannot be read.
        """
        if namespaces is not None:
            return served(self._reported.counted, namespaces)
        return served(_concatenated(self._batches(_NAMES), _NAMES), None)

    @cached_property
    def _table(self) -> pa.Table:
        reported, run = self._reported.bundles, self._run
        bundles = reported.append_column(
            "reason", stays.of_bundles(reported["bundle"], stays.BundleFacts.of(run, run.settings))
        )
        bundles = with_loads(bundles, self._costs)
        # A bundle that validation left out may have no means. Its figures are then 0, and it has a reason to stay.
        means = self._means().read_table(OF_MEANS)
        return filled(with_means(bundles, run.cluster, means))

    @cached_property
    def _reported(self) -> _Reported:
        held, counted = [], []
        for rows in self._batches(REPORTED):
            held.append(rows if self._announced is None else rows.filter(pc.is_in(rows["broker"], self._announced)))
            counts = pc.or_(pc.is_valid(rows["policy"]), pc.starts_with(rows["bundle"], f"{SYSTEM_NAMESPACE}/"))
            counted.append(rows.select(_NAMES.names).filter(counts))
        return _Reported(in_order(_concatenated(held, REPORTED)), _concatenated(counted, _NAMES))

    def _batches(self, columns: pa.Schema) -> Iterator[pa.Table]:
        for rows in self._run.batches("bundles", ["cluster", *columns.names]):
            yield rows.filter(pc.equal(rows["cluster"], pa.scalar(self._run.cluster))).select(columns.names)


def with_means(bundles: pa.Table, cluster: str, means: pa.Table) -> pa.Table:
    """Return the bundles in unchanged order, with their means.

    Each mean is inbound plus outbound traffic (msg/s or bytes/s), and null for a bundle without means.

    Args:
        bundles: a table with a column of bundle names.
        means: a means table.
    """
    known = means.filter(pc.equal(means["cluster"], pa.scalar(cluster)))
    at: Any = pc.index_in(bundles["bundle"], known["bundle"])
    for name in ("msg_rate", "msg_throughput"):
        bundles = bundles.append_column(name, pc.add(known[f"{name}_in"], known[f"{name}_out"]).take(at))
    return bundles.append_column("long_term_msg_rate", known["long_term_msg_rate"].take(at))


def with_loads(bundles: pa.Table, costs: pa.Table = NO_COSTS) -> pa.Table:
    """Return the bundles in unchanged order, with their loads, now and later; null for a bundle without costs."""
    at: Any = pc.index_in(bundles["bundle"], costs["bundle"])
    for name, rate in (("load_now", "quick_rate"), ("load_later", "hour_rate")):
        load = pc.multiply(*(costs[of].take(at).cast(pa.float64()) for of in (rate, "cost")))
        bundles = bundles.append_column(name, load)
    return bundles


def _concatenated(parts: Iterable[pa.Table], columns: pa.Schema) -> pa.Table:
    return pa.concat_tables([columns.empty_table(), *parts])
