"""A run's documents and tables, as written by the *collect* and *validate* tasks."""

from __future__ import annotations

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
from pulsar_rebalancer.run.compacted_tables import batches
from pulsar_rebalancer.run.request import RunRequest, Validation
from pulsar_rebalancer.run.state_before import StateBefore
from pulsar_rebalancer.run.tables import INPUT, TIME, VERSION, broker_samples, version_of
from pulsar_rebalancer.storage.path import damage_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

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

    def brokers_without(self, left_out: Mapping[str, Reason]) -> list[BrokerSample]:
        """Return the brokers, sorted by name. Brokers without a report are always marked as left out.

        Args:
            left_out: why a broker can be neither source nor destination, by broker.
        """
        return broker_samples(self._listed, left_out)

    @cached_property
    def silent(self) -> frozenset[str]:
        """Return the names of the brokers without a report."""
        return frozenset(row["broker"] for row in self._listed if row["error"])

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
        cluster = self.file("cluster").read_table(["load_manager"])
        return any(is_extensible(name or "") for name in cluster["load_manager"].to_pylist())

    def table(self, name: str) -> pa.Table:
        """Return an input table with all its rows."""
        file = self.file(name)
        content = file.read_table()
        self.check(name, content.schema)
        with damage_of(file.uri):
            return content.cast(INPUT[name])

    def check(self, name: str, found: pa.Schema) -> None:
        """Reject an input table whose version or columns differ from this release's.

        Raises:
            SnapshotError: `file_version`.
        """
        version = version_of(found)
        if version != VERSION or found.names != INPUT[name].names:
            what = f"is of version {version or 'none'}" if version != VERSION else "has other columns"
            where = f"{self.folder.uri}: table {name}"
            raise SnapshotError(Reason.FILE_VERSION, f"{where} {what}, this release reads version {VERSION}")

    def bundles_named(self, names: Collection[str], columns: list[str]) -> list[Row]:
        """Return the rows of these bundles, one for each broker that reports a bundle.

        Any version of the table is accepted.

        Args:
            columns: columns of the bundles table, including `bundle`.
        """
        wanted = pa.array(sorted(names), pa.string())
        # Read in batches: a cluster may have a million bundles.
        parts = (part.filter(pc.is_in(part["bundle"], wanted)) for part in batches(self.file("bundles"), columns))
        return [row for part in (parts if names else ()) for row in part.to_pylist()]

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

    def means_in(self, state_folder: StoragePath) -> StoragePath | None:
        """Return the file with the moving averages from the last counted sample; None if there is none.

        Also return None if the file is missing: the means then start with this sample, as in Pulsar after a change of
        leader.

        Args:
            state_folder: folder with the cluster's means.
        """
        file = state_folder / self.before.decision.means
        return file if self.before.decision.means and file.exists() else None

    def file(self, name: str) -> StoragePath:
        """Return the file for an input table."""
        return self.folder / "input" / f"{name}.parquet"
