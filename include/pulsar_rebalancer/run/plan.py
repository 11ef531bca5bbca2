"""A plan made by the *decide* task: its files, its hash, and the moves for the *unload* task."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from pydantic import AwareDatetime, BaseModel, ConfigDict, JsonValue

from pulsar_rebalancer.config.clusters_file import RunSettings
from pulsar_rebalancer.config.field_types import Action, SplitAlgorithm
from pulsar_rebalancer.config.pulsar_settings import MIB
from pulsar_rebalancer.errors import PlanError, SnapshotError
from pulsar_rebalancer.names import HashRange, namespace_of, range_of
from pulsar_rebalancer.reasons import Reason, Trait
from pulsar_rebalancer.run.request import DrainProgress, ManualPlanRecord
from pulsar_rebalancer.run.tables import SPLITS, Cell, Row, table
from pulsar_rebalancer.state import BundleSplit, DecisionState
from pulsar_rebalancer.storage.documents import VersionedDocument, validate_document
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer.texts import number_of

if TYPE_CHECKING:
    import pyarrow as pa


_UNITS = {"topics": "topics", "sessions": "producers and consumers", "msg_rate": "msg/s", "bandwidth": "MiB/s"}


class Split(BaseModel):
    """One bundle that a plan splits.

    Attributes:
        bundle: `tenant/namespace/0x…_0x…`.
        positions: hashes at which to cut, ascending, all within the bundle's range.
        shares: share of the bundle's traffic (0 to 1) in each new bundle; one more item than `positions`.
        unload: True if the new bundles are unloaded, so that placement can put them on different brokers.
        condition: Pulsar's condition that the bundle met; empty for a manual split.
        value, bound: the value that met the condition and the bound that it exceeds, in the setting's unit.
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
    def cut_text(self) -> str:
        return parts_text(self.positions, self.shares) + ("; the parts are unloaded" if self.unload else "")

    @property
    def excess_text(self) -> str:
        return excess_text(self.condition, self.value, self.bound) if self.condition else ""

    @property
    def share_by_part(self) -> dict[str, float]:
        return dict(zip(part_names(self.bundle, self.positions), self.shares, strict=True))


def excess_text(condition: str, value: float, bound: float) -> str:
    scale, digits = (MIB, 1) if condition == "bandwidth" else (1, 0)
    shown, most = (f"{amount / scale:,.{digits}f}" for amount in (value, bound))
    return f"{shown} {_UNITS[condition]}, more than {most}"


def positions_text(positions: Iterable[int]) -> str:
    return ", ".join(f"0x{position:08x}" for position in positions)


def parts_text(positions: Iterable[int], shares: Iterable[float]) -> str:
    return f"at {positions_text(positions)} into parts with {percent_text(shares)} of the traffic"


def percent_text(shares: Iterable[float]) -> str:
    return ", ".join(f"{100 * share:.0f} %" for share in shares)


def part_names(bundle: str, positions: Iterable[int]) -> list[str]:
    lower, upper = (int(bound, 16) for bound in range_of(bundle).split("_"))
    ends = pairwise((lower, *positions, upper))
    return [f"{namespace_of(bundle)}/0x{low:08x}_0x{high:08x}" for low, high in ends]


def shares_of_parts(splits: Mapping[str, BundleSplit]) -> dict[str, dict[str, float]]:
    return {
        bundle: dict(zip(part_names(bundle, split.positions), split.shares, strict=True))
        for bundle, split in splits.items()
    }


MAX_WAVE_DELAY = timedelta(minutes=5)
"""Time by which a plan may exceed its maximum age when a later wave begins."""

SPLIT_GRACE = timedelta(hours=1)
"""Time during which the parts of a split bundle are not split again, so that clients and averages settle first."""


def was_recently_split(bundle: str, splits: Mapping[str, BundleSplit], now: datetime) -> bool:
    return any(
        namespace_of(name) == namespace_of(bundle)
        and HashRange.of_bundle(name).contains_range(HashRange.of_bundle(bundle))
        and -SPLIT_GRACE <= now - split.at <= SPLIT_GRACE
        for name, split in splits.items()
    )


