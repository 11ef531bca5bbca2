"""A run's metrics (the same for StatsD and OpenTelemetry), broker scores and summary text.

Gauges describe the cluster, the plan and the current orders; counters count events. A gauge keeps its
last value, so things that can disappear have none, except a broker's score. For a state that ends on
its own, the time of its end is sent, which stays correct even if no run follows.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.orders.breaker import breaker_open_until
from pulsar_rebalancer.orders.manual_plans import Drains, Question, answer_due
from pulsar_rebalancer.orders.order import OrdersInForce, Situation
from pulsar_rebalancer.orders.pause import pause_in_force
from pulsar_rebalancer.orders.roll_document import Phase, Roll
from pulsar_rebalancer.reasons import Effect, Reason, Trait, reasons_text
from pulsar_rebalancer.run.outcome import MoveOutcome, Outcome
from pulsar_rebalancer.run.plan import SplitOutcome, Summary
from pulsar_rebalancer.run.request import Validation
from pulsar_rebalancer.run.snapshot import Snapshot
from pulsar_rebalancer.state import COUNTING_REASONS
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer.strategies.sample import Threshold
from pulsar_rebalancer.strategies.scoring import score
from pulsar_rebalancer.strategies.shedders.registry import run_left_out_reasons, safe_profile_of
from pulsar_rebalancer.texts import number_of


class Scores(NamedTuple):
    """Scores in percent: `score_by_broker` of all with a valid load report, `compared` of those compared."""

    score_by_broker: dict[str, float] = {}
    compared: tuple[float, ...] = ()

    @property
    def mean(self) -> float | None:
        return math.fsum(self.compared) / len(self.compared) if self.compared else None

    @property
    def score_range(self) -> float | None:
        return max(self.compared) - min(self.compared) if self.compared else None

    @property
    def deviation(self) -> float | None:
        if self.mean is None:
            return None
        return math.sqrt(math.fsum((value - self.mean) ** 2 for value in self.compared) / len(self.compared))


def scores_of(run: Snapshot) -> Scores:
    """Return a run's broker scores. Raises SnapshotError if one of the run's files cannot be read."""
    unknown, left_out = {*run.silent_brokers, *run.validation.quarantine_reasons}, run_left_out_reasons(run)
    samples = run.read_broker_samples({})
    scores = {sample.broker: score(sample, run.settings) for sample in samples if sample.broker not in unknown}
    return Scores(scores, tuple(value for broker, value in scores.items() if broker not in left_out))


METRIC_PREFIX = "pulsar_rebalancer."

_INVALID_IN_LABELS = re.compile(r"[^A-Za-z0-9_.\-/]")


@dataclass(frozen=True)
class Measurement:
    """One value that describes a run; `docs/metrics.md` lists the units, and `name` has no prefix.

    A counter's value is its increment, never negative; labels have only characters allowed in StatsD.
    """

    name: str
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)
    is_counter: bool = False

    @classmethod
    def create(cls, name: str, value: float, *, counter: bool = False, **labels: str) -> Measurement:
        """Return a measurement; characters not allowed in labels (a brokerId's colon) become underscores."""
        return cls(name, value, {key: _INVALID_IN_LABELS.sub("_", text) for key, text in labels.items()}, counter)


def run_measurements(cluster: str, run: StoragePath | None, outcome: Outcome | None) -> list[Measurement]:
    """Return the measurements for an ended run; `run` and `outcome` are None if nothing was collected.

    Raises SnapshotError if one of the run's files is damaged.
    """
    verdict = outcome.verdict if outcome is not None else Reason.UNFINISHED
    measurements = [Measurement.create("runs", 1, counter=True, cluster=cluster, verdict=verdict)]
    if run is not None:
        measurements += _sample_measurements(cluster, Snapshot(run))
    if run is not None and (run / Summary.FILE).exists():
        measurements += _plan_measurements(cluster, Summary.read(run))
    if outcome is not None:
        measurements += _outcome_measurements(cluster, outcome)
    return measurements


def measure_orders(cluster: str, settings: Settings, orders: OrdersInForce, now: datetime) -> Iterator[Measurement]:
    """Yield measurements of operators' orders, the circuit breaker, and the plan awaiting approval."""
    at = Situation(settings, orders, now)
    pause, until = pause_in_force(at), answer_due(at)
    times = {
        "paused_until": pause.until if pause else None,
        "breaker_open_until": breaker_open_until(settings.breaker, orders),
        "plan_waiting_since": orders.get(Question).at if until else None,
        "plan_waiting_until": until,
    }
    for name, time in times.items():
        yield Measurement.create(f"{name}_timestamp_seconds", time.timestamp() if time else 0, cluster=cluster)
    yield Measurement.create("brokers_drained", len(orders.get(Drains).brokers), cluster=cluster)
    roll = orders.get(Roll)
    phase = [*Phase].index(roll.phase) + 1 if roll.is_active else 0
    yield Measurement.create("roll_phase", phase, cluster=cluster)
    yield Measurement.create("roll_brokers_left", len(roll.order) - len(roll.done) if phase else 0, cluster=cluster)


def _sample_measurements(cluster: str, run: Snapshot) -> Iterable[Measurement]:
    settings = run.settings
    yield Measurement.create("collected_timestamp_seconds", run.request.collected_at.timestamp(), cluster=cluster)
    yield Measurement.create("interval_seconds", settings.interval_seconds, cluster=cluster)
    for kind, threshold in safe_profile_of(settings).thresholds(settings).items():
        yield Measurement.create("threshold", threshold.gap, cluster=cluster, kind=kind)
    if not (run.folder / Validation.FILE).exists():
        return
    for reason, count in Counter(finding.reason for finding in run.validation.findings).items():
        labels = {"cluster": cluster, "effect": str(reason.effect), "reason": str(reason)}
        yield Measurement.create("findings", count, counter=True, **labels)
    holds = run.validation.reason_counts(Effect.HOLD) if settings.mode.may_move else {}
    yield Measurement.create("holds", len(holds), cluster=cluster)
    scores = scores_of(run)
    for broker, value in scores.score_by_broker.items():
        yield Measurement.create("score", value, cluster=cluster, broker=broker)
    values = {"score_mean": scores.mean, "score_stddev": scores.deviation, "score_range": scores.score_range}
    for name, statistic in values.items():
        if statistic is not None:
            yield Measurement.create(name, statistic, cluster=cluster)
    yield Measurement.create("brokers", len(scores.compared), cluster=cluster)


def _plan_measurements(cluster: str, summary: Summary) -> Iterable[Measurement]:
    for kind, hits in zip(("low", "high"), summary.hits, strict=True):
        yield Measurement.create("hits", hits, cluster=cluster, kind=kind)
    yield Measurement.create("pairs_over", summary.pairs_over, cluster=cluster)
    yield Measurement.create("pairs_fired", summary.pairs_fired, cluster=cluster)
    yield Measurement.create("bundles_planned", summary.bundles_taken, cluster=cluster)
    if summary.counting in COUNTING_REASONS:  # others look for no splits
        candidates = summary.bundles_split + sum(summary.split_skip_reasons.values())
        yield Measurement.create("split_candidates", candidates, cluster=cluster)
    if summary.predicted_range is not None:
        yield Measurement.create("predicted_range", summary.predicted_range, cluster=cluster)


def _outcome_measurements(cluster: str, outcome: Outcome) -> Iterable[Measurement]:
    for name, outcomes in (("moves", outcome.moves), ("splits", outcome.splits)):
        for (reason, result), count in Counter((ended.reason, _result_label(ended)) for ended in outcomes).items():
            labels = {"cluster": cluster, "reason": str(reason), "result": result}
            yield Measurement.create(name, count, counter=True, **labels)
    gaps = outcome.client_gap
    if gaps is None:
        return
    counts = {"moves_unmeasured": gaps.unknown, "moves_clients_not_back": gaps.not_back, "topic_errors": gaps.errors}
    for name, count in counts.items():
        yield Measurement.create(name, count, counter=True, cluster=cluster)
    if gaps.longest_seconds is not None:  # unknown is not 0
        yield Measurement.create("clients_away_longest_seconds", gaps.longest_seconds, cluster=cluster)


def _result_label(outcome: MoveOutcome | SplitOutcome) -> str:
    if outcome.ok:
        return "done"
    return "left" if outcome.reason.has(Trait.SETTLED | Trait.NOT_BEGUN) else "failed"


MAX_LISTED = 20


def outcome_text(outcome: Outcome, run: StoragePath) -> str:
    """Return a few lines about the run: scores, pairs, hits, verdict, splits and moves."""
    lines = [f"Cluster {outcome.cluster}, run {run.uri}"]
    summary = Summary.read_if_exists(run)
    in_force = outcome.in_force or (summary.in_force if summary else "")
    lines += [f"  state:   {in_force}"] if in_force else []
    if summary is not None:
        lines += _decision_lines(summary)
    lines.append(f"  verdict: {outcome.verdict}. {outcome.verdict.meaning}")
    if outcome.splits:
        done = sum(split.ok for split in outcome.splits)
        lines.append(f"  splits:  {done} of {len(outcome.splits)} done ({reasons_text(outcome.split_counts)})")
    lines += [f"    {split.bundle}: {split.reason} {split.error}".rstrip() for split in outcome.splits[:MAX_LISTED]]
    if outcome.moves:
        done = sum(move.ok for move in outcome.moves)
        counted = reasons_text(outcome.move_counts)
        lines.append(f"  moves:   {done} of {len(outcome.moves)} on their planned broker ({counted})")
    lines += [f"  clients: {outcome.client_gap.sentence}"] if outcome.client_gap else []
    for move in outcome.moves[:MAX_LISTED]:
        said = "; ".join(filter(None, (move.error, move.client_gap.text if move.client_gap else "")))
        lines.append(f"    {move.bundle}: {move.source} -> {move.destination}: {move.reason} {said}".rstrip())
    if len(outcome.moves) > MAX_LISTED:
        lines.append(f"    and {len(outcome.moves) - MAX_LISTED} more: {run.uri}/outcome.json")
    if outcome.destinations_kept:
        lines.append(f"  kept:    {Reason.DESTINATION_KEPT.meaning}")
    for bundle, destination in sorted(outcome.destinations_kept.items())[:MAX_LISTED]:
        lines.append(f"    {bundle}: {destination}")
    return "\n".join(lines)


def _decision_lines(summary: Summary) -> list[str]:
    scores = "no brokers were compared"
    if summary.score_min is not None and summary.score_max is not None:
        span = f"{summary.score_min:.1f} to {summary.score_max:.1f} % (range {summary.score_range:.1f})"
        scores = f"{span} over {number_of(summary.brokers, 'broker')}"
    drains = [
        f"  drain:   {broker}: {drain.moving} of {number_of(drain.bundles, 'bundle')} move now, "
        f"{drain.bundles_left} later; kept in place: {reasons_text(drain.stay) or 'none'}; "
        f"never moved: {', '.join(drain.named) or 'none'}"
        if drain.bundles is not None
        else f"  drain:   {broker}: no load report, so its bundles are unknown"
        for broker, drain in summary.drains.items()
    ]
    pairs = []
    if low := _thresholds(summary).get("low"):
        pairs.append(f"  pairs:   {summary.pairs}, {summary.pairs_over} of them at least {low.gap:g} points apart")
        pairs.append(f"  hits:    {hits_text(summary)} (the most of any pair). {summary.counting.meaning}")
    return [
        f"  plan:    {summary.sentence}",
        f"  scores:  {scores}",
        *pairs,
        f"  fired:   {summary.pairs_fired}; {number_of(summary.bundles_taken, 'bundle')} to be moved",
        *drains,
        *(f"  split:   {sentence}" for sentence in summary.splits_told),
    ]


def hits_text(summary: Summary) -> str:
    """Return the most hits of any pair and the hits that it needs; empty for a strategy without pairs."""
    each = zip(summary.hits, _thresholds(summary).items(), strict=False)
    return ", ".join(f"{have} of {threshold.hits} {kind} hits" for have, (kind, threshold) in each)


def _thresholds(summary: Summary) -> Mapping[str, Threshold]:
    settings = summary.resolved.settings
    return safe_profile_of(settings).thresholds(settings)
