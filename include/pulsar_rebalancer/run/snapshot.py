"""A run's documents and tables, as written by the *collect* and *validate* tasks."""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.names import is_extensible
from pulsar_rebalancer.policies.cluster_policies import Policies
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.compacted_tables import TABLES, opened
from pulsar_rebalancer.run.request import RunRequest, Validation
from pulsar_rebalancer.run.state_before import StateBefore
from pulsar_rebalancer.run.tables import BUNDLES, INPUT, TIME, VERSION, broker_samples, rows_of, version_of
from pulsar_rebalancer.storage.layout import state_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    import pyarrow.parquet as pq

    from pulsar_rebalancer.config.settings import Settings
    from pulsar_rebalancer.run.tables import BrokerSample, Row
    from pulsar_rebalancer.storage.path import StoragePath

CLIENTS = ("topics", "producers", "consumers")
"""Columns of the bundles table that count the topics and clients disturbed by moving the bundle."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Snapshot:
    """The files of a run. Each file is read on first use; it can be missing or damaged.

    Every property can raise a SnapshotError (`file_missing`, `file_damaged`, `file_version`) or a StateError
    (`state_version`).

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

        Also return None if the file is missing: the means then start with this sample, as in Pulsar after a change of
        leader.
        """
        file = self.state_folder / self.before.decision.means
        return file if self.before.decision.means and file.exists() else None
