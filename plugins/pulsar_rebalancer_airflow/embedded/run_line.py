"""The line that `make run` prints for each run, and whether the cluster is balanced after the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.reasons import Effect, Reason, Trait, counted
from pulsar_rebalancer.run.outcome import Outcome
from pulsar_rebalancer.run.plan import Summary
from pulsar_rebalancer.run.request import Validation
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer.strategies.sample import Threshold
from pulsar_rebalancer.strategies.shedders.registry import profile_of
from pulsar_rebalancer.texts import number_of
from pulsar_rebalancer_airflow.embedded.local_airflow import DagRun, LocalAirflow


@dataclass(frozen=True)
class RunLine:
    """The line printed for one run, and the run's result.

    Attributes:
        balanced: the run plans no moves, and hit counts or a grace period delay none. If the strategy pairs
            brokers, the score range is also below the low threshold.
        moved: at least one move was verified.
        failed: why the run failed; empty if it succeeded.
        in_force: sentence about the orders at the run's end and who gave them; empty if unknown.
    """

    text: str
    balanced: bool = False
    moved: bool = False
    failed: str = ""
    in_force: str = ""


def describe(airflow: LocalAirflow, dag_id: str, run: DagRun, number: int) -> RunLine:
    begun, ended = (datetime.fromisoformat(run[name]) for name in ("start_date", "end_date"))
    head = f"{begun.astimezone():%H:%M:%S}  run {number:<3}"
    seconds = f"{(ended - begun).total_seconds():.1f} s"
    uri = airflow.xcom(dag_id, run["dag_run_id"], "collect")
    if run["state"] == "failed":
        reason = _failure(airflow, dag_id, run["dag_run_id"], uri)
        return RunLine(f"{head} FAILED  {reason}  {seconds}", failed=reason)
    try:
        summary, outcome = Summary.read(StoragePath(uri)), Outcome.read(StoragePath(uri))
    except (SnapshotError, AttributeError):
        return RunLine(f"{head} ended without a plan  {seconds}")
    text = f"{head} {_scores(summary)}  {_progress(summary)}  {_verdict(summary, outcome)}  {seconds}"
    moved = any(move.ok for move in outcome.moves)
    return RunLine(text, is_balanced(summary), moved=moved, in_force=outcome.in_force)


def is_balanced(summary: Summary) -> bool:
    later = Reason.RECENTLY_UNLOADED in summary.bundle_skip_reasons
    if summary.bundles_taken or later or Reason.having(Trait.WAITING) & summary.reasons.keys():
        return False
    thresholds = _thresholds(summary)
    return not thresholds or summary.score_range < thresholds["low"].gap


def _thresholds(summary: Summary) -> Mapping[str, Threshold]:
    settings = summary.resolved.settings
    return profile_of(settings).thresholds(settings)


def _scores(summary: Summary) -> str:
    if summary.score_min is None or summary.score_max is None:
        return "no broker could be judged"
    return f"range {summary.score_range:4.1f} ({summary.score_min:.1f} to {summary.score_max:.1f} %)"


def _progress(summary: Summary) -> str:
    thresholds = _thresholds(summary)
    if not thresholds:
        return f"{summary.resolved.settings.strategy}: {summary.sentence}"
    over = f"pairs over {summary.pairs_over} of {summary.pairs}"
    required = ((kind, threshold.hits) for kind, threshold in thresholds.items())
    hits = (f"{have}/{need} {kind}" for have, (kind, need) in zip(summary.hits, required, strict=False))
    return f"{over}, hits {' '.join(hits)}" if summary.pairs_over else over


def _verdict(summary: Summary, outcome: Outcome) -> str:
    if outcome.moves:
        verified = sum(move.ok for move in outcome.moves)
        others: dict[Reason, int] = {
            reason: count
            for reason, count in outcome.counts.items()
            if reason not in (Reason.MOVED, Reason.ALREADY_THERE)
        }
        named = f", {counted(others)}" if others else ""
        return f"fired: {verified} of {number_of(len(outcome.moves), 'bundle')} moved and verified{named}"
    if summary.bundles_taken:
        return f"would move {number_of(summary.bundles_taken, 'bundle')}. {outcome.verdict.meaning}"
    if Reason.having(Trait.STUCK) & summary.reasons.keys():
        return "unbalanced, but no move helps"
    if summary.pairs_fired:
        return "fired, nothing to move"
    return "waiting" if Reason.having(Trait.WAITING) & summary.reasons.keys() else "balanced: nothing to do"


def _failure(airflow: LocalAirflow, dag_id: str, run_id: str, uri: str | None) -> str:
    tasks = [task["task_id"] for task in airflow.tasks(dag_id, run_id) if task["state"] == "failed"]
    where = ", ".join(tasks) or "the run"
    if uri and (StoragePath(uri) / "validation.json").exists():
        blocks = Validation.read(StoragePath(uri)).reasons(Effect.BLOCK)
        if blocks:
            return f"{where}: " + " ".join(f"{code}: {Reason(code).meaning} {Reason(code).action}" for code in blocks)
    return f"{where} failed; see its log in the UI"
