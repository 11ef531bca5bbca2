"""ThresholdShedder for one run of one cluster: brokers whose load is far above the average shed bundles.

A broker's load is a moving average, which reacts slowly to changes. A broker sheds bundles if its load is at least
`average_threshold` points above the mean of all brokers. If no bundle moves and the lower boundary is enabled, the
busiest broker sheds bundles if another broker is equally far below the mean (PIP-220). The algorithm follows
`ThresholdShedder.findBundlesForUnloading` in Pulsar 4.2.4. The placement strategy chooses the destinations.

Deviations: Ties are broken by name; in Pulsar, by hash map order. The averages of brokers that have left the
cluster are dropped in the next run; in Pulsar, when the list of active brokers changes. The average of a broker that is
left out is kept, but is not included in the mean.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from pulsar_rebalancer.config.pulsar_settings import MIB
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.tables import BrokerSample
from pulsar_rebalancer.state import ShedderState
from pulsar_rebalancer.strategies.sample import (
    CandidateMove,
    ClusterSample,
    Decision,
    Line,
    Profile,
    SheddingResult,
    amount_text,
    left_out_decisions,
)
from pulsar_rebalancer.strategies.scoring import smooth
from pulsar_rebalancer.strategies.shedders.overload_shedder import MEASURE, BoundCheck, broker_decision, shed_excess
from pulsar_rebalancer.texts import number_of

TARGET_MARGIN = 0.05
"""Shedding aims at a load this far below the upper bound; 1 is 100 percent."""

LOWER_MARGIN = 0.5
"""If `lower_boundary` is on, the busiest broker sheds traffic x average_threshold x this factor."""


def shed(sample: ClusterSample, state: ShedderState) -> SheddingResult:
    usage = sample.usage_by_broker()
    averages = _averages(sample, state.loads, usage)
    mean = _mean_load(averages)
    decisions: dict[int, Decision] = {}
    moves: list[CandidateMove] = []
    in_order = sorted(averages, key=lambda name: -averages[name])
    for number, name in enumerate(in_order):
        decisions[number], walked = _shed_above_bound(sample, sample.broker(name), number, averages[name], mean)
        moves += walked
        if sample.brief and decisions[number].reason is Reason.BALANCED:
            break  # and so are the others, whose load is lower
    sentence = _above_bound_text(sample, averages, mean)
    if averages and sample.settings.lower_boundary and not any(move.is_taken for move in moves):
        # Pulsar adds the sample to the averages a second time here.
        averages = _averages(sample, averages, usage)
        replaced, walked, below = _shed_below_bound(sample, in_order, averages)
        if replaced is not None and replaced.pair is not None:
            decisions[replaced.pair] = replaced
            moves = [move for move in moves if move.pair != replaced.pair] + walked
        sentence += f"; {below}"
    frozen = state.loads.keys() & sample.all_brokers.names - averages.keys()
    after = ShedderState(loads=dict(sorted((averages | {broker: state.loads[broker] for broker in frozen}).items())))
    return SheddingResult([*decisions.values(), *left_out_decisions(sample)], moves, after, sentence)


def _averages(sample: ClusterSample, old_averages: Mapping[str, float], usage: Mapping[str, float]) -> dict[str, float]:
    return {broker: smooth(old_averages.get(broker), load, sample.settings) for broker, load in usage.items()}


def _mean_load(averages: Mapping[str, float]) -> float:
    return math.fsum(averages.values()) / len(averages) if averages else 0.0


def _above_bound_text(sample: ClusterSample, averages: Mapping[str, float], mean: float) -> str:
    if not averages:
        return "no broker can be compared"
    bound = mean + _average_threshold(sample)
    over = sum(load >= bound for load in averages.values()) if mean > 0 else 0
    points = f"{sample.settings.average_threshold:g} points or more above the mean load of {mean:.1%}"
    return f"{over} of {number_of(len(averages), 'broker')} are {points}"


def _shed_above_bound(
    sample: ClusterSample, broker: BrokerSample, pair: int, average: float, mean: float
) -> tuple[Decision, list[CandidateMove]]:
    """Return the decision for one broker, and the moves away from it."""
    threshold = _average_threshold(sample)
    bound = mean + threshold
    above = f"the mean of {mean:.1%} plus {sample.settings.average_threshold:g} points"
    if average < bound or mean == 0:
        words = f"average load {average:.1%} is below {above}" if mean else "the mean load is 0"
        compared = BoundCheck(average * 100, bound * 100)
        return broker_decision(sample, broker, pair, compared, Reason.BALANCED, words), []
    target = broker.traffic(MEASURE) * (average - mean - threshold + TARGET_MARGIN)
    return _shed_excess(sample, broker, pair, average, bound, target, f"average load {average:.1%} reaches {above}")


def _shed_below_bound(
    sample: ClusterSample, busiest_first: list[str], averages: Mapping[str, float]
) -> tuple[Decision | None, list[CandidateMove], str]:
    """Return the decision for the busiest broker, the moves away from it, and a sentence that explains the result.

    The decision is None if no broker is below the lower boundary.
    """
    threshold = _average_threshold(sample)
    bound = _mean_load(averages) - threshold
    lowest = min(averages, key=averages.__getitem__)
    if not averages[lowest] < bound:
        return None, [], f"no broker is below the lower boundary of {bound:.1%}"
    below = f"{lowest} has a load of {averages[lowest]:.1%}, below the lower boundary of {bound:.1%}"
    giving = [broker for broker in sample.compared_brokers if broker.bundles > 1 and averages[broker.broker] > bound]
    if not giving:
        return None, [], f"{below}, but no broker above the boundary has more than one bundle"
    broker = max(giving, key=lambda broker: averages[broker.broker])
    average = averages[broker.broker]
    target = broker.traffic(MEASURE) * threshold * LOWER_MARGIN
    why = f"average load {average:.1%} is the highest, and {below}"
    return *_shed_excess(sample, broker, busiest_first.index(broker.broker), average, bound, target, why), below


def _shed_excess(
    sample: ClusterSample, broker: BrokerSample, pair: int, average: float, bound: float, target: float, cause: str
) -> tuple[Decision, list[CandidateMove]]:
    compared = BoundCheck(average * 100, bound * 100)
    minimum = sample.settings.min_unload_bundle_throughput * MIB
    if target < minimum:
        little, least = amount_text(MEASURE, target), amount_text(MEASURE, minimum)
        words = f"{cause}: {little} would have to leave, less than the minimum of {least}"
        return broker_decision(sample, broker, pair, compared, Reason.BELOW_MINIMUM, words), []
    return shed_excess(sample, broker, pair=pair, target=target, explanation=cause, comparison=compared)


def _average_threshold(sample: ClusterSample) -> float:
    return sample.settings.average_threshold / 100


def _lines(settings: Settings, mean: float | None) -> tuple[Line, ...]:
    if mean is None:
        return ()
    limit = mean + settings.average_threshold
    return (Line(name="mean plus average_threshold", lower=limit, upper=limit),)


PROFILE = Profile(shed, lines=_lines, grid={"average_threshold": [5, 10, 20]})
