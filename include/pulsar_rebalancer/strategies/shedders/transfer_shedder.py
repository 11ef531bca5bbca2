"""TransferShedder for one run of one cluster: the most and the least loaded brokers exchange bundles.

Loads are moving averages. When loads have been out of balance in enough consecutive runs (`LoadStats.imbalance`),
brokers are paired from the outside in. Half of the difference moves to the less loaded broker. If the next bundle is
too large, smaller bundles move back in exchange. Only the busiest bundles of each broker are considered
(`top_bundles`). The algorithm follows `TransferShedder.findBundlesForUnloading` in Pulsar 4.2.4, including a defect:
throughput that moves back is counted only in debug mode (`credit_swaps`).

Brokers that use the extensible load manager report their moving averages. For other brokers, the averages are computed
here as in BrokerLoadData. If a broker leaves the cluster and returns, its average starts over.

Deviations: Ties are broken by name; in Pulsar, by hash map order. A broker without a report is left out, and
its averages are kept; Pulsar sheds nothing while any broker has no report. Bundles that must never move are not used in
a swap. A source with load 0 sheds nothing; Pulsar divides by this load.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from pulsar_rebalancer.config.field_types import Placement
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.tables import RESOURCES, BrokerSample
from pulsar_rebalancer.state import WHOLE_CLUSTER, HitCount, ShedderState
from pulsar_rebalancer.strategies.sample import (
    CandidateMove,
    ClusterSample,
    Decision,
    Profile,
    SheddingResult,
    amount_text,
    left_out_decisions,
)
from pulsar_rebalancer.strategies.scoring import smooth, weighted_usage
from pulsar_rebalancer.strategies.shedders.swap import (
    MEASURE,
    BrokerLoad,
    Imbalance,
    LoadStats,
    PairTransfer,
    is_outdated,
    top_bundles,
)
from pulsar_rebalancer.texts import number_of


class NoShedding(NamedTuple):
    """An explanation of why brokers shed nothing: the reason, the compared value and bound, and a sentence."""

    reason: Reason
    value: float | None
    bound: float | None
    sentence: str


def shed(sample: ClusterSample, state: ShedderState) -> SheddingResult:
    """Make the shedding decisions for one run.

    Args:
        state: state after the last counted run. The following are used: `hits` for the whole cluster (consecutive runs
            out of balance), and `loads` and `throughputs` for brokers that do not report their moving averages.
    """
    loads, after = broker_loads(sample, state)
    stats = LoadStats(loads, sample.settings)
    # Only these two brokers count: in nearly every sample of a large cluster, some broker between them has changed.
    outermost = (stats.most_loaded.broker, stats.least_loaded.broker) if loads else ()
    hits = state.cluster_hits
    decisions: list[Decision] = []
    moves: list[CandidateMove] = []
    stopped_by = _why_sample_unusable(sample, loads, stats)
    if stopped_by is None:
        imbalance = stats.imbalance() if loads else None
        hits = hits + 1 if imbalance else 0
        stopped_by = _why_waiting(sample, stats, imbalance, hits)
    if stopped_by is None:
        decisions, moves, stopped_by = _shed_pairs(sample, stats)
        hits = 0 if any(move.is_taken for move in moves) else hits
        sentence = f"{number_of(len(decisions), 'pair')} of brokers considered; shedding ended: {stopped_by.sentence}"
    else:
        sentence = stopped_by.sentence
    if not sample.brief:
        decisions += _unpaired_decisions(sample, loads, decisions, stopped_by)
    counted = {WHOLE_CLUSTER: HitCount(low=hits)} if hits else {}
    state = replace(after, hits=counted)
    return SheddingResult([*decisions, *left_out_decisions(sample)], moves, state, sentence, outermost)


def broker_loads(sample: ClusterSample, state: ShedderState) -> tuple[list[BrokerLoad], ShedderState]:
    """Return the loads of brokers that are not left out, and the averages for the next run (BrokerLoadData.update)."""
    listed = {broker.broker for broker in sample.brokers}
    loads_now = {name: average for name, average in state.loads.items() if name in listed}
    throughputs_now = {name: average for name, average in state.throughputs.items() if name in listed}
    loads = []
    for broker in sample.compared_brokers:
        name, throughput = broker.broker, broker.traffic(MEASURE)
        load, average = broker.load_average, broker.throughput_average
        if load is None:
            usage = weighted_usage(broker, sample.settings, RESOURCES)
            load = loads_now[name] = smooth(state.loads.get(name), usage, sample.settings)
        if average is None:
            average = throughputs_now[name] = smooth(state.throughputs.get(name), throughput, sample.settings)
        loads.append(BrokerLoad(name, load, average, throughput, broker.report_age_seconds))
    return loads, ShedderState(loads=dict(sorted(loads_now.items())), throughputs=dict(sorted(throughputs_now.items())))


def reported_load(broker: BrokerSample, settings: Settings) -> float:
    """Return a broker's reported load: its moving average, else its current usage; 1 is 100 percent."""
    average = broker.load_average
    return weighted_usage(broker, settings, RESOURCES) if average is None else average


