"""A run's documents and tables, as written by the *collect* and *validate* tasks."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.fs import LocalFileSystem
from pydantic import BaseModel, ConfigDict

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.errors import PlanError, SnapshotError
from pulsar_rebalancer.isolation import Policies
from pulsar_rebalancer.names import is_extensible
from pulsar_rebalancer.orders.manual_plans import Drains, HandedOverPlan
from pulsar_rebalancer.orders.order import Control
from pulsar_rebalancer.orders.roll_document import Roll
from pulsar_rebalancer.reasons import Effect, Reason
from pulsar_rebalancer.run.compacted_tables import TABLES, open_parquet
from pulsar_rebalancer.run.request import RunRequest, Validation
from pulsar_rebalancer.run.tables import (
    BUNDLES,
    INPUT,
    MEANS,
    TIME_TYPE,
    VERSION,
    BrokerSample,
    Row,
    broker_samples,
    find_state_table,
    rows_of_bundles,
    version_of,
)
from pulsar_rebalancer.state import DecisionState, MovesState
from pulsar_rebalancer.storage.documents import MAX_CLOCK_SKEW, ClusterStorage, VersionedDocument, validate_document
from pulsar_rebalancer.storage.path import StoragePath

if TYPE_CHECKING:
    import pyarrow.parquet as pq


class StateBefore(BaseModel):
    """The documents of the state store; each has its own version number.

    `control` has the orders that had not ended. `drains` include a rolling restart's; `handed_over` is an earlier
    plan that the run carries out, or None.
    """

    model_config = ConfigDict(frozen=True)

    FILE: ClassVar[str] = "input/state.json"

    decision: DecisionState = DecisionState()
    moves: MovesState = MovesState()
    control: Control = Control()
    drains: Drains = Drains()
    handed_over: HandedOverPlan | None = None
    roll: Roll | None = None

    def write(self, run: StoragePath) -> None:
        absent = {name for name in ("handed_over", "roll") if getattr(self, name) is None}
        (run / self.FILE).write_json(self.model_dump(mode="json", exclude=absent))

    @classmethod
    def read(cls, run: StoragePath) -> Self:
        file = run / cls.FILE
        return cls.parse(file.read_json(), file.uri)

    @classmethod
    def parse(cls, document: Any, label: str) -> Self:
        if not isinstance(document, Mapping) or not {"decision", "moves", "control", "drains"} <= document.keys():
            raise SnapshotError(Reason.FILE_DAMAGED, f"{label} does not contain the state of a cluster")
        handed, roll = document.get("handed_over"), document.get("roll")
        return cls(
            decision=DecisionState.parse(document["decision"], label),
            moves=MovesState.parse(document["moves"], label),
            control=Control.parse(document["control"], label),
            drains=Drains.parse(document["drains"], label),
            handed_over=None if handed is None else validate_document(HandedOverPlan, handed, label),
            roll=None if roll is None else Roll.parse(roll, label),
        )


CLIENT_COLUMNS = ("topics", "producers", "consumers")
"""Columns of the bundles table with the numbers of topics and clients that a move disturbs."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Snapshot:
    """The files of a run, each read on first use.

    Every property can raise a SnapshotError (`file_missing`, `file_damaged`).
    """

    folder: StoragePath

    @cached_property
    def request(self) -> RunRequest:
        return RunRequest.read(self.folder)

    @property
    def cluster(self) -> str:
        return self.request.cluster

    @property
    def settings(self) -> Settings:
        return self.request.resolved.settings

    @cached_property
    def validation(self) -> Validation:
        return Validation.read(self.folder)

    @cached_property
    def state(self) -> StateBefore:
        return StateBefore.read(self.folder)

    @cached_property
    def policies(self) -> Policies:
        return Policies.read(self.folder)

    @property
    def bundles_to_split(self) -> Collection[str]:
        """Return the bundles that the run splits; only a run that decides (`decide.run_input`) knows any."""
        return ()

    def read_broker_samples(self, left_out: Mapping[str, Reason]) -> list[BrokerSample]:
        return broker_samples(self._broker_rows, left_out)

    @cached_property
    def start_times(self) -> dict[str, datetime | None]:
        return {broker.broker: broker.started_at for broker in self.read_broker_samples({})}

    @cached_property
    def silent_brokers(self) -> frozenset[str]:
        return frozenset(row["broker"] for row in self._broker_rows if row["error"])

    @cached_property
    def quarantined_brokers(self) -> dict[str, Reason]:
        return {name: why for name, why in self.validation.quarantine_reasons.items() if name in self.start_times}

    @cached_property
    def _broker_rows(self) -> list[Row]:
        brokers = self.read_table("brokers")
        brokers = brokers.filter(pc.equal(brokers["cluster"], pa.scalar(self.cluster)))
        # Only one of the times is used, in microseconds, because Arrow imports pandas to convert a time.
        started = brokers["started_at"].cast(pa.int64()).to_pylist()
        rows = brokers.select([column.name for column in brokers.schema if column.type != TIME_TYPE]).to_pylist()
        times = (None if at is None else _EPOCH + timedelta(microseconds=at) for at in started)
        return [row | {"started_at": at} for row, at in zip(rows, times, strict=True)]

    @property
    def has_extensible_load_manager(self) -> bool:
        cluster = self.read_table("cluster", ["load_manager"])
        return any(is_extensible(name or "") for name in cluster["load_manager"].to_pylist())

    @property
    def may_repeat_bundles(self) -> bool:
        """Return whether two brokers might have reported the same bundle, so that it is twice in the table."""
        footer, column = self.bundles_footer, BUNDLES.names.index("owners")
        groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
        statistics = [group.column(column).statistics for group in groups if group.num_rows]
        largest = (part.max if part and part.max is not None else math.inf for part in statistics)
        return max(largest, default=0) > 1

    @cached_property
    def bundles_footer(self) -> pq.FileMetaData:
        with self._open_table("bundles") as source:
            return source.metadata

    def read_table(self, name: str, columns: list[str] | None = None) -> pa.Table:
        schema = INPUT[name] if columns is None else pa.schema([INPUT[name].field(column) for column in columns])
        with self._open_table(name) as source:
            content = source.read(schema.names).select(schema.names)
            content.validate(full=True)
            return content.cast(schema)

    def table_batches(self, name: str, columns: list[str]) -> Iterator[pa.Table]:
        with self._open_table(name) as source:
            for batch in source.iter_batches(columns=columns):
                yield pa.Table.from_batches([batch])

    @contextmanager
    def _open_table(self, name: str) -> Iterator[pq.ParquetFile]:
        with open_parquet(self.folder / TABLES[name][0]) as source:
            found = source.schema_arrow
            version = version_of(found)
            if version != VERSION or found.names != INPUT[name].names:
                problem = f"has version {version or 'none'}" if version != VERSION else "has unexpected columns"
                where = f"{self.folder.uri}: table {name}"
                raise SnapshotError(Reason.FILE_DAMAGED, f"{where} {problem}; this release reads version {VERSION}")
            yield source

    def bundle_rows(self, names: Collection[str], columns: list[str]) -> list[Row]:
        """Return the rows of these bundles, one for each reporting broker; `columns` must include `bundle`."""
        return rows_of_bundles(names, self.table_batches("bundles", columns) if names else ())

    def owners(self, bundles: Collection[str]) -> dict[str, set[str]]:
        owners: dict[str, set[str]] = {}
        for row in self.bundle_rows(bundles, ["bundle", "broker"]):
            owners.setdefault(row["bundle"], set()).add(row["broker"])
        return owners

    def clients_by_bundle_and_kind(self, bundles: Collection[str]) -> dict[str, dict[str, int]]:
        rows = self.bundle_rows(bundles, ["bundle", *CLIENT_COLUMNS])
        return {row["bundle"]: {name: row[name] or 0 for name in CLIENT_COLUMNS} for row in rows}

    @property
    def state_folder(self) -> StoragePath:
        return ClusterStorage.of_run(self.folder).state

    @cached_property
    def known_means_file(self) -> StoragePath | None:
        """Return the file with the moving averages from the last counted sample; None if there is none.

        The means then start with this sample, as in Pulsar after a change of leader.
        """
        return find_state_table(self.state_folder, self.state.decision.means, MEANS)


