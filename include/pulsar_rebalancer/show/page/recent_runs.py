"""The latest runs of a cluster, with the brokers' scores in each run."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from itertools import islice, pairwise
from statistics import median
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.reasons import Effect, Reason, Trait
from pulsar_rebalancer.run.outcome import MoveOutcome, Outcome, read_move_outcomes
from pulsar_rebalancer.run.plan import SplitOutcome, Summary, outcome_by_split, read_plan_state
from pulsar_rebalancer.run.request import RunRequest, Validation
from pulsar_rebalancer.run.snapshot import Snapshot
from pulsar_rebalancer.run.tables import BrokerSample
from pulsar_rebalancer.show.measurements import Scores, scores_of
from pulsar_rebalancer.show.page.page_model import UndoView
from pulsar_rebalancer.storage.documents import Cache, ClusterStorage
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer.strategies.shedders.registry import run_left_out_reasons

if TYPE_CHECKING:
    _Document = TypeVar("_Document")
    _Ended = TypeVar("_Ended", MoveOutcome, SplitOutcome)


_MAX_RUNS_SEARCHED = 20
"""Number of latest runs to search for a run that has ended."""

_RECENT_PERIOD = timedelta(hours=1)
_OVERDUE_INTERVALS = 2.5
"""Age at which data is overdue, in intervals between runs: new data takes one interval and the duration of a run."""
_MIN_AGE_LIMIT_S = 60.0
_MEDIAN_RUNS = 6

_counted_at_cache: Cache[datetime] = Cache(20_000)


def _counted_sample_time(folder: StoragePath) -> datetime | None:
    """Return the time of the last counted sample after a run; None without a plan."""
    known = _counted_at_cache.get(folder.uri)
    state = None if known else _read_or_none(lambda: read_plan_state(folder))
    return known or (_counted_at_cache.put(folder.uri, state.counted_at) if state and state.counted_at else None)


def _median_interval(latest_first: Sequence[datetime]) -> float | None:
    steps = [(later - earlier).total_seconds() for later, earlier in pairwise(latest_first[:_MEDIAN_RUNS])]
    return median(steps) if len(steps) > 1 else None


@dataclass(frozen=True)
class Run:
    """The contents of a run's files. An attribute is None if its file does not exist or cannot be read.

    `wave_outcomes` and `ended_splits` have completed moves and splits by bundle; `has_opened` is True if the
    run is in progress and its gate has opened; `storage` is known for the latest runs only.
    """

    snapshot: Snapshot
    validation: Validation | None
    summary: Summary | None
    outcome: Outcome | None
    wave_outcomes: dict[str, MoveOutcome]
    ended_splits: dict[str, SplitOutcome]
    has_opened: bool = False
    storage: ClusterStorage | None = None

    @property
    def folder(self) -> StoragePath:
        return self.snapshot.folder

    @property
    def request(self) -> RunRequest:
        return self.snapshot.request

    @cached_property
    def brokers(self) -> list[BrokerSample]:
        """Return the readable brokers; `left_out` has the reason why a broker is left out.

        Exclusion in the settings takes precedence over quarantine by validation. Raises SnapshotError if the
        table of brokers cannot be read.
        """
        try:
            left_out = run_left_out_reasons(self.snapshot)
        except SnapshotError:
            left_out = dict.fromkeys(self.snapshot.settings.excluded_brokers, Reason.BROKER_EXCLUDED)
        quarantined = self.validation.quarantine_reasons if self.validation else {}
        own = {name: why for name, why in quarantined.items() if left_out.get(name) is not Reason.BROKER_EXCLUDED}
        return self.snapshot.read_broker_samples(left_out | own)

    def seconds_per_sample(self, settings: Settings) -> float:
        """Return the measured time between counted samples; before there are three, at least that of a run."""
        counted = dict.fromkeys(_counted_sample_time(folder) for _, folder in self._recent_runs())
        return _median_interval([at for at in counted if at]) or max(
            settings.interval_seconds, settings.host_usage_interval_minutes * 60, self.seconds_to_act
        )

    @property
    def seconds_to_act(self) -> float:
        """Seconds from the sample to the end of a run without moves, about when others begin to move; 0 with moves."""
        if self.outcome is None or self.has_moved or self.split_outcomes:
            return 0.0
        took = (self.outcome.ended_at - self.request.collected_at).total_seconds()
        return min(took, self.request.resolved.settings.max_plan_age_seconds)  # no move begins later

    def max_data_age(self, settings: Settings) -> timedelta:
        """Return the age at which the next run's data is overdue, given how often runs really begin."""
        step = max(settings.interval_seconds, _median_interval([at for at, _ in self._recent_runs()]) or 0)
        return timedelta(seconds=max(_OVERDUE_INTERVALS * step, _MIN_AGE_LIMIT_S))

    def _recent_runs(self) -> list[tuple[datetime, StoragePath]]:
        at = self.request.collected_at
        runs = islice(self.storage.dated_runs(at) if self.storage else (), _MAX_RUNS_SEARCHED)
        return [(begun, folder) for begun, folder in runs if at - begun < _RECENT_PERIOD]

    @property
    def move_outcomes(self) -> dict[str, MoveOutcome]:
        return {move.bundle: move for move in self.outcome.moves} if self.outcome else self.wave_outcomes

    @property
    def has_moved(self) -> bool:
        return any(not move.reason.has(Trait.NOT_BEGUN) for move in self.move_outcomes.values())

    @property
    def split_outcomes(self) -> dict[str, SplitOutcome]:
        return {split.bundle: split for split in self.outcome.splits} if self.outcome else self.ended_splits

    @property
    def is_under_way(self) -> bool:
        return self.outcome is None and bool(self.has_opened or self.wave_outcomes or self.ended_splits)

    @property
    def was_stopped(self) -> bool:
        """Return whether a stop order affects the run: bundles are being moved or split, or moves were stopped."""
        return self.is_under_way or any(move.reason is Reason.STOPPED for move in self.move_outcomes.values())

    @property
    def is_blocked(self) -> bool:
        return self.validation is not None and bool(self.validation.reason_counts(Effect.BLOCK))


