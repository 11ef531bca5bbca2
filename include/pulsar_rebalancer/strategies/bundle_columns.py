"""The bundles of a cluster as columns: a million of them stay Arrow until those of one broker are asked for."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_rebalancer.names import HEARTBEAT_NAMESPACE
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.tables import BUNDLES, TRAFFIC
from pulsar_rebalancer.strategies.sample import BundleSample
from pulsar_rebalancer.strategies.sums import one_by_one

if TYPE_CHECKING:
    from collections.abc import Collection

COLUMNS = pa.schema(
    {field.name: field.type for field in BUNDLES if field.name not in ("cluster", "owners")}
    | dict.fromkeys(("msg_rate", "msg_throughput", "long_term_msg_rate"), pa.float64())
    | {"reason": pa.string()}
)
"""Columns that strategies look at: the bundles table, the bundle's means, and why it must stay (`BundleSample`)."""

_FIGURES = (*TRAFFIC, "topics", "producers", "consumers", "cache_size", "msg_rate", "msg_throughput")


class Bundles:
    """All bundles that the brokers of one cluster report.

    Args:
        table: `COLUMNS`, in any order.
    """

    def __init__(self, table: pa.Table) -> None:
        found = table.select(COLUMNS.names).cast(COLUMNS)
        for name in _FIGURES:
            figures = pc.coalesce(found[name], pa.scalar(0, found[name].type))
            found = found.set_column(found.schema.get_field_index(name), name, figures)
        self._table = found.sort_by([("broker", "ascending"), ("bundle", "ascending")])
        counted = self._table.group_by("broker").aggregate([([], "count_all")]).sort_by("broker").to_pylist()
        bounds = pairwise(accumulate((row["count_all"] for row in counted), initial=0))
        self._rows_of = dict(zip((row["broker"] for row in counted), bounds, strict=True))
        self._found: dict[str, dict[str, BundleSample]] = {}

    def of(self, broker: str) -> list[BundleSample]:
        """Return the bundles that one broker reports, by name."""
        return list(self._of(broker).values())

    def find(self, broker: str, bundle: str) -> BundleSample:
        """Return one bundle of one broker.

        Raises:
            KeyError: the broker does not report it.
        """
        return self._of(broker)[bundle]

    def _of(self, broker: str) -> dict[str, BundleSample]:
        if broker not in self._found:
            start, end = self._rows_of.get(broker, (0, 0))
            rows = self._table.slice(start, end - start)
            columns = [_values(rows[name]) for name in BundleSample._fields[:-1]]
            reasons = [Reason(reason) if reason else None for reason in _values(rows["reason"])]
            samples = map(BundleSample._make, zip(*columns, reasons, strict=True))
            self._found[broker] = {sample.bundle: sample for sample in samples}
        return self._found[broker]

    def owners(self) -> dict[str, str]:
        """Return the broker that reports a bundle, by bundle; the last by name where two do."""
        return {row["bundle"]: row["broker"] for row in self._table.select(["bundle", "broker"]).to_pylist()}

    def served(self, namespaces: Collection[str] | None = None) -> Counter[tuple[str, str]]:
        """Return how many bundles of a namespace a broker reports, by namespace and broker.

        Args:
            namespaces: which ones are looked at; None for all.
        """
        namespace = pc.replace_substring_regex(self._table["bundle"], "/[^/]*$", "")
        named = self._table.select(["broker"]).append_column("namespace", namespace)
        if namespaces is not None:
            named = named.filter(pc.is_in(named["namespace"], pa.array(list(namespaces), pa.string())))
        counted = named.group_by(["namespace", "broker"]).aggregate([([], "count_all")])
        return Counter({(row["namespace"], row["broker"]): row["count_all"] for row in counted.to_pylist()})

    def long_term_msg_rates(self) -> dict[str, float]:
        """Return the long-term message rate of each broker, msg/s, over its bundles, heartbeat namespaces left out.

        Where no long-term mean is kept yet the short-term one counts.
        """
        heartbeat = pc.match_substring_regex(self._table["bundle"], f"^{HEARTBEAT_NAMESPACE}/[^/]*$")
        means = pc.coalesce(self._table["long_term_msg_rate"], self._table["msg_rate"])
        # Added up by name: the order decides the last digit, and the last digit a tie.
        rates = pc.if_else(heartbeat, 0.0, means).to_pylist()
        return {broker: one_by_one(rates[start:end]) for broker, (start, end) in self._rows_of.items()}


def _values(column: pa.ChunkedArray[Any]) -> list[Any]:
    """Return a column as Python has it; most are figures or empty, for which Arrow's own way is slow."""
    if column.null_count == len(column):
        return [None] * len(column)
    is_number = column.null_count == 0 and pa.types.is_primitive(column.type)
    return column.to_numpy().tolist() if is_number else column.to_pylist()