_MAX_RUNS_SEARCHED = 20
"""Maximum number of recent runs to search for a validated run."""


def latest_sample(storage: ClusterStorage, now: datetime, max_age_seconds: float) -> Snapshot:
    """Return the sample of the latest run that was validated; a dry run is none, however often a person asks for one.

    Raises SnapshotError `file_missing` if there is none, `no_run` if it is too old, or `blocked` if
    validation stopped the run; or a file cannot be read.
    """
    for folder in islice(storage.latest_runs(now + MAX_CLOCK_SKEW), _MAX_RUNS_SEARCHED):
        if (folder / Validation.FILE).exists() and not RunRequest.read(folder).dry_run:
            break
    else:
        raise SnapshotError(Reason.FILE_MISSING, "no recent run has validated a sample")
    snapshot = Snapshot(folder)
    age = (now - snapshot.request.collected_at).total_seconds()
    if age > max_age_seconds:
        raise SnapshotError(Reason.NO_RUN, f"the latest sample is {age:.0f} s old; the limit is {max_age_seconds:g} s")
    blocking = snapshot.validation.reason_counts(Effect.BLOCK)
    if blocking:
        raise SnapshotError(Reason.BLOCKED, f"validation stopped the latest run: {', '.join(blocking)}")
    return snapshot


