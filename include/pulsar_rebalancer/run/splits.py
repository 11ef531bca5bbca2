"""The bundles that a plan splits: the rows of `plan/splits.parquet`, and the outcomes of the splits."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from pulsar_rebalancer.config.enums import SplitAlgorithm
from pulsar_rebalancer.config.pulsar_settings import MIB
from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.names import HashRange, namespace_of, range_of
from pulsar_rebalancer.reasons import Reason, Trait
from pulsar_rebalancer.run.tables import SPLITS, table
from pulsar_rebalancer.storage import documents

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from pulsar_rebalancer.run.tables import Row
    from pulsar_rebalancer.state.state_documents import BundleSplit
    from pulsar_rebalancer.storage.path import StoragePath


_UNITS = {"topics": "topics", "sessions": "producers and consumers", "msg_rate": "msg/s", "bandwidth": "MiB/s"}


class Split(BaseModel):
    """One bundle that a plan splits.

    Attributes:
        bundle: `tenant/namespace/0x…_0x…`.
        broker: brokerId of the bundle's owner when the plan was made.
        algorithm: the algorithm that determined the positions.
        positions: hashes at which to cut, ascending, all within the bundle's range.
        shares: share of the bundle's traffic (0 to 1) in each bundle it is split into; one more item than `positions`.
        unload: True if the new bundles are unloaded afterwards, so that placement can put them on different brokers.
        condition: Pulsar's condition that the bundle met; empty for a manual split.
        value, bound: the figure that met the condition, and the bound that it exceeds, in the unit of the setting that
            defines the condition.
    """

    model_config = ConfigDict(frozen=True)

    bundle: str
    broker: str
    algorithm: SplitAlgorithm
    positions: tuple[int, ...]
    shares: tuple[float, ...]
    unload: bool = False
    condition: str = ""
    value: float = 0.0
    bound: float = 0.0

    @property
    def cut(self) -> str:
        """Return text that lists where the bundle is cut, and each part's share of the bundle's traffic."""
        return in_parts(self.positions, self.shares) + ("; its parts are unloaded" if self.unload else "")

    @property
    def excess(self) -> str:
        """Return text that says how far the bundle exceeds its condition's bound; empty for a manual split."""
        return excess(self.condition, self.value, self.bound) if self.condition else ""

    @property
    def parts(self) -> dict[str, float]:
        """Return the names of the bundles that this bundle is split into, each with its share of traffic (0 to 1)."""
        return dict(zip(parts_of(self.bundle, self.positions), self.shares, strict=True))


def excess(condition: str, value: float, bound: float) -> str:
    """Return text such as "300 msg/s, more than 200" for a figure and its bound, in the unit of the setting."""
    scale, digits = (MIB, 1) if condition == "bandwidth" else (1, 0)
    figure, most = (f"{amount / scale:,.{digits}f}" for amount in (value, bound))
    return f"{figure} {_UNITS[condition]}, more than {most}"


def at_positions(positions: Iterable[int]) -> str:
    """Return positions as comma-separated hexadecimal numbers."""
    return ", ".join(f"0x{position:08x}" for position in positions)


def in_parts(positions: Iterable[int], shares: Iterable[float]) -> str:
    """Return text that lists where a bundle is cut, and each part's share of the bundle's traffic in percent."""
    each = ", ".join(f"{100 * share:.0f} %" for share in shares)
    return f"at {at_positions(positions)} into parts with {each} of its traffic"


def parts_of(bundle: str, positions: Iterable[int]) -> list[str]:
    """Return the names of the bundles that result from cutting a bundle at these positions."""
    lower, upper = (int(bound, 16) for bound in range_of(bundle).split("_"))
    ends = pairwise((lower, *positions, upper))
    return [f"{namespace_of(bundle)}/0x{low:08x}_0x{high:08x}" for low, high in ends]


