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
from pulsar_rebalancer.replay.balancer import MINUTE, Balancer
from pulsar_rebalancer.replay.columns import NOBODY, Flags, Floats, Ints, LearnedColumns, MeanColumns, Roster
from pulsar_rebalancer.replay.minute import BrokerLoads, ColumnBrokers, Minute
from pulsar_rebalancer.replay.samples import CARRIED, RecordedSample, Recording
from pulsar_rebalancer.replay.variant_outcome import Failure, RecordedCluster, VariantOutcome
from pulsar_rebalancer.replay.variants import Variant
from pulsar_rebalancer.run.tables import RESOURCES
from pulsar_rebalancer.state import NOTHING, SETTLED, Counting
from pulsar_rebalancer.strategies.sample import COUNTED, RecentMove
from pulsar_rebalancer.strategies.scoring import SCORED, weighted_usages
from pulsar_rebalancer.strategies.shedders.registry import left_out
from pulsar_rebalancer.texts import error_line

_PROGRESS_REPORTS = 20

_THROUGHPUT = slice(2, 4)
"""Rows of `LOADS` that hold bytes in and bytes out."""

LEARNED_AFTER = 60
"""Samples before learned costs count; until then, bundles share a broker's CPU in proportion to their messages."""

AFTER_A_GAP = Counting(counts=True, reason=Reason.GAP, clear=True)


