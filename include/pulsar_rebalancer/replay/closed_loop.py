"""Replay recorded load through variants in a closed loop: a bundle that a variant moves keeps its load.

What does not depend on owners is computed once for all variants. A variant uses the brokers' recorded
values, adjusted for the bundles that are on a different broker than in the recording.

Simplifications: memory does not move; a moved bundle has its full load in the next sample; brokers' own
moving averages follow the variant's changes by one step per sample.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.decide import stays
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.replay.balancer import MINUTE_SECONDS, Balancer
from pulsar_rebalancer.replay.columns import NOBODY, Flags, Floats, Ints, MeanColumns, Roster
from pulsar_rebalancer.replay.minute import BrokerLoads, Minute
from pulsar_rebalancer.replay.samples import CARRIED, RecordedSample, Recording
from pulsar_rebalancer.replay.variant_outcome import RecordedCluster, VariantFailure, VariantOutcome
from pulsar_rebalancer.replay.variants import Variant
from pulsar_rebalancer.run.tables import RESOURCES
from pulsar_rebalancer.state import HitRules
from pulsar_rebalancer.strategies.sample import COUNTED
from pulsar_rebalancer.strategies.scoring import weighted_usages
from pulsar_rebalancer.strategies.shedders.registry import left_out_reasons
from pulsar_rebalancer.texts import error_line

_MAX_PROGRESS_REPORTS = 20

_MESSAGES, _THROUGHPUT = slice(0, 2), slice(2, 4)
"""Rows of `LOADS`: message rates in and out; throughput in and out."""

MIN_LEARNING_SAMPLES = 60
"""Minimum number of samples for learning costs. With fewer samples, a bundle's CPU share is its message share."""

_BLOCK, _MOST_RATES = 5, 5_000_000  # samples of a block; rates to keep: with more, samples are left out
_LEAST, _SPREAD = 0.05, 0.5  # costs relative to the mean
_NOISE, _APART = 1.5, 10.0  # points: noise of a change of score; how far brokers' other CPU is apart
_MAX_SOLVER_STEPS = 100

RULES_AFTER_GAP = HitRules(counts=True, reason=Reason.GAP, clear=True)


