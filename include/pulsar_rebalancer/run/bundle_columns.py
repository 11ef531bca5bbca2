"""A cluster's bundles as Arrow columns, and their moving averages. Only requested brokers' bundles become objects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, get_args, get_type_hints

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_rebalancer.names import HEARTBEAT_NAMESPACE
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.tables import LONG_TERM_RATES, TRAFFIC, Measure, Row, java_sum


class BundleSample(NamedTuple):
    """One bundle on the broker that reports it. A tuple is created five times faster than an object.

    Rates are in msg/s, throughput in bytes/s, and `cache_size` is in bytes.

    Attributes:
        bundle: `tenant/namespace/0x…_0x…`.
        top_rank: position in its broker's own list of top bundles; extensible load manager only.
        policy: the kind of policy that applies to the bundle's namespace; None if none does.
        msg_rate, msg_throughput: short-term moving averages, inbound plus outbound.
        long_term_msg_rate: long-term moving average; None if it is not known yet.
        load: inbound plus outbound traffic to expect, weighted by the cost of its messages (msg/s or kB/s at
            average cost); 0 if the strategy learns no costs.
        reason: why the bundle must not be moved, regardless of its traffic; None if it may be moved.
    """

    broker: str
    bundle: str
    msg_rate_in: float = 0.0
    msg_rate_out: float = 0.0
    msg_throughput_in: float = 0.0
    msg_throughput_out: float = 0.0
    topics: int = 0
    producers: int = 0
    consumers: int = 0
    cache_size: int = 0
    top_rank: int | None = None
    policy: str | None = None
    msg_rate: float = 0.0
    msg_throughput: float = 0.0
    long_term_msg_rate: float | None = None
    load: float = 0.0
    reason: Reason | None = None

    def mean(self, measure: Measure) -> float:
        """Return the short-term moving average of inbound plus outbound traffic, in msg/s or bytes/s."""
        return self.msg_rate if measure is Measure.RATE else self.msg_throughput

    @property
    def present_msg_rate(self) -> float:
        return self.msg_rate_in + self.msg_rate_out

    @property
    def present_msg_throughput(self) -> float:
        return self.msg_throughput_in + self.msg_throughput_out


_ARROW_TYPES: dict[Any, pa.DataType] = {str: pa.string(), Reason: pa.string(), int: pa.int64(), float: pa.float64()}

SAMPLE_SCHEMA = pa.schema(
    [(name, _ARROW_TYPES[(get_args(kind) or (kind,))[0]]) for name, kind in get_type_hints(BundleSample).items()]
)
"""Columns for strategies: the fields of `BundleSample`."""

_NON_NULL_COLUMNS = [name for name, default in BundleSample._field_defaults.items() if default is not None]


def without_nulls(table: pa.Table) -> pa.Table:
    bundles = table.select(SAMPLE_SCHEMA.names).cast(SAMPLE_SCHEMA)
    for name in _NON_NULL_COLUMNS:
        values = pc.coalesce(bundles[name], pa.scalar(0, bundles[name].type))
        bundles = bundles.set_column(bundles.schema.get_field_index(name), name, values)
    return bundles


def sort_by_broker(table: pa.Table) -> pa.Table:
    brokers = table["broker"].unique()
    # Numbers of brokers, in the order of the names, take a third of the time that names take.
    numbers: Any = pc.index_in(table["broker"], brokers.take(pc.sort_indices(brokers)))
    keys = pa.table([numbers, table["bundle"]], names=["broker", "bundle"])
    return table.take(pc.sort_indices(keys, sort_keys=[("broker", "ascending"), ("bundle", "ascending")]))


def namespaces_of(bundles: pa.ChunkedArray[Any]) -> pa.ChunkedArray[Any]:
    return pc.replace_substring_regex(bundles, "/[^/]*$", "")


def count_bundles(table: pa.Table, namespaces: Collection[str] | None) -> dict[str, Counter[str]]:
    named = table.select(["broker"]).append_column("namespace", namespaces_of(table["bundle"]))
    if namespaces is not None:
        named = named.filter(pc.is_in(named["namespace"], pa.array(list(namespaces), pa.string())))
    counted = named.group_by(["namespace", "broker"]).aggregate([([], "count_all")])
    found: dict[str, Counter[str]] = {}
    for row in counted.to_pylist():
        found.setdefault(row["namespace"], Counter())[row["broker"]] = row["count_all"]
    return found


class Bundles:
    """All bundles that the brokers of one cluster report. The table has `SAMPLE_SCHEMA`, in any order."""

    def __init__(self, table: pa.Table) -> None:
        self._given_table = table

    def announce_brokers(self, brokers: Collection[str]) -> None:
        """Announce the brokers whose bundles will be requested; an implementation can skip other bundles."""

    def of_broker(self, broker: str, limit: int | None = None) -> list[BundleSample]:
        """Return the bundles that one broker reports, sorted by name.

        With `limit`, return that number of movable ones with the largest `load`, in descending order.
        """
        start, end = self._row_range_by_broker.get(broker, (0, 0))
        rows = self._bundle_table.slice(start, end - start)
        if limit is not None:
            rows = rows.filter(pc.is_null(rows["reason"]))
            rows = rows.sort_by([("load", "descending"), ("bundle", "ascending")]).slice(0, limit)
        columns = [_column_values(rows[name]) for name in BundleSample._fields[:-1]]
        reasons = [Reason(reason) if reason else None for reason in _column_values(rows["reason"])]
        return list(map(BundleSample._make, zip(*columns, reasons, strict=True)))

    def brokers_with_bundle_above(self, load: float) -> set[str]:
        table: Any = self._bundle_table
        may_move = pc.and_(pc.is_null(table["reason"]), pc.greater(table["load"], pa.scalar(load, pa.float64())))
        return set(table["broker"].filter(may_move).unique().to_pylist())

    def stay_reasons_of_bundles(self, names: Collection[str]) -> dict[tuple[str, str], Reason | None]:
        if not names:
            return {}
        here: Any = pc.is_in(self._bundle_table["bundle"], pa.array(names, pa.string()))
        rows = self._bundle_table.select(["broker", "bundle", "reason"]).filter(here).to_pylist()
        return {(row["broker"], row["bundle"]): Reason(row["reason"]) if row["reason"] else None for row in rows}

    def find(self, broker: str, bundle: str) -> BundleSample:
        """Return a bundle; raises KeyError if the broker does not report it."""
        if broker not in self._cached_bundles:
            self._cached_bundles[broker] = {sample.bundle: sample for sample in self.of_broker(broker)}
        return self._cached_bundles[broker][bundle]

    def forget_broker(self, broker: str) -> None:
        self._cached_bundles.pop(broker, None)

    @cached_property
    def _bundle_table(self) -> pa.Table:
        return sort_by_broker(without_nulls(self._given_table))

    @cached_property
    def _cached_bundles(self) -> dict[str, dict[str, BundleSample]]:
        return {}

    @cached_property
    def _row_range_by_broker(self) -> dict[str, tuple[int, int]]:
        counted = self._bundle_table.group_by("broker").aggregate([([], "count_all")]).sort_by("broker").to_pylist()
        bounds = pairwise(accumulate((row["count_all"] for row in counted), initial=0))
        return dict(zip((row["broker"] for row in counted), bounds, strict=True))

    def owners(self) -> dict[str, str]:
        """Return each bundle's broker; if several report it, the one whose name sorts last."""
        return dict(zip(*(self._bundle_table[name].to_pylist() for name in ("bundle", "broker")), strict=True))

    def bundle_counts(self, namespaces: Collection[str] | None = None) -> Mapping[str, Counter[str]]:
        """Return each namespace's number of reported bundles, by broker; `namespaces` None means all.

        The result is shared: do not change it.
        """
        key = None if namespaces is None else frozenset(namespaces)
        if key not in self._bundle_counts:
            self._bundle_counts[key] = count_bundles(self._bundle_table, namespaces)
        return self._bundle_counts[key]

    @cached_property
    def _bundle_counts(self) -> dict[frozenset[str] | None, Mapping[str, Counter[str]]]:
        return {}

    def long_term_msg_rates(self) -> Mapping[str, float]:
        """Return each broker's long-term msg/s: the sum over its bundles outside heartbeat namespaces.

        If a bundle's long-term moving average is not known yet, its short-term average is used.
        """
        return self._rate_by_broker

    @cached_property
    def _rate_by_broker(self) -> dict[str, float]:
        heartbeat = pc.match_substring_regex(self._bundle_table["bundle"], f"^{HEARTBEAT_NAMESPACE}/[^/]*$")
        means = pc.coalesce(self._bundle_table["long_term_msg_rate"], self._bundle_table["msg_rate"])
        # Rates are added in the order of names: the order decides the last digit, which may decide a tie.
        rates = pc.if_else(heartbeat, 0.0, means).to_pylist()
        return {broker: java_sum(rates[start:end]) for broker, (start, end) in self._row_range_by_broker.items()}


