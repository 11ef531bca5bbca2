"""The tables of a run. A column has the same name everywhere, and its unit is defined only here.

*collect* writes `cluster`, `brokers` and `bundles`; *decide* writes `decisions`, `moves` and
`splits`. All have the key `cluster`, so that one Spark application can process many clusters at once.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from functools import reduce
from operator import add
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.storage.path import StoragePath

_log = logging.getLogger(__name__)

TIME_TYPE = pa.timestamp("us", tz="UTC")
RESOURCES = ("cpu", "memory", "direct_memory", "bandwidth_in", "bandwidth_out")
TRAFFIC = ("msg_rate_in", "msg_rate_out", "msg_throughput_in", "msg_throughput_out")

AVERAGES = ("load_average", "throughput_average")
"""Broker values that only some load managers report."""

_UNIT_BY_COLUMN = {
    "cpu_usage": "percent of one core",
    "cpu_limit": "percent of one core, 100 per core",
    "memory_usage": "MiB of JVM heap",
    "memory_limit": "MiB of JVM heap",
    "direct_memory_usage": "MiB",
    "direct_memory_limit": "MiB",
    "bandwidth_in_usage": "Kbit/s",
    "bandwidth_in_limit": "Kbit/s",
    "bandwidth_out_usage": "Kbit/s",
    "bandwidth_out_limit": "Kbit/s",
    "msg_rate_in": "msg/s",
    "msg_rate_out": "msg/s",
    "msg_throughput_in": "bytes/s",
    "msg_throughput_out": "bytes/s",
    "msg_rate": "msg/s, in and out, short-term mean",
    "msg_throughput": "bytes/s, in and out, short-term mean",
    "throughput_average": "bytes/s, in and out",
    "long_term_msg_rate": "msg/s, in and out, long-term mean",
    "long_term_msg_throughput": "bytes/s, in and out, long-term mean",
    "cache_size": "bytes",
    "report_age_seconds": "s",
    "host_samples": "host samples since the broker's start",
    "source_score": "percent, weighted maximum",
    "destination_score": "percent, weighted maximum",
    "gap": "score points",
    "target": "msg/s or bytes/s (column `measure` says which)",
    "traffic": "msg/s or bytes/s (column `measure` says which)",
    "traffic_taken": "msg/s or bytes/s (column `measure` says which)",
}

LARGEST: dict[str, float] = {
    **{f"cpu_{part}": 1e6 for part in ("usage", "limit")},
    **{f"{memory}_{part}": 1e9 for memory in ("memory", "direct_memory") for part in ("usage", "limit")},
    **{f"bandwidth_{way}_{part}": 1e11 for way in ("in", "out") for part in ("usage", "limit")},
    **{f"msg_rate_{way}": 1e12 for way in ("in", "out")},
    **{f"msg_throughput_{way}": 1e15 for way in ("in", "out")},
    **dict.fromkeys(("host_samples", "topics", "bundles", "producers", "consumers", "top_rank"), 1e9),
    "cache_size": 1e15,
    "load_average": 1e6,
    "throughput_average": 1e15,
}
"""Largest plausible values of a machine or broker, in the columns' units; validation rejects larger values."""

VERSION = "1"


def _schema(*columns: tuple[str, pa.DataType]) -> pa.Schema:
    return pa.schema(
        [pa.field(n, t, metadata={"unit": _UNIT_BY_COLUMN[n]} if n in _UNIT_BY_COLUMN else None) for n, t in columns],
        metadata={"version": VERSION},
    )


_S, _I, _F, _B = pa.string(), pa.int64(), pa.float64(), pa.bool_()
_USAGE = tuple((f"{r}_{part}", _F) for r in RESOURCES for part in ("usage", "limit"))
_TRAFFIC = tuple((name, _F) for name in TRAFFIC)

CLUSTER = _schema(
    ("cluster", _S),
    ("collected_at", TIME_TYPE),
    ("leader", _S),  # brokerId, empty when there is none
    ("leader_read", _B),  # whether the leader's configuration could be read
    ("load_manager", _S),  # simple class name
    ("brokers_listed", _I),
    ("brokers_reported", _I),
    ("bundles", _I),
    ("builtin_shedding", _B),
    ("even_distribution", _B),
    ("settings_in_disagreement", _S),  # comma separated Pulsar names, empty when the brokers agree
    ("policies_readable", _B),
    ("policies_problem", _S),  # why policies could not be read, else null
    ("policies_unclear", _S),  # what is wrong with some of the policies that could be read, else null
)

BROKERS = _schema(
    ("cluster", _S),
    ("broker", _S),  # brokerId, host:port
    ("collected_at", TIME_TYPE),
    ("error", _S),  # reason code when there is no report, else null
    ("listings", _I),  # how often the cluster lists the broker
    ("reserved_by", _S),  # isolation policy that reserves the broker for its namespaces, else null
    ("last_update", TIME_TYPE),
    ("report_age_seconds", _F),
    ("started_at", TIME_TYPE),
    ("host_samples", _F),
    *_USAGE,
    *_TRAFFIC,
    *((name, _F) for name in AVERAGES),  # the broker's own moving averages; extensible manager only
    ("topics", _I),
    ("bundles", _I),
    ("producers", _I),
    ("consumers", _I),
    ("version", _S),
)
"""One row per listed broker; values are null if the broker has no report."""