def parts_by_bundle(splits: Mapping[str, BundleSplit]) -> dict[str, dict[str, float]]:
    """Return the parts of each split bundle, with each part's share of the traffic (0 to 1).

    The parts are the bundles that the bundle is split into.
    """
    return {
        bundle: dict(zip(parts_of(bundle, split.positions), split.shares, strict=True))
        for bundle, split in splits.items()
    }


def recently_split(bundle: str, splits: Mapping[str, BundleSplit], now: datetime, grace_minutes: float) -> bool:
    """Return whether a bundle, or a bundle that contained it, was split within the grace period."""
    grace = timedelta(minutes=grace_minutes)
    return any(
        namespace_of(name) == namespace_of(bundle)
        and HashRange.of(name).contains(HashRange.of(bundle))
        and -grace <= now - split.at <= grace
        for name, split in splits.items()
    )


class SplitOutcome(BaseModel):
    """The outcome of one split.

    Attributes:
        bundle: `tenant/namespace/0x…_0x…`.
        positions: hashes at which the plan cuts the bundle.
        found: bounds of the bundles within this bundle's range, as the brokers reported them after the split.
        attempts: number of requests that a broker accepted.
        seconds: time from the first read to the outcome.
        error: the error message from a broker or the connection, if it caused the outcome; it contains no secrets.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    bundle: str
    positions: tuple[int, ...]
    found: tuple[int, ...] = ()
    reason: Reason
    attempts: int = 0
    seconds: float = 0.0
    error: str = ""

    @property
    def ok(self) -> bool:
        """Return whether the bundle is split as planned."""
        return self.reason.has(Trait.SPLIT_AS_PLANNED)

    @property
    def read_back(self) -> str:
        """Return a phrase that lists the bounds after the split."""
        return f"bounds {self.found}"


def not_split(split: Split, reason: Reason) -> SplitOutcome:
    """Return an outcome that says why a split was not started."""
    return SplitOutcome(bundle=split.bundle, positions=split.positions, reason=reason)


def write_splits(run: StoragePath, rows: Sequence[Row]) -> list[Row]:
    """Write `plan/splits.parquet` if there are rows.

    Returns:
        The rows of the bundles to split, as read back from the file, for `plan_hash`.
    """
    if not rows:
        return []
    _file(run).write_table(table(rows, SPLITS))
    return taken_rows(run)


def taken_rows(run: StoragePath) -> list[Row]:
    """Return the rows of the bundles that a plan splits; empty if the plan has no `splits.parquet`.

    Raises:
        SnapshotError: `file_damaged` or `storage_failed`.
    """
    file = _file(run)
    return [row for row in file.read_table().to_pylist() if row["taken"]] if file.exists() else []


def splits_of(rows: Iterable[Row]) -> list[Split]:
    """Convert the table's rows to splits, in the order in which they are carried out."""
    ordered = sorted(rows, key=lambda row: row["rank"])
    return [
        Split.model_validate({name: row[name] for name in Split.model_fields if row[name] is not None})
        for row in ordered
    ]


def read_splits(run: StoragePath) -> list[Split]:
    """Return a plan's splits, in the order in which they are carried out.

    Raises:
        SnapshotError: `file_damaged` or `storage_failed`.
    """
    try:
        return splits_of(taken_rows(run))
    except (KeyError, TypeError, ValueError) as error:
        raise SnapshotError(
            Reason.FILE_DAMAGED, f"{run.uri}: no splits in plan/splits.parquet ({error!r:.200})"
        ) from None


def outcomes_file(run: StoragePath) -> StoragePath:
    """Return the file with the outcomes of a run's splits."""
    return run / "unload" / "splits.json"


def read_outcomes(run: StoragePath) -> dict[str, SplitOutcome]:
    """Return the outcomes of a run's splits, by bundle; empty if no split has started.

    Raises:
        SnapshotError: the file cannot be read.
    """
    file = outcomes_file(run)
    rows = file.read_json() if file.exists() else []
    return {outcome.bundle: outcome for outcome in (documents.load(SplitOutcome, row, file.uri) for row in rows)}


def _file(run: StoragePath) -> StoragePath:
    return run / "plan" / "splits.parquet"