def _column_values(column: pa.ChunkedArray[Any]) -> list[Any]:
    """Return a list, faster than `to_pylist` for numbers and for columns with only nulls."""
    if column.null_count == len(column):
        return [None] * len(column)
    is_number = column.null_count == 0 and pa.types.is_primitive(column.type)
    return column.to_numpy().tolist() if is_number else column.to_pylist()


MAX_SAMPLES = 10
"""Samples in the short-term mean: from the tenth on, a new sample has the weight of one tenth (BundleData)."""

LONG_TERM_SAMPLES = 1000
"""Samples in the long-term mean: from the thousandth on, a new sample has the weight of one thousandth."""


def update_means(bundles: Iterable[Row], previous_means: Iterable[Row]) -> list[Row]:
    """Add a sample to the moving averages, and return the updated averages (TimeAverageMessageData.update).

    The means of a new bundle start with its values in this sample. While a bundle moves, two brokers can report it;
    the larger value is used, because the old owner reports only part of the traffic. Bundles that are not in the
    sample are dropped: Pulsar unloads idle bundles, and their old traffic is meaningless when they are loaded again. A
    run keeps them while a broker has no report, because its bundles are still loaded.

    Args:
        bundles: rows of the bundles table.
        previous_means: rows of the means table.

    Returns:
        Rows of the means table, one per bundle, sorted by bundle.
    """
    seen: dict[str, dict[str, Any]] = {}
    for row in bundles:
        entry = seen.setdefault(row["bundle"], {"cluster": row["cluster"], "bundle": row["bundle"]})
        for name in TRAFFIC:
            entry[name] = max(entry.get(name, 0.0), row[name] or 0.0)
    known = {row["bundle"]: row for row in previous_means}
    return [_updated_mean(seen[name], known.get(name)) for name in sorted(seen)]


