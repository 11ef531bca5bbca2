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
from pulsar_rebalancer.orders.manual_plans import Drains, HandedOver
from pulsar_rebalancer.orders.roll_document import Roll
from pulsar_rebalancer.reasons import Effect, Reason
from pulsar_rebalancer.run.compacted_tables import TABLES, opened
from pulsar_rebalancer.run.request import RunRequest, Validation
from pulsar_rebalancer.run.tables import (
    BUNDLES,
    INPUT,
    MEANS,
    TIME,
    VERSION,
    BrokerSample,
    Row,
    broker_samples,
    known_file,
    rows_of,
    version_of,
)
from pulsar_rebalancer.state.state_documents import DecisionState, MovesState
from pulsar_rebalancer.storage.documents import SKEW, ClusterStorage, VersionedDocument, load, state_of
from pulsar_rebalancer.storage.path import StoragePath

if TYPE_CHECKING:
    import pyarrow.parquet as pq


class StateBefore(BaseModel):
    """The documents of the state store; each has its own version number.

    Attributes:
        decision: the last plan's number, the counters, and the file name of the moving averages.
        moves: bundles that were recently unloaded or split.
        drains: drained brokers, including a broker that a rolling restart has drained.
        roll: the active rolling restart; None if there is none.
        handed_over: the earlier plan that the run carries out; None if the run makes its own plan.
    """

    model_config = ConfigDict(frozen=True)

    FILE: ClassVar[str] = "input/state.json"

    decision: DecisionState = DecisionState()
    moves: MovesState = MovesState()
    drains: Drains = Drains()
    handed_over: HandedOver | None = None
    roll: Roll | None = None

    def write(self, run: StoragePath) -> None:
        """Write the document into the run's folder."""
        absent = {name for name in ("handed_over", "roll") if getattr(self, name) is None}
        (run / self.FILE).write_json(self.model_dump(mode="json", exclude=absent))

    @classmethod
    def read(cls, run: StoragePath) -> Self:
        """Read the document from the run's folder.

        Raises:
            SnapshotError: `file_missing`, `file_damaged` or `file_version`.
        """
        file = run / cls.FILE
        return cls.parse(file.read_json(), file.uri)

    @classmethod
    def parse(cls, document: Any, where: str) -> Self:
        """Return the parsed document. Raises the same errors as `read`."""
        if not isinstance(document, Mapping) or not {"decision", "moves", "drains"} <= document.keys():
            raise SnapshotError(Reason.FILE_DAMAGED, f"{where} is not a state")
        handed, roll = document.get("handed_over"), document.get("roll")
        return cls(
            decision=DecisionState.parse(document["decision"], where),
            moves=MovesState.parse(document["moves"], where),
            drains=Drains.parse(document["drains"], where),
            handed_over=None if handed is None else load(HandedOver, handed, where),
            roll=None if roll is None else Roll.parse(roll, where),
        )