class SplitOutcome(BaseModel):
    """The outcome of one split.

    Attributes:
        positions, found: hashes at which the plan cuts, and bounds that the brokers reported afterwards.
        attempts: number of requests that a broker accepted.
        seconds: time from the first read to the outcome.
        error: the error message that caused the outcome, if any; it contains no secrets.
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
        return self.reason.has(Trait.SPLIT_AS_PLANNED)

    @property
    def reported_text(self) -> str:
        return f"bounds {self.found}"


def unsplit(split: Split, reason: Reason) -> SplitOutcome:
    return SplitOutcome(bundle=split.bundle, positions=split.positions, reason=reason)


def write_splits(run: StoragePath, rows: Sequence[Row]) -> list[Row]:
    """Write `plan/splits.parquet` if there are rows; return those to split as read back, for `plan_hash`."""
    if rows:
        (run / _SPLITS_FILE).write_table(table(rows, SPLITS))
    return split_rows(run)


def split_rows(run: StoragePath) -> list[Row]:
    """Return the rows of the bundles that a plan splits; empty if the plan has no `splits.parquet`.

    Raises SnapshotError `file_damaged` or `storage_failed`.
    """
    file = run / _SPLITS_FILE
    return [row for row in file.read_table().to_pylist() if row["taken"]] if file.exists() else []


def parsed_splits(rows: Iterable[Row]) -> list[Split]:
    ordered = sorted(rows, key=lambda row: row["rank"])
    return [
        Split.model_validate({name: row[name] for name in Split.model_fields if row[name] is not None})
        for row in ordered
    ]


def read_splits(run: StoragePath) -> list[Split]:
    try:
        return parsed_splits(split_rows(run))
    except (KeyError, TypeError, ValueError) as error:
        raise SnapshotError(
            Reason.FILE_DAMAGED, f"{run.uri}: plan/splits.parquet cannot be used ({error!r:.200})"
        ) from None


def split_outcomes_file(run: StoragePath) -> StoragePath:
    return run / "unload" / "splits.json"


def outcome_by_split(run: StoragePath) -> dict[str, SplitOutcome]:
    """Return the outcomes of a run's splits, by bundle; empty if no split has started.

    Raises SnapshotError if the file cannot be read.
    """
    file = split_outcomes_file(run)
    rows = file.read_json() if file.exists() else []
    return {outcome.bundle: outcome for outcome in (validate_document(SplitOutcome, row, file.uri) for row in rows)}


_DECISIONS, _MOVES, _STATE = "plan/decisions.parquet", "plan/moves.parquet", "plan/state.json"
_SPLITS_FILE = "plan/splits.parquet"

MAX_WAVES = 16
"""Maximum number of waves if bundles with equal hash ranges must not move at the same time (`caps.needs_waves`)."""

MAX_BUNDLES_PER_WAVE = 200
"""Maximum number of bundles in a wave unless `MAX_WAVES` applies. The gate is checked again before every wave."""

RUN_TIMEOUT = timedelta(minutes=30)
"""Timeout of a DAG run: a plan or task that is older cannot belong to a run in progress."""


class ForcedRun(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    by: str
    reason: str
    threshold: float | None


class Summary(VersionedDocument):
    """`plan/summary.json`, which is written last. A run without this file has no plan.

    Scores are in percent, None if no brokers are compared; predictions take them as proportional to traffic.

    Attributes:
        plan_id: name of the run's folder.
        base_seq: sequence number of the state from which the plan was made.
        hash: hash of decisions, accepted moves, new state and splits. It does not depend on the Spark master,
            partitioning or the order of the input.
        requesters: users who set the run's parameters, or started the roll for which it moves bundles.
        by_hand: record of the request, if an operator made the plan; else None.
        counting: reason code that explains whether the run counted hits.
        pairs: number of pairs compared; 0 for a strategy without pairs.
        pairs_over: number of pairs with a gap at or above the low threshold.
        pairs_fired, reasons: number of pairs or brokers that fired, and number for each reason code.
        hits: highest number of hits of any pair before hits are reset, as `[low, high]` by threshold.
        in_force: the orders in force at the time of the sample (such as a drain), and who gave them.
        split_skip_reasons: number of bundles that met a split condition but are not split, by reason code.
        splits_told: sentences about planned splits, bundles that are not split, and splits that would help.
    """

    FILE: ClassVar[str] = "plan/summary.json"

    plan_id: str
    cluster: str
    airflow_run_id: str
    base_seq: int
    hash: str
    collected_at: AwareDatetime
    forced: ForcedRun | None = None
    requesters: tuple[str, ...] = ()
    by_hand: ManualPlanRecord | None = None
    drains: dict[str, DrainProgress] = {}
    counting: Reason
    score_min: float | None
    score_max: float | None
    score_mean: float | None
    brokers: int
    pairs: int
    pairs_over: int
    pairs_fired: int
    hits: tuple[int, int]
    reasons: dict[Reason, int] = {}
    sentence: str = ""
    in_force: str = ""
    bundles_taken: int
    bundle_skip_reasons: dict[Reason, int]
    waves: int
    predicted_min: float | None
    predicted_max: float | None
    bundles_split: int = 0
    split_skip_reasons: dict[Reason, int] = {}
    splits_told: tuple[str, ...] = ()
    resolved: RunSettings

    @property
    def requested_by(self) -> frozenset[str]:
        """Return the users who requested the plan or some of its moves; empty if the strategy decided it all.

        The name is empty for a request without a user, for example from a task in another DAG.
        """
        requests = (self.by_hand, self.forced, *(drain for drain in self.drains.values() if drain.moving))
        return frozenset(self.requesters).union(request.by for request in requests if request is not None)

    @property
    def is_drain_plan(self) -> bool:
        return self.by_hand is not None and self.by_hand.request.action is Action.DRAIN

    @property
    def has_effect(self) -> bool:
        """Return whether carrying out the plan has an effect. A drain has one even without bundles."""
        return self.is_drain_plan or bool(self.bundles_taken or self.bundles_split)

    @property
    def actions_text(self) -> str:
        """Return what the plan does, such as "move 4 bundles"; empty if nothing."""
        amounts = ((self.bundles_taken, "move", ""), (self.bundles_split, "split", " permanently"))
        return " and ".join(f"{verb} {number_of(count, 'bundle')}{how}" for count, verb, how in amounts if count)

    @property
    def gate_deadline(self) -> datetime:
        return self.collected_at + timedelta(seconds=self.resolved.settings.max_plan_age_seconds)

    @property
    def manual_plan_deadline(self) -> datetime:
        """Return the time after which a manual plan that was shown may no longer be carried out."""
        return self.collected_at + timedelta(minutes=self.resolved.settings.max_awaiting_minutes)

    @property
    def wave_start_deadline(self) -> datetime:
        """Return the latest start of a wave. Loads change, so a plan must not wait long."""
        return self.gate_deadline + MAX_WAVE_DELAY

    @property
    def wave_resume_deadline(self) -> datetime:
        """Return when an interrupted wave may last resume: later, because it must find owners for its bundles."""
        return max(self.collected_at + RUN_TIMEOUT, self.wave_start_deadline)

    @property
    def score_range(self) -> float:
        return 0.0 if self.score_max is None or self.score_min is None else self.score_max - self.score_min

    @property
    def predicted_range(self) -> float | None:
        low, high = self.predicted_min, self.predicted_max
        return None if low is None or high is None else high - low


class Move(BaseModel):
    model_config = ConfigDict(frozen=True)

    bundle: str
    source: str
    destination: str
    wave: int
    traffic: float
    measure: str
    msg_throughput: float = 0.0


def write_plan_tables(run: StoragePath, moves: pa.Table, decisions: pa.Table, state: Mapping[str, JsonValue]) -> None:
    (run / _MOVES).write_table(moves)
    (run / _DECISIONS).write_table(decisions)
    (run / _STATE).write_json(state)


def read_decisions(run: StoragePath) -> list[Row]:
    return (run / _DECISIONS).read_table().to_pylist()


def read_moves(run: StoragePath) -> list[Move]:
    try:
        return _moves_of_rows(taken_candidates(run))
    except (KeyError, TypeError, ValueError) as error:
        raise SnapshotError(Reason.FILE_DAMAGED, f"{run.uri}: {_MOVES} cannot be used ({error!r:.200})") from None


def taken_candidates(run: StoragePath) -> list[Row]:
    """Return the rows of `plan/moves.parquet` for the bundles that the plan moves.

    Raises SnapshotError `file_missing`, `file_damaged` or `storage_failed`.
    """
    found = candidates_table(run)
    return found.filter(found["taken"]).to_pylist()


def candidates_table(run: StoragePath) -> pa.Table:
    """Return `plan/moves.parquet`; raises as `taken_candidates` does."""
    return (run / _MOVES).read_table()


def candidate_rows(run: StoragePath) -> list[Row]:
    return (run / _MOVES).read_table(["bundle", "pair", "source", "reason", "taken"]).to_pylist()


def _moves_of_rows(rows: list[Row]) -> list[Move]:
    ordered = sorted(rows, key=lambda row: (row["wave"], row["pair"], row["rank"]))
    return [Move.model_validate({name: row[name] for name in Move.model_fields}) for row in ordered]


def read_plan_state(run: StoragePath) -> DecisionState:
    file = run / _STATE
    return DecisionState.parse(file.read_json(), file.uri)


def plan_hash(
    decisions: Iterable[Mapping[str, Cell]],
    moves: Iterable[Mapping[str, Cell]],
    state: Mapping[str, JsonValue],
    splits: Iterable[Row] = (),
) -> str:
    """Return the SHA-256 hash of a plan's rows in a canonical order, with floats in shortest exact form.

    `moves` and `splits` have only bundles that move or are split; empty `splits` do not change the hash.
    """
    parts = [_sorted_json(decisions), _sorted_json(moves), state, *filter(None, [_sorted_json(splits)])]
    canonical = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _sorted_json(rows: Iterable[Mapping[str, Cell]]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True, separators=(",", ":")) for row in rows)


class Actions(NamedTuple):
    """A plan's actions. Splits are carried out before moves."""

    moves: Sequence[Move]
    splits: Sequence[Split]

    @property
    def unloaded_bundles(self) -> list[str]:
        return [move.bundle for move in self.moves] + [split.bundle for split in self.splits if split.unload]

    @property
    def identity(self) -> str:
        """Return the SHA-256 hash of the actions, which unlike the plan's does not depend on scores and samples."""
        moves = [[move.bundle, move.source, move.destination] for move in self.moves]
        splits = [[split.bundle, *split.positions] for split in self.splits]
        return hashlib.sha256(json.dumps([sorted(moves), sorted(splits)]).encode()).hexdigest()


def verified_actions(run: StoragePath, summary: Summary) -> Actions:
    """Check a plan's files against its hash; return its actions. Raises PlanError `plan_changed`."""
    decisions = read_decisions(run)
    state = (run / _STATE).read_json()
    try:
        # The files are read only once, so that exactly the hashed content is carried out, even if someone changes them.
        taken, splits = taken_candidates(run), split_rows(run)
        same = plan_hash(decisions, taken, state, splits) == summary.hash
    except (KeyError, TypeError, ValueError):  # other columns, or values of other kinds
        same = False
    if not same:
        raise PlanError(Reason.PLAN_CHANGED, f"the files of plan {summary.plan_id} were changed after planning")
    return Actions(_moves_of_rows(taken), parsed_splits(splits))