def replay(
    recording: Recording,
    variants: Sequence[Variant],
    judging_settings: Settings,
    *,
    first_minute: int | None = None,
    last_minute: int | None = None,
    moves_from: int = 0,
    seed: int = 1,
    report_progress: Callable[[float], None] = lambda _: None,
) -> list[VariantOutcome]:
    """Return each variant's outcome, followed by the recording's if one variant has the current settings.

    A variant counts as failed if its strategy raises an exception.

    Args:
        judging_settings: settings that determine which brokers are compared and how they are scored.
        first_minute, last_minute: times in minutes since 1970; None for the recording's first and last sample.
        moves_from: minute before which variants move nothing and only learn; hits start again then.
        report_progress: called regularly with the completed fraction, 0 to 1.
    """
    means = MeanColumns(len(recording.roster.bundles))
    replicas = [_ReplayedVariant(recording, variant, judging_settings, means, moves_from, seed) for variant in variants]
    recorded = RecordedCluster(len(recording.roster.bundles)) if any(v.is_current for v in variants) else None
    minutes = recording.minutes(first_minute, last_minute)
    costs = _message_costs(recording, minutes) if len(minutes) >= MIN_LEARNING_SAMPLES else None
    for number, sample in enumerate(recording.samples(minutes)):
        means.update(sample.present_bundles, sample.loads, np.append(sample.left_out, sample.repeated))
        compared = _compared_brokers(sample, judging_settings, recording.roster)
        if recorded is not None and sample.minute >= moves_from:
            recorded.add_sample(sample, _compared_scores(sample.brokers, compared, judging_settings))
        flows = sample.bundle_flows(costs)
        for replica in replicas:
            replica.replay_sample(sample, flows, compared)
        if number % max(1, len(minutes) // _MAX_PROGRESS_REPORTS) == 0:
            report_progress((number + 1) / len(minutes))
    report_progress(1.0)
    outcomes = [replica.outcome for replica in replicas]
    return outcomes if recorded is None else [*outcomes, recorded.outcome]


class _ReplayedVariant:
    def __init__(
        self,
        recording: Recording,
        variant: Variant,
        settings_of_scores: Settings,
        means: MeanColumns,
        moves_from: int,
        seed: int,
    ) -> None:
        settings, roster = variant.settings, recording.roster
        self.outcome = VariantOutcome(variant.name)
        self._keeps_moves = variant.is_current
        self._balancer = Balancer(roster, settings, seed, means, _stay_reason_by_bundle(roster, settings))
        self._owner = np.full(len(roster.bundles), NOBODY)
        self._averages = _BrokerAverages(settings)
        self._judged_by = settings_of_scores
        self._moves_from = moves_from
        self._shortest = settings.interval_seconds / 2
        # At most one sample per minute counts.
        self._longest = settings.state_max_gap * max(MINUTE_SECONDS, settings.interval_seconds)
        self._last: int | None = None

    def replay_sample(self, sample: RecordedSample, flows: Floats, is_compared: Flags) -> None:
        """Let the variant decide on one sample, with effect in the next; an error ends the variant."""
        if self.outcome.failed is not None:
            return
        try:
            self._decide_and_move(sample, flows, is_compared)
        except BaseException as error:  # someone else's strategy may raise anything
            traceback.print_exc()
            self.outcome.failed = VariantFailure(sample.minute, error_line(error))

    def _decide_and_move(self, sample: RecordedSample, flows: Floats, is_compared: Flags) -> None:
        if sample.minute < self._moves_from:
            self._owner = np.where(sample.present_bundles, sample.owner, self._owner)
            all_stay = dict.fromkeys(range(len(self._owner)), Reason.OBSERVE)
            self._balancer.choose_moves(replace(self._minute_of_sample(sample, flows), stay_reasons=all_stay))
            return
        self._assign_owners(sample)
        minute = self._minute_of_sample(sample, flows)
        scores = _compared_scores(minute.broker_loads, is_compared, self._judged_by)
        if len(scores):
            self.outcome.add_scores(scores)
        if self._last is not None and (sample.minute - self._last) * MINUTE_SECONDS < self._shortest:
            return
        moves = self._balancer.choose_moves(minute)
        if moves:
            moved = [move.bundle_index for move in moves]
            self.outcome.add_unloads(sample.loads[_THROUGHPUT][:, moved].sum(axis=0))
            self._owner[moved] = [move.broker_index for move in moves]
            if self._keeps_moves:
                self.outcome.add_moved_bundles(sample.minute, moved)
        self._last = sample.minute

    def _assign_owners(self, sample: RecordedSample) -> None:
        """Assign owners to new bundles, and to bundles whose broker is gone or has restarted."""
        registered, restarted = sample.brokers.registered, sample.has_restarted
        there = registered & ~restarted
        if not len(sample.new_bundles) and not (~there).any():
            return
        away = restarted[self._owner]
        if len(sample.new_bundles):
            parents = sample.parent_bundles
            inherited = np.where(parents == NOBODY, NOBODY, self._owner[parents])
            self._owner[sample.new_bundles] = np.where(inherited == NOBODY, sample.owner[sample.new_bundles], inherited)
            # A new bundle on a restarted broker came after the restart, unless it is a part of an earlier bundle there.
            away[sample.new_bundles] = restarted[inherited] & (inherited != NOBODY)
        lost = np.flatnonzero(sample.present_bundles & (~registered[self._owner] | away))
        if not len(lost):
            return
        # While a broker was away, other brokers took over its bundles.
        candidates = np.flatnonzero(there if there.any() else registered).tolist()
        for bundle in lost.tolist():
            chosen = self._balancer.place_bundle(bundle, candidates)
            self._owner[bundle] = sample.owner[bundle] if chosen is None else chosen
        self.outcome.placed_count += len(lost)

    def _minute_of_sample(self, sample: RecordedSample, flows: Floats) -> Minute:
        owner = np.where(sample.present_bundles, self._owner, NOBODY)
        elsewhere = np.flatnonzero(owner != sample.owner)
        brokers = sample.brokers
        if len(elsewhere):
            change = _load_change_by_broker(sample, flows, elsewhere, owner[elsewhere])
            usage = brokers.usage.copy()
            usage[list(CARRIED)] = np.maximum(usage[list(CARRIED)] + change[: len(CARRIED)], 0)
            traffic = np.maximum(brokers.traffic + change[len(CARRIED) :], 0)
            brokers = replace(brokers, usage=usage, traffic=traffic)
        return Minute(
            number=sample.minute,
            broker_loads=self._averages.update(sample, brokers),
            owner=owner,
            bundle_loads=sample.loads,
            resources=RESOURCES,
            policies=sample.policies,
            reserved_by=sample.reserved_by,
            hit_rules=self._hit_rules(sample.minute),
            stay_reasons=dict.fromkeys(sample.left_out.tolist(), Reason.BUNDLE_QUARANTINED),
        )

    def _hit_rules(self, minute: int) -> HitRules:
        apart = self._last is None or (minute - self._last) * MINUTE_SECONDS > self._longest
        return RULES_AFTER_GAP if apart else COUNTED


def _message_costs(recording: Recording, minutes: Sequence[int]) -> Floats:
    """Return the CPU of a message by bundle, in percent of a core per msg/s.

    Scores and rates are means over some samples: a block. From block to block, a broker's score changes by the sum
    of cost times change of rate, plus noise. On average, brokers' scores differ by what their messages cost, and by
    other processes. Where this leaves costs open, they are near a common one, which is near the mean (regularized least
    squares, in the dual form: an unknown per observation).
    """
    bundles, brokers = len(recording.roster.bundles), len(recording.roster.brokers)
    used = minutes[:: min(len(minutes) // (2 * _BLOCK), len(minutes) * bundles // _MOST_RATES + 1)]
    (scores, squares), found = np.zeros((2, len(used) // _BLOCK, brokers)), []
    for number, sample in enumerate(recording.samples(used[: len(scores) * _BLOCK])):
        row, owned = number // _BLOCK, np.flatnonzero(sample.present_bundles)
        rates = sample.loads[_MESSAGES].sum(axis=0)[owned] / _BLOCK
        found.append((row * brokers + sample.owner[owned], owned, rates))
        score = np.where(sample.brokers.registered, sample.brokers.percents[CARRIED[0]], np.nan)
        scores[row], squares[row] = scores[row] + score / _BLOCK, squares[row] + score**2 / _BLOCK
    at, of, rates = (np.concatenate(column) for column in zip(*found, strict=True))
    limits = sample.brokers.limits[CARRIED[0]]
    cores = np.where(limits > 0, limits / 100, np.nan)
    mean = np.nansum(scores * cores) / (rates.sum() or 1.0)
    points, known = rates * np.nan_to_num(mean / cores)[at % brokers], np.isfinite(scores * cores)
    both, shares = known[1:] & known[:-1], known / known.sum(axis=0).clip(1)
    steady = 2 * known.sum(axis=0) >= len(known)

    def centered(levels: Floats) -> Floats:
        return np.asarray(np.where(steady, levels - levels.mean(where=steady | ~steady.any()), 0.0))

    def observations(levels: Floats) -> Floats:
        return np.concatenate([[centered((shares * levels).sum(axis=0))], both * np.diff(levels, axis=0)])

    def score_levels(costs: Floats) -> Floats:
        return np.asarray(np.bincount(at, points * costs[of], scores.size).reshape(scores.shape))

    def likely_costs(weights: Floats) -> Floats:
        of_blocks = centered(weights[0]) * shares - np.diff(np.pad(both * weights[1:], ((1, 1), (0, 0))), axis=0)
        of_bundles = np.bincount(of, points * of_blocks.ravel()[at], bundles)
        return np.asarray(_SPREAD**2 * (of_bundles + of_bundles.sum()))

    # The means of two blocks differ, squared, by half of what the samples within a block do.
    within = (squares - scores**2)[known].clip(0)
    of_changes = np.hypot(_NOISE, np.sqrt(np.median(within) / 2) if len(within) else 0.0)
    variance = np.array([_APART, *[of_changes] * len(both)])[:, None] ** 2
    unexplained = observations(np.nan_to_num(scores) - score_levels(np.ones(bundles)))
    weights = _solve_linear_system(
        lambda weights: observations(score_levels(likely_costs(weights))) + variance * weights, unexplained
    )
    return np.asarray(mean * np.maximum(1 + likely_costs(weights), _LEAST))


def _solve_linear_system(matrix_product: Callable[[Floats], Floats], target: Floats) -> Floats:
    """Return the solution of a positive definite system, by conjugate gradients."""
    found, left, direction = np.zeros_like(target), target, target
    size = first = (target**2).sum()
    for _ in range(_MAX_SOLVER_STEPS):
        if size <= 1e-8 * first:
            break
        image = matrix_product(direction)
        step = size / (direction * image).sum()
        found, left = found + step * direction, left - step * image
        before, size = size, (left**2).sum()
        direction = left + size / before * direction
    return found


class _BrokerAverages:
    """The brokers' averages under a variant: recorded plus an average (BrokerLoadData) of the changes."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._offset: Floats | float = 0.0

    def update(self, sample: RecordedSample, brokers: BrokerLoads) -> BrokerLoads:
        recorded = sample.brokers
        if recorded.averages is None:
            return brokers
        history = self._settings.history_percentage
        change = self._usage_and_throughput(brokers) - self._usage_and_throughput(recorded)
        # A broker that comes back starts from zero.
        self._offset = (self._offset * history + (1 - history) * change) * (recorded.registered & ~sample.has_restarted)
        return replace(brokers, averages=np.maximum(recorded.averages + self._offset, 0))

    def _usage_and_throughput(self, brokers: BrokerLoads) -> Floats:
        usage = weighted_usages(brokers.percents, RESOURCES, self._settings, RESOURCES)
        return np.stack([usage, brokers.traffic[_THROUGHPUT].sum(axis=0)])


def _compared_brokers(sample: RecordedSample, settings: Settings, roster: Roster) -> Flags:
    compared = sample.brokers.registered & sample.brokers.is_reported
    left = left_out_reasons(settings, sample.policies)
    compared[[roster.broker_at[name] for name in left if name in roster.broker_at]] = False
    return np.asarray(compared)


def _compared_scores(brokers: BrokerLoads, is_compared: Flags, settings: Settings) -> Floats:
    """Return the scores of the compared brokers, in percent."""
    return np.asarray(100 * weighted_usages(brokers.percents, RESOURCES, settings)[is_compared])


def _stay_reason_by_bundle(roster: Roster, settings: Settings) -> dict[int, Reason]:
    reasons = stays.stay_reasons(pa.array(roster.bundles, pa.string()), stays.BundleFacts(settings, {}))
    at = np.flatnonzero(reasons.is_valid()).tolist()
    return {number: Reason(reasons[number].as_py()) for number in at}


def _load_change_by_broker(sample: RecordedSample, flows: Floats, moved_bundles: Ints, brokers: Ints) -> Floats:
    """Return how moved bundles change the load: a row per flow, a column per broker."""
    count, came_from = len(sample.brokers.registered), sample.owner[moved_bundles]
    return np.array(
        [
            np.bincount(brokers, weights=flow, minlength=count) - np.bincount(came_from, weights=flow, minlength=count)
            for flow in flows[:, moved_bundles]
        ]
    )
