"""A plan made by the *decide* task: its files, its hash, and the moves for the *unload* task."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from pydantic import AwareDatetime, BaseModel, ConfigDict

from pulsar_rebalancer.config.enums import Action
from pulsar_rebalancer.config.resolution import Resolved
from pulsar_rebalancer.errors import PlanError, SnapshotError
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.manual_request import ByHand, DrainProgress
from pulsar_rebalancer.run.splits import splits_of, taken_rows
from pulsar_rebalancer.state.state_documents import DecisionState
from pulsar_rebalancer.storage.documents import VersionedDocument

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa
    from pydantic import JsonValue

    from pulsar_rebalancer.run.splits import Split
    from pulsar_rebalancer.run.tables import Cell, Row
    from pulsar_rebalancer.storage.path import StoragePath

_DECISIONS, _MOVES, _STATE = "plan/decisions.parquet", "plan/moves.parquet", "plan/state.json"

MAX_WAVES = 16
"""Maximum number of waves if bundles with equal hash ranges must not move at once (`caps.needs_waves`)."""

OF_A_WAVE = 200
"""Maximum number of bundles in a wave unless `MAX_WAVES` applies. The gate is checked again before every wave."""


LONGEST_RUN = timedelta(minutes=30)
"""Timeout for a DAG run: anything older cannot belong to a run that is still in progress."""


class Forced(BaseModel):
    """A forced rebalance: who forced it, why, and the smallest gap (in points) at which AvgShedder moves bundles."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    by: str
    reason: str
    threshold: float | None


class Summary(VersionedDocument):
    """`plan/summary.json`, which is written last. A run without this file has no plan.

    Attributes:
        plan_id: name of the run's folder.
        base_seq: sequence number of the state from which the plan was made.
        hash: hash of decisions, accepted moves, new state and splits. It does not depend on the Spark master,
            partitioning or the order of the input.
        by_hand: record of the request, if a person made the plan; else None.
        drains: progress of each drain, by drained broker.
        counting: reason code that explains whether the run counted hits.
        score_min, score_max, score_mean: scores of the compared brokers, in percent; None if no brokers were compared.
        pairs: number of pairs compared; 0 for a strategy without pairs.
        pairs_over: number of pairs with a gap at or above the low threshold.
        pairs_fired: number of pairs or brokers that fired.
        hits: highest number of hits for any pair before hits are reset, as `[low, high]`, one number per threshold.
        reasons: number of pairs or brokers for each reason code.
        sentence: the strategy's own explanation of its decision.
        in_force: a sentence about the orders in force when the sample was taken (such as a drain), and who gave them.
        bundles_taken: number of bundles to move.
        waves: number of waves in which the bundles move.
        predicted_min, predicted_max: lowest and highest score after the moves, in percent, assuming that scores are
            proportional to traffic.
        bundles_split: number of bundles to split.
        splits_passed_over: number of bundles that met a split condition but are not split, by reason code.
        splits_told: sentences about planned splits, about bundles that are not split, and about splits that would help.
    """

    FILE: ClassVar[str] = "plan/summary.json"

    plan_id: str
    cluster: str
    airflow_run_id: str
    base_seq: int
    hash: str
    collected_at: AwareDatetime
    forced: Forced | None = None
    by_hand: ByHand | None = None
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
    bundles_passed_over: dict[Reason, int]
    waves: int
    predicted_min: float | None
    predicted_max: float | None
    bundles_split: int = 0
    splits_passed_over: dict[Reason, int] = {}
    splits_told: tuple[str, ...] = ()
    resolved: Resolved

    @property
    def requested_by(self) -> frozenset[str]:
        """Return the users who requested the plan or some of its moves; empty if the strategy decided the whole plan.

        The name is empty for a request without a user, for example from a task in another DAG.
        """
        requests = (self.by_hand, self.forced, *(drain for drain in self.drains.values() if drain.moving))
        return frozenset(request.by for request in requests if request is not None)

    @property
    def marks_drains(self) -> bool:
        """Return whether carrying out the plan marks brokers as drained."""
        return self.by_hand is not None and self.by_hand.request.action is Action.DRAIN

    @property
    def has_effect(self) -> bool:
        """Return whether carrying out the plan has an effect. A drain always has an effect, even without bundles."""
        return self.marks_drains or bool(self.bundles_taken or self.bundles_split)

    @property
    def opens_until(self) -> datetime:
        """Return the time after which the gate no longer opens for the plan."""
        return self.collected_at + timedelta(seconds=self.resolved.settings.max_plan_age_seconds)

    @property
    def shown_until(self) -> datetime:
        """Return the time after which a manual plan that was shown may no longer be carried out."""
        return self.collected_at + timedelta(seconds=self.resolved.settings.max_shown_plan_age_seconds)

    @property
    def waves_begin_until(self) -> datetime:
        """Return the time after which no further wave may start. Loads change, so a plan must not wait long."""
        return self.opens_until + timedelta(seconds=self.resolved.settings.max_wave_delay_seconds)

    @property
    def waves_resume_until(self) -> datetime:
        """Return the time after which an interrupted wave may not resume.

        New waves must start earlier; an interrupted wave is still allowed to find owners for its unloaded bundles.
        """
        return max(self.collected_at + LONGEST_RUN, self.waves_begin_until)

    @property
    def score_range(self) -> float:
        """Return the highest minus the lowest score, in points; 0 if no brokers were compared."""
        return 0.0 if self.score_max is None or self.score_min is None else self.score_max - self.score_min

    @property
    def predicted_range(self) -> float | None:
        """Return the highest minus the lowest predicted score, in points; None if no brokers were compared."""
        low, high = self.predicted_min, self.predicted_max
        return None if low is None or high is None else high - low