CLIENTS = ("topics", "producers", "consumers")
"""Columns of the bundles table that count the topics and clients disturbed by moving the bundle."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Snapshot:
    """The files of a run. Each file is read on first use; it can be missing or damaged.

    Every property can raise a SnapshotError (`file_missing`, `file_damaged`, `file_version`).

    Attributes:
        folder: the run's folder.
    """

    folder: StoragePath

    @cached_property
    def request(self) -> RunRequest:
        """Return the run's request, with its effective settings."""
        return RunRequest.read(self.folder)

    @property
    def cluster(self) -> str:
        """Return the cluster's name, which is the key of every table."""
        return self.request.cluster

    @property
    def settings(self) -> Settings:
        """Return the effective settings."""
        return self.request.resolved.settings

    @cached_property
    def validation(self) -> Validation:
        """Return the findings from validation."""
        return Validation.read(self.folder)

    @cached_property
    def before(self) -> StateBefore:
        """Return the stored state at the time of the sample."""
        return StateBefore.read(self.folder)

    @cached_property
    def policies(self) -> Policies:
        """Return the isolation policies, anti-affinity groups and failure domains."""
        return Policies.read(self.folder)

    @property
    def to_be_split(self) -> Collection[str]:
        """Return the bundles that the run splits. Only a run that decides (`decide.run_input.RunInput`) knows any."""
        return ()

    def brokers_without(self, left_out: Mapping[str, Reason]) -> list[BrokerSample]:
        """Return the brokers, sorted by name. Brokers without a report are always marked as left out.

        Args:
            left_out: why a broker can be neither source nor destination, by broker.
        """
        return broker_samples(self._listed, left_out)

    @cached_property
    def started(self) -> dict[str, datetime | None]:
        """Return when each broker's process started; None if that is unknown."""
        return {broker.broker: broker.started_at for broker in self.brokers_without({})}

    @cached_property
    def silent(self) -> frozenset[str]:
        """Return the names of the brokers without a report."""
        return frozenset(row["broker"] for row in self._listed if row["error"])

    @cached_property
    def unwell(self) -> dict[str, Reason]:
        """Return why validation leaves out brokers that the cluster lists, by broker."""
        return {name: why for name, why in self.validation.quarantined.items() if name in self.started}

    @cached_property
    def _listed(self) -> list[Row]:
        brokers = self.table("brokers")
        brokers = brokers.filter(pc.equal(brokers["cluster"], pa.scalar(self.cluster)))
        # Only one of the times is used, in microseconds, because Arrow imports pandas to convert a time.
        started = brokers["started_at"].cast(pa.int64()).to_pylist()
        rows = brokers.select([column.name for column in brokers.schema if column.type != TIME]).to_pylist()
        times = (None if at is None else _EPOCH + timedelta(microseconds=at) for at in started)
        return [row | {"started_at": at} for row, at in zip(rows, times, strict=True)]

    @property
    def extensible(self) -> bool:
        """Return whether the cluster uses the extensible load manager."""
        cluster = self.table("cluster", ["load_manager"])
        return any(is_extensible(name or "") for name in cluster["load_manager"].to_pylist())

    @property
    def shares_bundles(self) -> bool:
        """Return whether the bundles table might contain a bundle twice because two brokers reported it."""
        footer, column = self.bundles_footer, BUNDLES.names.index("owners")
        groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
        statistics = [group.column(column).statistics for group in groups if group.num_rows]
        largest = (part.max if part and part.max is not None else math.inf for part in statistics)
        return max(largest, default=0) > 1

    @cached_property
    def bundles_footer(self) -> pq.FileMetaData:
        """Return the footer of the bundles table."""
        with self._opened("bundles") as source:
            return source.metadata

    def table(self, name: str, columns: list[str] | None = None) -> pa.Table:
        """Return an input table with all its rows.

        Args:
            columns: names of the columns to read; None for all.
        """
        schema = INPUT[name] if columns is None else pa.schema([INPUT[name].field(column) for column in columns])
        with self._opened(name) as source:
            content = source.read(schema.names).select(schema.names)
            content.validate(full=True)
            return content.cast(schema)

    def batches(self, name: str, columns: list[str]) -> Iterator[pa.Table]:
        """Yield some columns of an input table in batches, so that not all rows are in memory at the same time."""
        with self._opened(name) as source:
            for batch in source.iter_batches(columns=columns):
                yield pa.Table.from_batches([batch])

    @contextmanager
    def _opened(self, name: str) -> Iterator[pq.ParquetFile]:
        """Open an input table, and reject it if its version or columns differ from this release's."""
        with opened(self.folder / TABLES[name][0]) as source:
            found = source.schema_arrow
            version = version_of(found)
            if version != VERSION or found.names != INPUT[name].names:
                what = f"is of version {version or 'none'}" if version != VERSION else "has other columns"
                where = f"{self.folder.uri}: table {name}"
                raise SnapshotError(Reason.FILE_VERSION, f"{where} {what}, this release reads version {VERSION}")
            yield source

    def bundles_named(self, names: Collection[str], columns: list[str]) -> list[Row]:
        """Return the rows of these bundles, one for each broker that reports a bundle.

        Args:
            columns: columns of the bundles table, including `bundle`.
        """
        return rows_of(names, self.batches("bundles", columns) if names else ())

    def owners(self, bundles: Collection[str]) -> dict[str, set[str]]:
        """Return the brokers that report each bundle, by bundle; bundles that no broker reports are not included."""
        owners: dict[str, set[str]] = {}
        for row in self.bundles_named(bundles, ["bundle", "broker"]):
            owners.setdefault(row["bundle"], set()).add(row["broker"])
        return owners

    def clients(self, bundles: Collection[str]) -> dict[str, dict[str, int]]:
        """Return each bundle's number of topics, producers and consumers (`CLIENTS`)."""
        rows = self.bundles_named(bundles, ["bundle", *CLIENTS])
        return {row["bundle"]: {name: row[name] or 0 for name in CLIENTS} for row in rows}

    @property
    def state_folder(self) -> StoragePath:
        """Return the folder with the cluster's moving averages."""
        return state_of(self.folder)

    @cached_property
    def known_means(self) -> StoragePath | None:
        """Return the file with the moving averages from the last counted sample; None if there is none.

        The means then start with this sample, as in Pulsar after a change of leader.
        """
        return known_file(self.state_folder, self.before.decision.means, MEANS)


