"""OverloadShedder for one run of one cluster: every broker above a fixed bound sheds the excess load.

It uses no averages and ignores the other brokers. So if every broker in a cluster is above the bound, bundles keep
moving from broker to broker. The algorithm follows `OverloadShedder.findBundlesForUnloading` in Pulsar 4.2.4. Bundles
with equal traffic are ordered by name, whereas Pulsar takes them in hash map order. The placement strategy chooses the
destinations.
"""

from __future__ import annotations

from typing import NamedTuple

from pulsar_rebalancer.config.field_types import Placement
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.tables import BrokerSample, Measure
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
from pulsar_rebalancer.strategies.scoring import score
from pulsar_rebalancer.texts import number_of

MEASURE = Measure.THROUGHPUT


class BoundCheck(NamedTuple):
    value: float
    bound: float


def broker_decision(
    sample: ClusterSample,
    broker: BrokerSample,
    pair: int,
    comparison: BoundCheck,
    reason: Reason,
    explanation: str,
    *,
    target: float | None = None,
    measure: Measure = MEASURE,
) -> Decision:
    """Return the decision for a broker, with its current score. The decision has fired if there is a target.

    Args:
        explanation: a sentence that states the result.
        target: traffic to move away from the broker, in the unit of `measure`; None if nothing is to be moved.
    """
    fired = target is not None
    return Decision(
        broker.broker,
        reason,
        pair=pair,
        source_score=score(broker, sample.settings),
        value=comparison.value,
        bound=comparison.bound,
        fired=fired,
        explanation=explanation,
        measure=measure if fired else None,
        target=target,
    )


def shed_excess(
    sample: ClusterSample, broker: BrokerSample, *, pair: int, comparison: BoundCheck, target: float, explanation: str
) -> tuple[Decision, list[CandidateMove]]:
    """Choose bundles with a total of at least `target` to move away from a broker.

    This follows `filterAndSelectBundle` in both classes. If a broker has only one bundle, it stays, because it would
    make any other broker equally hot.

    Args:
        target: throughput in bytes/s.
        explanation: why the broker sheds bundles; it is the first part of the decision's explanation.
    """
    wanted = f"{explanation}: {amount_text(MEASURE, target)} must leave"
    if broker.bundles <= 1:
        held = "the only bundle stays" if broker.bundles else "the broker has no bundle"
        words = f"{wanted}, but {held}"
        return broker_decision(sample, broker, pair, comparison, Reason.FEW_BUNDLES, words), []
    fired = broker_decision(sample, broker, pair, comparison, Reason.FIRED, wanted, target=target)
    return fired, choose_bundles(sample, broker.broker, pair, target)


def choose_bundles(sample: ClusterSample, broker: str, pair: int, target: float) -> list[CandidateMove]:
    """Choose bundles of a broker, busiest first, until their total throughput reaches the target.

    The total can exceed the target by part of the last bundle. The first bundle is always chosen, and idle bundles can
    be chosen too.

    Args:
        target: throughput in bytes/s.
    """
    moves: list[CandidateMove] = []
    marked, has_taken = 0.0, False
    busiest_first = sorted(sample.shed_candidates(broker), key=lambda bundle: (-bundle.msg_throughput, bundle.bundle))
    for rank, bundle in enumerate(busiest_first):
        reason = bundle.reason or (Reason.TAKEN if marked < target or not has_taken else Reason.NOT_REACHED)
        if reason is Reason.TAKEN:
            marked, has_taken = marked + bundle.msg_throughput, True
        moves.append(CandidateMove.new(bundle, pair=pair, rank=rank, measure=MEASURE, reason=reason))
    return moves


TARGET_MARGIN = 0.05
"""Shedding aims at a load this far below the threshold; 1 is 100 percent."""


def shed(sample: ClusterSample, state: ShedderState) -> SheddingResult:
    bound = sample.settings.overloaded_threshold / 100
    usage = sample.usage_by_broker()
    decisions: list[Decision] = []
    moves: list[CandidateMove] = []
    for number, (name, load) in enumerate(sorted(usage.items(), key=lambda item: -item[1])):
        if load < bound and sample.brief:
            break  # and so are the others
        broker, compared = sample.broker(name), BoundCheck(load * 100, bound * 100)
        if load < bound:
            words = f"load {load:.1%} is below {bound:.1%}"
            decisions.append(broker_decision(sample, broker, number, compared, Reason.BALANCED, words))
            continue
        target = broker.traffic(MEASURE) * (load - bound + TARGET_MARGIN)
        why = f"load {load:.1%} reaches {bound:.1%}"
        decision, walked = shed_excess(sample, broker, pair=number, target=target, explanation=why, comparison=compared)
        decisions.append(decision)
        moves += walked
    over = sum(load >= bound for load in usage.values())
    sentence = f"{over} of {number_of(len(usage), 'broker')} have a load of {bound:.0%} or more"
    return SheddingResult([*decisions, *left_out_decisions(sample)], moves, ShedderState(), sentence)


def _lines(settings: Settings, mean: float | None) -> tuple[Line, ...]:
    limit = settings.overloaded_threshold
    return (Line(name="overloaded", lower=limit, upper=limit),)


PROFILE = Profile(shed, placement=Placement.LEAST_RATE, lines=_lines)