def _why_sample_unusable(sample: ClusterSample, loads: list[BrokerLoad], stats: LoadStats) -> NoShedding | None:
    """Return why no decision can be based on the sample; None if the sample is usable.

    The checks are made in the same order as in `LoadStats.update`.
    """
    settings = sample.settings
    delay = settings.shedding_delay_seconds
    for load in loads:
        elapsed = sample.unloaded_brokers.get(load.broker)
        if elapsed is not None and elapsed < delay and not is_outdated(load, settings):
            words = f"{load.broker} reported {elapsed:.0f} s after its last unload; at least {delay:g} s are needed"
            if elapsed < 0:
                words = f"{load.broker} last reported {-elapsed:.0f} s before its last unload"
            return NoShedding(Reason.COOL_DOWN, elapsed, delay, f"{words}, so its present load is not known yet")
    if not stats.counted:
        words = f"no report is younger than {settings.load_data_ttl_seconds:g} s" if loads else "no broker reports"
        return NoShedding(Reason.OUTDATED, None, None, words)
    return None


def _why_waiting(sample: ClusterSample, stats: LoadStats, imbalance: Imbalance | None, hits: int) -> NoShedding | None:
    """Return why nothing is shed although the sample is usable; None if bundles are to be shed."""
    if imbalance is None:
        return _balanced_result(sample, stats)
    needed = sample.settings.hit_count_transfer
    if hits > needed or sample.forced:
        return None
    words = f"{imbalance.sentence}: {number_of(hits, 'run')} in a row; more than {needed} are needed"
    return NoShedding(Reason.HIT_COUNT, hits, needed, words)


def _balanced_result(sample: ClusterSample, stats: LoadStats) -> NoShedding:
    words = f"the loads are balanced (standard deviation {stats.std:.3f}, mean {stats.mean:.1%})"
    return NoShedding(Reason.BALANCED, stats.std, sample.settings.target_std, words)


def _shed_pairs(sample: ClusterSample, stats: LoadStats) -> tuple[list[Decision], list[CandidateMove], NoShedding]:
    """Return the decisions and moves for all pairs, and the reason why brokers without a pair shed nothing."""
    decisions: list[Decision] = []
    moves: list[CandidateMove] = []
    shed_brokers, cap = 0, sample.settings.max_brokers_per_run
    while stats.has_pair:
        if shed_brokers >= cap:
            words = f"at most {number_of(cap, 'broker')} may shed in one run"
            return decisions, moves, NoShedding(Reason.NOT_REACHED, shed_brokers, cap, words)
        imbalance = stats.imbalance()
        if imbalance is None:
            return decisions, moves, _balanced_result(sample, stats)
        source, destination = stats.next_pair()
        decision, transfer = _shed_pair(sample, len(decisions), source, destination, imbalance)
        decisions.append(decision)
        moves += transfer.moves
        if transfer.leaving_throughput > 0:
            stats.record_move(
                source,
                destination,
                (transfer.leaving_throughput - transfer.returning_throughput) * source.load / source.throughput,
            )
            shed_brokers += 1
    return decisions, moves, NoShedding(Reason.NO_PARTNER, None, None, "no pair is left")


def _shed_pair(
    sample: ClusterSample, pair: int, source: BrokerLoad, destination: BrokerLoad, imbalance: Imbalance
) -> tuple[Decision, PairTransfer]:
    gap = source.load - destination.load
    target = source.throughput * (gap / 2) / source.load if source.load > 0 else 0.0
    transfer = PairTransfer(sample, pair, source, destination, target)
    bundles = top_bundles(sample, source.broker)
    wanted = f"{imbalance.imbalance_kind}: {imbalance.sentence}"
    decision = Decision(
        source.broker,
        Reason.FIRED,
        pair=pair,
        destination=destination.broker,
        source_score=source.load * 100,
        destination_score=destination.load * 100,
        gap=gap * 100,
        value=imbalance.value,
        bound=imbalance.bound,
        fired=True,
        explanation=f"{wanted}; {amount_text(MEASURE, target)} must leave {source.broker}",
        measure=MEASURE,
        target=target,
    )
    if len(bundles) <= 1:
        reason = Reason.FEW_BUNDLES if bundles else Reason.NO_TOP_BUNDLES
        held = "the only bundle stays" if bundles else "the broker has no top bundles"
        words = f"{wanted}; {source.broker} gives no bundle: {held}"
        return replace(decision, reason=reason, explanation=words, fired=False, measure=None, target=None), transfer
    transfer.add_candidates(bundles)
    return decision, transfer


def _unpaired_decisions(
    sample: ClusterSample, loads: list[BrokerLoad], pairs: list[Decision], stopped_by: NoShedding
) -> list[Decision]:
    """Return the decisions for brokers without a pair, most loaded first."""
    seen = {name for pair in pairs for name in (pair.source, pair.destination)}
    rest = sorted((load for load in loads if load.broker not in seen), key=lambda load: (-load.load, load.broker))
    decisions: list[Decision] = []
    for number, load in enumerate(rest, len(pairs)):
        why, words = stopped_by, f"load {load.load:.1%}; {stopped_by.sentence}"
        if is_outdated(load, sample.settings):
            ttl = sample.settings.load_data_ttl_seconds
            words = f"the report is {load.report_age_s:.0f} s old, more than {ttl:g} s, so the mean excludes the broker"
            why = NoShedding(Reason.OUTDATED, load.report_age_s, ttl, words)
        decisions.append(
            Decision(
                load.broker,
                why.reason,
                pair=number,
                source_score=load.load * 100,
                value=why.value,
                bound=why.bound,
                explanation=words,
            )
        )
    return decisions


PROFILE = Profile(
    shed,
    swaps=True,
    # TransferShedder sheds once the hits exceed the setting.
    cluster_hits=lambda settings: settings.hit_count_transfer + 1,
    value=reported_load,
    resources=RESOURCES,
    placement=Placement.LEAST_USAGE,
)