def read_run(folder: StoragePath) -> Run | None:
    """Return the readable contents of a run; None if its request cannot be read."""
    snapshot = Snapshot(folder)
    if _read_or_none(lambda: snapshot.request) is None:
        return None
    outcome = Outcome.read_or_none(folder)
    return Run(
        snapshot=snapshot,
        validation=_read_or_none(lambda: snapshot.validation),
        summary=Summary.read_or_none(folder),
        outcome=outcome,
        wave_outcomes={} if outcome else _ended_outcomes(_read_or_none(lambda: read_move_outcomes(folder)) or {}),
        ended_splits={} if outcome else _ended_outcomes(_read_or_none(lambda: outcome_by_split(folder)) or {}),
    )


def _ended_outcomes(outcomes: dict[str, _Ended]) -> dict[str, _Ended]:
    return {bundle: outcome for bundle, outcome in outcomes.items() if outcome.reason is not Reason.INTERRUPTED}


def _read_or_none(read: Callable[[], _Document]) -> _Document | None:
    try:
        return read()
    except SnapshotError:
        return None


def latest_runs(storage: ClusterStorage, now: datetime, opened_run: str = "") -> tuple[Run | None, Run | None]:
    """Return the run in progress (else the latest run) and the latest run that has ended. A missing run is None.

    Dry runs are ignored, because they have neither an outcome nor a strategy decision.

    Args:
        opened_run: id of the DAG run that is in progress and whose gate has opened; empty if there is none.

    Raises:
        SnapshotError: `storage_failed`.
    """
    begun: Run | None = None
    runs = (read_run(folder) for folder in storage.latest_runs(now))
    for looked_at, run in enumerate(run for run in runs if run is None or not run.request.dry_run):
        if run is not None:
            run = replace(
                run,
                storage=storage,
                has_opened=bool(opened_run) and run.outcome is None and run.request.airflow_run_id == opened_run,
            )
        if run is not None and (begun is None or (run.is_under_way and not begun.is_under_way)):
            begun = run
        if run is not None and run.outcome is not None:
            return begun, run
        if looked_at == _MAX_RUNS_SEARCHED:
            break
    return begun, None


_scores_cache: Cache[Scores] = Cache(200_000)
"""Cache of scores by run folder, limited to this number of scores; each score takes about 100 bytes."""


def scores_are_cached(folder: StoragePath) -> bool:
    return _scores_cache.get(folder.uri) is not None


def known_scores(folder: StoragePath) -> Scores:
    """Return a run's scores, without excluded brokers; empty if unknown.

    Only known scores are cached: files never change once written, but missing files might still be written.
    """
    known = _scores_cache.get(folder.uri)
    if known is not None:
        return known
    run = Snapshot(folder)
    try:
        scores, excluded = scores_of(run), run.settings.excluded_brokers
    except SnapshotError:
        return Scores()
    kept = {sys.intern(broker): score for broker, score in scores.score_by_broker.items() if broker not in excluded}
    return _scores_cache.put(folder.uri, scores._replace(score_by_broker=kept), len(kept) + 1)


def rounded_or_none(value: float | None, factor: float = 1) -> float | None:
    """Multiply a value by a factor, and round to two decimals; None if it is missing or not finite."""
    return None if value is None or not math.isfinite(value) else round(value * factor, 2)


_MAX_RUNS_BACK = 240


class RunChange(NamedTuple):
    """What an ended run changed.

    `has_begun` is True if it began to move or split bundles; `undo_view` is None if it moved none.
    """

    folder: StoragePath
    ended_at: datetime
    has_begun: bool
    undo_view: UndoView | None


_changes_cache: Cache[RunChange] = Cache(20_000)


def latest_changes(storage: ClusterStorage, now: datetime) -> tuple[RunChange | None, UndoView | None]:
    """Return a cluster's latest change, and the latest run that moved bundles.

    Raises:
        SnapshotError: `storage_failed`.
    """
    latest = None
    for at, folder in islice(storage.dated_runs(now), _MAX_RUNS_BACK):
        change = run_change(folder, at)
        if change is None or not change.has_begun:
            continue
        latest = latest or change
        if change.undo_view is not None:
            return latest, change.undo_view
    return latest, None


def run_change(folder: StoragePath, collected_at: datetime) -> RunChange | None:
    """Return what a run changed; None if it has not ended."""
    known = _changes_cache.get(folder.uri)
    if known is not None:
        return known
    outcome = Outcome.read_or_none(folder)
    if outcome is None:
        return None
    planned = [*(move.reason for move in outcome.moves), *(split.reason for split in outcome.splits)]
    begun = [reason for reason in planned if not reason.has(Trait.NOT_BEGUN)]
    moved = UndoView(folder=folder.name, collected_at=collected_at) if outcome.moved_count else None
    change = RunChange(folder, outcome.ended_at, bool(begun), moved)
    # The waves of a stopped run can be cleared; they then carry out the rest.
    return change if len(begun) < len(planned) else _changes_cache.put(folder.uri, change)