_LOOKED_AT = 20
"""Maximum number of recent runs to search for one that was validated."""


def latest_sample(storage: ClusterStorage, now: datetime, max_age_seconds: float) -> Snapshot:
    """Return the sample of the latest run that was validated.

    Raises:
        SnapshotError: `file_missing` if there is none, `report_stale` if it is too old, `blocked` if validation stopped
            the run; or a file cannot be read.
    """
    for folder in islice(storage.latest_runs(now + SKEW), _LOOKED_AT):
        if (folder / Validation.FILE).exists():
            break
    else:
        raise SnapshotError(Reason.FILE_MISSING, "no run has validated a sample")
    snapshot = Snapshot(folder)
    age = (now - snapshot.request.collected_at).total_seconds()
    if age > max_age_seconds:
        raise SnapshotError(Reason.REPORT_STALE, f"the latest sample is {age:.0f} s old, limit {max_age_seconds:g} s")
    blocking = snapshot.validation.reasons(Effect.BLOCK)
    if blocking:
        raise SnapshotError(Reason.BLOCKED, f"validation stopped the latest run: {', '.join(blocking)}")
    return snapshot


FEWEST_TOPICS = 2
"""A bundle with fewer topics is never split."""


class TopicLoad(NamedTuple):
    """The load of one topic in a bundle.

    Attributes:
        position: hash of the topic's full name.
        msg_rate: inbound plus outbound, in msg/s.
        msg_throughput: inbound plus outbound, in bytes/s.
    """

    position: int
    msg_rate: float = 0.0
    msg_throughput: float = 0.0


class Candidate(BaseModel):
    """One bundle that may need to be split.

    Attributes:
        bundle: `tenant/namespace/0x…_0x…`.
        bounds: bounds of the namespace's bundles, ascending; empty if they could not be read.
        topics: hash, msg/s and bytes/s for each topic that the owner lists; None if they could not be read.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    bundle: str
    bounds: tuple[int, ...] = ()
    topics: tuple[TopicLoad, ...] | None = None


class Candidates(VersionedDocument):
    """The bundles in a run that may need to be split. A run without this file has none."""

    FILE: ClassVar[str] = "input/splits.json"

    bundles: tuple[Candidate, ...] = ()


def find_run(storage: ClusterStorage, address: str, airflow_run_id: str) -> StoragePath:
    """Return the folder at an address, after checking that it belongs to this cluster and DAG run.

    Without this check, anyone who can write an XCom could make a task carry out another run's plan or read another
    run's files.

    Args:
        address: address of the run's folder, as the *collect* task returned it.

    Raises:
        PlanError: `foreign_run` if the folder is not one of the cluster's runs, is outside the storage root because of
            a link, or contains the request of another cluster or DAG run.
        SnapshotError: the folder's request cannot be read.
    """
    run = storage.run(StoragePath(address).name)
    request = None if run is None else run / "input" / "settings.json"
    if run is None or request is None or run.uri != address or not lies_below(storage.root, request):
        raise PlanError(Reason.FOREIGN_RUN, f"{address[:200]!a} is not a run of cluster {storage.cluster}")
    if not belongs(request.read_json(), storage.cluster, airflow_run_id):
        raise PlanError(
            Reason.FOREIGN_RUN, f"{run.uri} is not of run {airflow_run_id[:200]!a} of cluster {storage.cluster}"
        )
    return run


def belongs(request: object, cluster: str, airflow_run_id: str) -> bool:
    """Return whether a request (`input/settings.json`) is from this cluster and DAG run."""
    named = (request.get("cluster"), request.get("airflow_run_id")) if isinstance(request, dict) else None
    return named == (cluster, airflow_run_id)


def lies_below(root: str, file: StoragePath) -> bool:
    """Return whether a file is below the root after links are resolved. Object stores have no links."""
    file_system, path = file.open()
    if not isinstance(file_system, LocalFileSystem):
        return True
    return Path(path).resolve().is_relative_to(Path(StoragePath(root).open()[1]).resolve())