def add_parts(means: Iterable[Row], shares: Mapping[str, Mapping[str, float]]) -> list[dict[str, Any]]:
    """Return the means with additional rows for the parts of split bundles.

    Each part starts with its share of the means.

    The parts are the bundles that a bundle was split into. The row of the split bundle is kept, because for a short
    time one broker can report the bundle and another a part. `update_means` then drops whichever is not in the sample.
    The means of a part that already has a row do not change.

    Args:
        means: rows of the means table.
        shares: for each split bundle, the share of each part (0 to 1), by the part's name.
    """
    rows = [dict(row) for row in means]
    known = {row["bundle"] for row in rows}
    for row in list(rows):
        for part, share in shares.get(row["bundle"], {}).items():
            if part in known:
                continue
            carried = {name: row[name] * share for name in (*TRAFFIC, *LONG_TERM_RATES)}
            rows.append(row | carried | {"bundle": part})
    return rows


def mean_with_sample(mean: Any, value: Any, samples: Any) -> Any:
    """Return a mean with one more value, after which it is the mean of `samples`: numbers, arrays or Spark columns."""
    return ((samples - 1) * mean + value) / samples


def _updated_mean(sample: Row, old_mean: Row | None) -> Row:
    now = {
        "long_term_msg_rate": sample["msg_rate_in"] + sample["msg_rate_out"],
        "long_term_msg_throughput": sample["msg_throughput_in"] + sample["msg_throughput_out"],
    }
    if old_mean is None:
        return {**sample, "samples": 1, **now}
    samples = min(old_mean["samples"] + 1, LONG_TERM_SAMPLES)
    short = min(samples, MAX_SAMPLES)
    return {
        **sample,
        "samples": samples,
        **{name: mean_with_sample(old_mean[name], sample[name], short) for name in TRAFFIC},
        **{name: mean_with_sample(old_mean[name], value, samples) for name, value in now.items()},
    }
