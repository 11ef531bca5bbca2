"""OverloadShedder for one run of one cluster: every broker above a fixed bound sheds the excess load.

It uses no averages and ignores the other brokers. So if every broker in a cluster is above the bound, bundles keep
moving from broker to broker. The algorithm follows `OverloadShedder.findBundlesForUnloading` in Pulsar 4.2.4. Bundles
with equal traffic are ordered by name, whereas Pulsar takes them in hash map order. The placement strategy chooses the
destinations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsar_rebalancer.config.enums import Placement
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.strategies.kept import ShedderState
from pulsar_rebalancer.strategies.sample import SheddingResult, left_out_decisions
from pulsar_rebalancer.strategies.scoring import weighted_usage
from pulsar_rebalancer.strategies.shedders.offload import MEASURE, Comparison, broker_decision, offload
from pulsar_rebalancer.strategies.shedders.profile import Line, Profile
from pulsar_rebalancer.texts import number_of

if TYPE_CHECKING:
    from pulsar_rebalancer.config.settings import Settings
    from pulsar_rebalancer.strategies.sample import CandidateMove, ClusterSample, Decision

MARGIN = 0.05
"""Shedding aims for a load this far below the bound; 1 is 100 percent."""


def shed(sample: ClusterSample, kept: ShedderState) -> SheddingResult:
    """Make the shedding decisions for one run. No state is kept between runs."""
    bound = sample.settings.overloaded_threshold / 100
    usage = {broker.broker: weighted_usage(broker, sample.settings) for broker in sample.taking_part}
    decisions: list[Decision] = []
    moves: list[CandidateMove] = []
    for number, broker in enumerate(sorted(sample.taking_part, key=lambda broker: -usage[broker.broker])):
        load = usage[broker.broker]
        compared = Comparison(load * 100, bound * 100)
        if load < bound:
            words = f"load {load:.1%}, below {bound:.1%}"
            decisions.append(broker_decision(sample, broker, number, compared, Reason.NOT_OVERLOADED, words))
            continue
        target = broker.traffic(MEASURE) * (load - bound + MARGIN)
        why = f"load {load:.1%} reaches {bound:.1%}"
        decision, walked = offload(sample, broker, number=number, target=target, why=why, compared=compared)
        decisions.append(decision)
        moves += walked
    over = sum(load >= bound for load in usage.values())
    sentence = f"{over} of {number_of(len(usage), 'broker')} have a load of {bound:.0%} or more"
    return SheddingResult([*decisions, *left_out_decisions(sample)], moves, ShedderState(), sentence)


def _lines(settings: Settings, mean: float | None) -> tuple[Line, ...]:
    limit = settings.overloaded_threshold
    return (Line(name="overloaded", lower=limit, upper=limit),)


PROFILE = Profile(shed, placement=Placement.LEAST_RATE, lines=_lines)