class Move(BaseModel):
    """One bundle's move in a plan."""

    model_config = ConfigDict(frozen=True)

    bundle: str
    source: str
    destination: str
    wave: int
    traffic: float
    measure: str
    msg_throughput: float = 0.0


def write_moves(run: StoragePath, candidates: pa.Table) -> None:
    """Write `plan/moves.parquet`, which has all candidates, including those that do not move."""
    (run / _MOVES).write_table(candidates)


def write_decisions(run: StoragePath, decisions: pa.Table, state: Mapping[str, JsonValue]) -> None:
    """Write `plan/decisions.parquet`, and the new state as `plan/state.json`, which the *record* task commits."""
    (run / _DECISIONS).write_table(decisions)
    (run / _STATE).write_json(state)


def read_decisions(run: StoragePath) -> list[Row]:
    """Return the rows of `plan/decisions.parquet`. Raises the same errors as `taken_candidates`."""
    return (run / _DECISIONS).read_table().to_pylist()


def read_moves(run: StoragePath) -> list[Move]:
    """Return a plan's moves, sorted by wave, pair and rank.

    Raises:
        SnapshotError: `file_missing`, `file_damaged` or `storage_failed`.
    """
    try:
        return _moves(taken_candidates(run))
    except (KeyError, TypeError, ValueError) as error:
        raise SnapshotError(Reason.FILE_DAMAGED, f"{run.uri}: no moves in {_MOVES} ({error!r:.200})") from None


def taken_candidates(run: StoragePath) -> list[Row]:
    """Return the rows of `plan/moves.parquet` for the bundles that the plan moves.

    Raises:
        SnapshotError: `file_missing`, `file_damaged` or `storage_failed`.
    """
    candidates = (run / _MOVES).read_table()
    return candidates.filter(candidates["taken"]).to_pylist()


def considered(run: StoragePath) -> list[Row]:
    """Return the bundle, pair, source, reason and `taken` for every bundle that a plan considers.

    Raises:
        SnapshotError: `file_missing`, `file_damaged` or `storage_failed`.
    """
    return (run / _MOVES).read_table(["bundle", "pair", "source", "reason", "taken"]).to_pylist()


def _moves(taken: list[Row]) -> list[Move]:
    ordered = sorted(taken, key=lambda row: (row["wave"], row["pair"], row["rank"]))
    return [Move.model_validate({name: row[name] for name in Move.model_fields}) for row in ordered]


def read_state(run: StoragePath) -> DecisionState:
    """Return the state that the *decide* task made for the *record* task to commit.

    Raises:
        SnapshotError: `file_missing` or `file_damaged`.
        StateError: `state_version`.
    """
    return DecisionState.parse((run / _STATE).read_json())


def plan_hash(
    decisions: Iterable[Mapping[str, Cell]],
    moves: Iterable[Mapping[str, Cell]],
    state: Mapping[str, JsonValue],
    splits: Iterable[Row] = (),
) -> str:
    """Return the SHA-256 hash of a plan's rows in a canonical order, with floats in their shortest exact form.

    Args:
        decisions: rows of the decisions table.
        moves: rows of the moves table for bundles that move.
        state: the decision state as JSON values.
        splits: rows of the splits table for bundles that are split; if empty, the hash is the same as in releases
            without splits.
    """
    parts = [_ordered(decisions), _ordered(moves), state, *filter(None, [_ordered(splits)])]
    canonical = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _ordered(rows: Iterable[Mapping[str, Cell]]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True, separators=(",", ":")) for row in rows)


class Actions(NamedTuple):
    """A plan's actions. Splits are carried out before moves."""

    moves: Sequence[Move]
    splits: Sequence[Split]

    @property
    def unloaded(self) -> list[str]:
        """Return the names of the bundles whose clients must reconnect."""
        return [move.bundle for move in self.moves] + [split.bundle for split in self.splits if split.unload]

    @property
    def identity(self) -> str:
        """Return the SHA-256 hash of the actions. Unlike the plan's hash, it does not depend on scores and samples."""
        moves = [[move.bundle, move.source, move.destination] for move in self.moves]
        splits = [[split.bundle, *split.positions] for split in self.splits]
        return hashlib.sha256(json.dumps([sorted(moves), sorted(splits)]).encode()).hexdigest()


def verify(run: StoragePath, summary: Summary) -> Actions:
    """Check a plan's files against the recorded hash, and return its moves and splits.

    Raises:
        PlanError: `plan_changed` if one of the plan's files has changed since the plan was made.
    """
    decisions = read_decisions(run)
    state = (run / _STATE).read_json()
    try:
        # The files are read only once, so that exactly the hashed content is carried out, even if someone changes them.
        taken, splits = taken_candidates(run), taken_rows(run)
        same = plan_hash(decisions, taken, state, splits) == summary.hash
    except (KeyError, TypeError, ValueError):  # other columns, or values of other kinds
        same = False
    if not same:
        raise PlanError(Reason.PLAN_CHANGED, f"the files of plan {summary.plan_id} are not those that were decided")
    return Actions(_moves(taken), splits_of(splits))