BUNDLES = _schema(
    ("cluster", _S),
    ("broker", _S),
    ("bundle", _S),  # tenant/namespace/0x…_0x…
    *_TRAFFIC,
    ("topics", _I),
    ("producers", _I),
    ("consumers", _I),
    ("cache_size", _I),
    ("owners", _I),  # number of brokers that report the bundle
    ("top_rank", _I),  # place in the broker's own list of top bundles; extensible manager only
    ("policy", _S),  # "isolation", "anti_affinity" or "unknown"; null for a namespace without a policy
)
"""One row per bundle and reporting broker, for bundles with at least one loaded topic."""

LONG_TERM_RATES = ("long_term_msg_rate", "long_term_msg_throughput")

MEANS = _schema(("cluster", _S), ("bundle", _S), ("samples", _I), *_TRAFFIC, *((name, _F) for name in LONG_TERM_RATES))
"""Moving averages of bundles: short-term over at most 10 samples, long-term over 1000 (TimeAverageMessageData)."""

RATES = ("hour_rate", "quick_rate", "quarter_rate", "hour_before")
COSTS = (*RATES, "cost", "cost_variance", "samples")
"""Columns with the values that a learning strategy stores for each bundle (`strategies.learning.BundleCosts`)."""

BUNDLE_COSTS = pa.schema([MEANS.field("bundle"), *(pa.field(name, pa.float32()) for name in COSTS)])

# Not `empty_table`, which imports pandas.
NO_COSTS = pa.Table.from_batches([], BUNDLE_COSTS)
NO_LOADS = pa.Table.from_batches([], pa.schema([MEANS.field("bundle"), pa.field("load", pa.float64())]))
"""Load that a bundle adds to its broker, in msg/s or kB/s of traffic with average cost."""

DECISIONS = _schema(
    ("cluster", _S),
    ("pair", _I),  # 0 is the outermost pair; drained brokers are below 0
    ("pool", _S),  # isolation policy that reserves both brokers, null for shared brokers
    ("source", _S),  # the hotter broker
    ("destination", _S),  # the colder broker
    ("source_score", _F),
    ("destination_score", _F),
    ("gap", _F),
    ("source_high_before", _I),
    ("source_low_before", _I),
    ("destination_high_before", _I),
    ("destination_low_before", _I),
    ("source_high", _I),  # after the run
    ("source_low", _I),
    ("destination_high", _I),
    ("destination_low", _I),
    ("high_hits", _I),  # the higher of the two brokers' counts when the pair was judged, before a reset
    ("low_hits", _I),
    ("value", _F),  # the value that the strategy compared, in its own unit; null where the columns above are enough
    ("bound", _F),  # the bound that the value was compared with
    ("fired", _B),
    ("reason", _S),
    ("explanation", _S),  # what the strategy found, then the result of selecting bundles
    ("measure", _S),  # "msg_rate" or "msg_throughput" when fired and above a minimum, else null
    ("target", _F),  # how much traffic to move
    ("bundles_taken", _I),
    ("traffic_taken", _F),
)
"""One row per judged pair or broker, and one row per left-out broker, whose `pair` is null."""

MOVES = _schema(
    ("cluster", _S),
    ("pair", _I),
    ("source", _S),
    ("destination", _S),
    ("bundle", _S),
    ("rank", _I),  # position in the walk over the source's bundles
    ("measure", _S),
    ("traffic", _F),
    ("msg_rate", _F),
    ("msg_throughput", _F),
    ("taken", _B),
    ("reason", _S),
    ("wave", _I),  # null when not taken
)
"""One row per candidate bundle of a pair that fired, whether the bundle is moved (`taken`) or not."""

SPLITS = _schema(
    ("cluster", _S),
    ("broker", _S),  # the owner
    ("bundle", _S),
    ("rank", _I),  # 0 is split first
    ("condition", _S),  # "topics", "sessions", "msg_rate" or "bandwidth"; null for a split made by hand
    ("value", _F),  # the value that was compared, in the unit of the condition's setting
    ("bound", _F),  # the bound that the value was compared with
    ("hits", _I),  # consecutive samples that met a condition, including this one; null where they are not counted
    ("algorithm", _S),  # Pulsar's name
    ("positions", pa.list_(_I)),  # hashes at which the bundle is cut, ascending
    ("shares", pa.list_(_F)),  # share of the bundle's traffic for each bundle it is split into, 0 to 1
    ("unload", _B),  # whether the new bundles are unloaded afterwards
    ("taken", _B),
    ("reason", _S),
    ("explanation", _S),
)
"""One row per bundle considered for a split, whether it is split (`taken`) or not; an empty table is not written."""

INPUT = {"cluster": CLUSTER, "brokers": BROKERS, "bundles": BUNDLES}