def replay(
    recording: Recording,
    variants: Sequence[Variant],
    judged_by: Settings,
    *,
    first: int | None = None,
    last: int | None = None,
    seed: int = 1,
    report: Callable[[float], None] = lambda share: None,
) -> list[VariantOutcome]:
    """Return each variant's outcome, followed by the recording's if one variant has the current settings.

    A variant counts as failed if its strategy raises an exception.

    Args:
        judged_by: settings that determine which brokers are compared and how they are scored.
        first, last: times in minutes since 1970; None for the recording's first and last sample.
        report: called regularly with the completed fraction, 0 to 1.
    """
    means = MeanColumns(len(recording.roster.bundles))
    replicas = [_Replica(recording, variant, judged_by, means, seed) for variant in variants]
    recorded = RecordedCluster(len(recording.roster.bundles)) if any(v.current for v in variants) else None
    cpu = _LearnedCpu(recording.roster, judged_by)
    minutes = recording.minutes(first, last)
    for number, sample in enumerate(recording.samples(minutes)):
        means.update(sample.present, sample.carried, np.append(sample.left_out, sample.repeated))
        compared = _compared(sample, judged_by, recording.roster)
        if recorded is not None:
            recorded.step(sample, _scores(sample.brokers, compared, judged_by))
        flows = cpu.flows(sample)
        for replica in replicas:
            replica.step(sample, flows, compared)
        if number % max(1, len(minutes) // _PROGRESS_REPORTS) == 0:
            report((number + 1) / len(minutes))
    report(1.0)
    outcomes = [replica.outcome for replica in replicas]
    return outcomes if recorded is None else [*outcomes, recorded.outcome]


class _Replica:
    def __init__(
        self, recording: Recording, variant: Variant, judged_by: Settings, means: MeanColumns, seed: int
    ) -> None:
        settings, roster = variant.settings, recording.roster
        self.outcome = VariantOutcome(variant.name)
        self._keeps_moves = variant.current
        self._balancer = Balancer(roster, settings, seed, means, _stay(roster, settings))
        self._owner = np.full(len(roster.bundles), NOBODY)
        self._averages = _Averages(settings)
        self._judged_by = judged_by
        self._shortest = settings.interval_seconds / 2
        # At most one sample per minute counts.
        self._longest = settings.state_max_gap * max(MINUTE, settings.interval_seconds)
        self._last: int | None = None

    def step(self, sample: RecordedSample, flows: Floats, compared: Flags) -> None:
        """Let the variant decide on one sample, with effect in the next; an error ends the variant."""
        if self.outcome.failed is not None:
            return
        try:
            self._step(sample, flows, compared)
        except BaseException as error:  # someone else's strategy may raise anything
            traceback.print_exc()
            self.outcome.failed = Failure(sample.minute, error_line(error))

    def _step(self, sample: RecordedSample, flows: Floats, compared: Flags) -> None:
        self._own(sample)
        minute = self._minute(sample, flows)
        scores = _scores(minute.brokers, compared, self._judged_by)
        if len(scores):
            self.outcome.scores(scores)
        if self._last is not None and (sample.minute - self._last) * MINUTE < self._shortest:
            return
        moves = self._balancer.decide(minute)
        if moves:
            moved = [move.bundle for move in moves]
            self.outcome.unloads(sample.carried[_THROUGHPUT][:, moved].sum(axis=0))
            self._owner[moved] = [move.destination for move in moves]
            if self._keeps_moves:
                self.outcome.keep(sample.minute, moved)
        self._last = sample.minute

    def _own(self, sample: RecordedSample) -> None:
        """Assign owners to new bundles, and to bundles whose broker is gone or has restarted."""
        registered, restarted = sample.brokers.registered, sample.restarted
        there = registered & ~restarted
        if not len(sample.born) and not (~there).any():
            return
        away = restarted[self._owner]
        if len(sample.born):
            parents = sample.parents
            inherited = np.where(parents == NOBODY, NOBODY, self._owner[parents])
            self._owner[sample.born] = np.where(inherited == NOBODY, sample.owner[sample.born], inherited)
            # A new bundle on a restarted broker came after the restart, unless it is a part of an earlier bundle there.
            away[sample.born] = restarted[inherited] & (inherited != NOBODY)
        lost = np.flatnonzero(sample.present & (~registered[self._owner] | away))
        if not len(lost):
            return
        # While a broker was away, other brokers took over its bundles.
        candidates = np.flatnonzero(there if there.any() else registered).tolist()
        for bundle in lost.tolist():
            chosen = self._balancer.place(bundle, candidates)
            self._owner[bundle] = sample.owner[bundle] if chosen is None else chosen
        self.outcome.lost += len(lost)

    def _minute(self, sample: RecordedSample, flows: Floats) -> Minute:
        owner = np.where(sample.present, self._owner, NOBODY)
        elsewhere = np.flatnonzero(owner != sample.owner)
        brokers = sample.brokers
        if len(elsewhere):
            change = _change(sample, flows, elsewhere, owner[elsewhere])
            usage = brokers.usage.copy()
            usage[list(CARRIED)] = np.maximum(usage[list(CARRIED)] + change[: len(CARRIED)], 0)
            traffic = np.maximum(brokers.traffic + change[len(CARRIED) :], 0)
            brokers = replace(brokers, usage=usage, traffic=traffic)
        return Minute(
            number=sample.minute,
            brokers=self._averages.follow(sample, brokers),
            owner=owner,
            bundles=sample.carried,
            resources=RESOURCES,
            policies=sample.policies,
            reserved=sample.reserved,
            counting=self._counting(sample.minute),
            stays=dict.fromkeys(sample.left_out.tolist(), Reason.BUNDLE_QUARANTINED),
        )

    def _counting(self, minute: int) -> Counting:
        apart = self._last is not None and (minute - self._last) * MINUTE > self._longest
        return AFTER_A_GAP if apart else COUNTED


class _LearnedCpu:
    """Learns from the recorded samples, as GainShedder does, what bundles' messages cost of their brokers' CPU."""

    def __init__(self, roster: Roster, settings: Settings) -> None:
        only_cpu = {f"{name}_weight": float(name == "cpu") for name in SCORED}
        self._settings = settings.model_copy(update=only_cpu)
        self._roster = roster
        self._columns = LearnedColumns(roster)
        self._learned = NOTHING
        self._owner = np.full(len(roster.bundles), NOBODY)
        self._touched: dict[int, int] = {}

    def flows(self, sample: RecordedSample) -> Floats:
        """Return `RecordedSample.flows`, once learned with the bundles' own CPU: the rest of it stays with a broker."""
        self._learn(sample)
        if self._learned.samples < LEARNED_AFTER:
            return sample.flows
        owned, limits = np.flatnonzero(sample.present), sample.brokers.limits[CARRIED[0]]
        brokers, usual = sample.owner[owned], float(np.median(limits[limits > 0])) if (limits > 0).any() else 0.0
        of_messages = self._columns.costs.cost[owned] * sample.carried[:2, owned].sum(axis=0)
        loads = self._learned.points / 100 * usual * of_messages
        whole, used = np.bincount(brokers, loads, len(limits)), np.nan_to_num(sample.brokers.usage[CARRIED[0]])
        share = np.minimum(np.divide(used, whole, out=np.zeros_like(whole), where=whole > 0), 1)
        flows = sample.flows.copy()
        flows[0, owned] = loads * share[brokers]
        return flows

    def _learn(self, sample: RecordedSample) -> None:
        moved = sample.present & (self._owner != NOBODY) & (self._owner != sample.owner)
        ends = np.unique(np.append(self._owner[moved], sample.owner[moved]))
        self._touched |= dict.fromkeys(ends.tolist(), sample.minute)
        self._owner = sample.owner
        silent = np.flatnonzero(sample.brokers.registered & ~sample.brokers.reported).tolist()
        minute = Minute(sample.minute, sample.brokers, sample.owner, sample.carried, RESOURCES)
        names = self._roster.brokers
        ages = {names[i]: float(sample.minute - at) for i, at in self._touched.items()}
        self._learned = self._columns.lesson(
            self._learned,
            sample.owner,
            sample.carried,
            brokers=ColumnBrokers(
                minute, self._roster, self._settings, dict.fromkeys(silent, Reason.BROKER_QUARANTINED)
            ),
            moved=[RecentMove(name, name, age) for name, age in ages.items() if age <= SETTLED],
            settings=self._settings,
            minute=sample.minute,
            counts=True,
        ).learned


class _Averages:
    """The brokers' averages under a variant: recorded plus an average (BrokerLoadData) of the changes."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._offset: Floats | float = 0.0

    def follow(self, sample: RecordedSample, changed: BrokerLoads) -> BrokerLoads:
        recorded = sample.brokers
        if recorded.averages is None:
            return changed
        history, change = self._settings.history_percentage, self._present(changed) - self._present(recorded)
        # A broker that comes back starts from zero.
        self._offset = (self._offset * history + (1 - history) * change) * (recorded.registered & ~sample.restarted)
        return replace(changed, averages=np.maximum(recorded.averages + self._offset, 0))

    def _present(self, brokers: BrokerLoads) -> Floats:
        usage = weighted_usages(brokers.percents, RESOURCES, self._settings, RESOURCES)
        return np.stack([usage, brokers.traffic[_THROUGHPUT].sum(axis=0)])


def _compared(sample: RecordedSample, judged_by: Settings, roster: Roster) -> Flags:
    compared = sample.brokers.registered & sample.brokers.reported
    left = left_out(judged_by, sample.policies)
    compared[[roster.broker_at[name] for name in left if name in roster.broker_at]] = False
    return np.asarray(compared)


def _scores(brokers: BrokerLoads, compared: Flags, judged_by: Settings) -> Floats:
    """Return the scores of the compared brokers, in percent."""
    return np.asarray(100 * weighted_usages(brokers.percents, RESOURCES, judged_by)[compared])


def _stay(roster: Roster, settings: Settings) -> dict[int, Reason]:
    reasons = stays.of_bundles(pa.array(roster.bundles, pa.string()), stays.BundleFacts(settings, {}))
    at = np.flatnonzero(reasons.is_valid()).tolist()
    return {number: Reason(reasons[number].as_py()) for number in at}


def _change(sample: RecordedSample, flows: Floats, bundles: Ints, to: Ints) -> Floats:
    """Return how moved bundles change the load: a row per flow, a column per broker."""
    count, came_from = len(sample.brokers.registered), sample.owner[bundles]
    return np.array(
        [
            np.bincount(to, weights=flow, minlength=count) - np.bincount(came_from, weights=flow, minlength=count)
            for flow in flows[:, bundles]
        ]
    )