MIN_SPLIT_TOPICS = 2
"""A bundle with fewer topics is never split."""


class TopicLoad(NamedTuple):
    """One topic's load, inbound plus outbound, in msg/s and bytes/s; `position` is its full name's hash."""

    position: int
    msg_rate: float = 0.0
    msg_throughput: float = 0.0


class Candidate(BaseModel):
    """One bundle that may need a split; empty `bounds` (its namespace's) or `topics` None mean unreadable."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bundle: str
    bounds: tuple[int, ...] = ()
    topics: tuple[TopicLoad, ...] | None = None


class SplitCandidates(VersionedDocument):
    FILE: ClassVar[str] = "input/splits.json"

    bundles: tuple[Candidate, ...] = ()


def find_run(storage: ClusterStorage, address: str, airflow_run_id: str) -> StoragePath:
    """Return the folder at an address, after checking that it belongs to this cluster and DAG run.

    Otherwise anyone who can write an XCom could make a task carry out another run's plan or read its
    files. Raises PlanError `foreign_run` for another run or a link outside the root, or SnapshotError if
    the request is unreadable.
    """
    run = storage.run_folder(StoragePath(address).name)
    request = None if run is None else run / "input" / "settings.json"
    if run is None or request is None or run.uri != address or not lies_below(storage.root, request):
        raise PlanError(Reason.FOREIGN_RUN, f"{address[:200]!a} is not a run folder of cluster {storage.cluster}")
    if not belongs_to_run(request.read_json(), storage.cluster, airflow_run_id):
        raise PlanError(
            Reason.FOREIGN_RUN, f"{run.uri} is not the folder of {storage.cluster}'s run {airflow_run_id[:200]!a}"
        )
    return run


def belongs_to_run(request: object, cluster: str, airflow_run_id: str) -> bool:
    named = (request.get("cluster"), request.get("airflow_run_id")) if isinstance(request, dict) else None
    return named == (cluster, airflow_run_id)


def lies_below(root: str, file: StoragePath) -> bool:
    """Return whether a file is below the root with links resolved. Object stores have no links."""
    file_system, path = file.filesystem_and_path()
    if not isinstance(file_system, LocalFileSystem):
        return True
    return Path(path).resolve().is_relative_to(Path(StoragePath(root).filesystem_and_path()[1]).resolve())