class Measure(StrEnum):
    """The unit of traffic; the value is also the name of a table column."""

    RATE = "msg_rate"  # msg/s
    THROUGHPUT = "msg_throughput"  # bytes/s


class ResourceUsage(NamedTuple):
    """A broker's usage of one resource, in the resource's unit (`_UNIT_BY_COLUMN`); None or -1 if unknown."""

    usage: float | None = None
    limit: float | None = None


class BrokerSample(NamedTuple):
    """One broker in the sample of a run; rates in msg/s, throughput in bytes/s.

    Attributes:
        broker: brokerId, host:port.
        left_out: why the broker can be neither source nor destination, such as a missing report; else None.
        resources: usage of each resource (`run.tables.RESOURCES`).
        reserved_by: the isolation policy that reserves the broker for certain namespaces.
        load_average, throughput_average: the broker's own moving averages (1 means 100 percent; bytes/s); extensible
            load manager only.
        weighted: `scoring.weighted_usage` with the sample's settings, by resource; empty if not computed.
    """

    broker: str
    left_out: Reason | None = None
    resources: Mapping[str, ResourceUsage] = {}
    msg_rate_in: float = 0.0
    msg_rate_out: float = 0.0
    msg_throughput_in: float = 0.0
    msg_throughput_out: float = 0.0
    topics: int = 0
    bundles: int = 0
    version: str | None = None
    reserved_by: str | None = None
    load_average: float | None = None
    throughput_average: float | None = None
    report_age_seconds: float | None = None
    started_at: datetime | None = None
    weighted: Mapping[Sequence[str], float] = {}

    def traffic(self, measure: Measure) -> float:
        """Return the broker's current inbound plus outbound traffic, in msg/s or bytes/s."""
        if measure is Measure.RATE:
            return self.msg_rate_in + self.msg_rate_out
        return self.msg_throughput_in + self.msg_throughput_out


_SAMPLE_COLUMNS = tuple(name for name in BrokerSample._fields if name in BROKERS.names)

Row: TypeAlias = "dict[str, Any]"


def broker_samples(rows: Iterable[Row], left_out: Mapping[str, Reason]) -> list[BrokerSample]:
    return sorted((_broker_sample(row, left_out.get(row["broker"])) for row in rows), key=lambda broker: broker.broker)


def _broker_sample(row: Row, left_out: Reason | None) -> BrokerSample:
    known = {name: row[name] for name in _SAMPLE_COLUMNS if row.get(name) is not None}
    resources = {name: ResourceUsage(row.get(f"{name}_usage"), row.get(f"{name}_limit")) for name in RESOURCES}
    no_report = Reason.BROKER_QUARANTINED if row.get("error") else None
    return BrokerSample(**known, left_out=left_out or no_report, resources=resources)


Cell: TypeAlias = "str | float | datetime | None"
"""A value in a table's row; whole numbers and booleans count as numbers."""


def table(rows: Sequence[Mapping[str, Cell | Mapping[str, Cell]]], schema: pa.Schema) -> pa.Table:
    try:
        return pa.Table.from_pylist(list(rows), schema=schema)
    except (pa.ArrowException, OverflowError) as error:
        raise SnapshotError(Reason.FILE_DAMAGED, f"rows do not fit their columns: {error}") from None


def rows_of_bundles(bundles: Collection[str], tables: Iterable[pa.Table]) -> list[Row]:
    wanted = pa.array(sorted(bundles), pa.string())
    return [row for part in tables for row in part.filter(pc.is_in(part["bundle"], wanted)).to_pylist()]


def write(run: StoragePath, tables: Mapping[str, pa.Table]) -> None:
    for name, content in tables.items():
        (run / "input" / f"{name}.parquet").write_table(content)


def find_state_table(folder: StoragePath, name: str, schema: pa.Schema) -> StoragePath | None:
    """Return a table of the stored state; None if there is none, as with an empty `name`.

    A missing or damaged table, or another release's, counts as none: what it held starts again. It is
    read as a whole, because a strategy or Spark would otherwise fail on it. Tables from Spark have no
    version, so the columns say who wrote it. Raises SnapshotError `storage_failed`.
    """
    file = folder / name
    try:
        if not name:
            return None
        found = file.read_table().schema
        if (found.names, found.types) != (schema.names, schema.types):
            raise SnapshotError(Reason.FILE_DAMAGED, f"{file.uri} has unexpected columns")
    except SnapshotError as error:
        if error.reason is Reason.STORAGE_FAILED:
            raise
        _log.warning("%s. The table is not used, so its values are computed again, starting with this sample", error)
        return None
    return file


def version_of(schema: pa.Schema) -> str:
    return (schema.metadata or {}).get(b"version", b"").decode(errors="replace")


def java_sum(values: Iterable[float]) -> float:
    """Return the sum of the values, added one after the other, as in Java.

    Since Python 3.12, `sum` compensates for rounding errors. The last digit of a sum can decide between
    equal candidates, so the plan would depend on the Python version.
    """
    return reduce(add, values, 0.0)
