"""Choose the bundles that ThresholdShedder and OverloadShedder move away from a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.tables import Measure
from pulsar_rebalancer.strategies.sample import CandidateMove, Decision
from pulsar_rebalancer.strategies.scoring import score
from pulsar_rebalancer.strategies.wording import amount

if TYPE_CHECKING:
    from pulsar_rebalancer.run.tables import BrokerSample
    from pulsar_rebalancer.strategies.sample import ClusterSample

MEASURE = Measure.THROUGHPUT


class Comparison(NamedTuple):
    """The value and the bound that a shedder compared. The unit depends on the shedder."""

    value: float
    bound: float


def broker_decision(
    sample: ClusterSample,
    broker: BrokerSample,
    number: int,
    compared: Comparison,
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
        pair=number,
        source_score=score(broker, sample.settings),
        value=compared.value,
        bound=compared.bound,
        fired=fired,
        explanation=explanation,
        measure=measure if fired else None,
        target=target,
    )


def offload(
    sample: ClusterSample, broker: BrokerSample, *, number: int, compared: Comparison, target: float, why: str
) -> tuple[Decision, list[CandidateMove]]:
    """Choose bundles with a total of at least `target` to move away from a broker.

    This follows `filterAndSelectBundle` in both classes. If a broker has only one bundle, it stays, because it would
    make any other broker equally hot.

    Args:
        target: throughput in bytes/s.
        why: why the broker sheds bundles; it is the first part of the decision's explanation.
    """
    wanted = f"{why}: {amount(MEASURE, target)} must leave"
    if broker.bundles <= 1:
        held = "its single bundle stays" if broker.bundles else "it has no bundle"
        words = f"{wanted}, but {held}"
        return broker_decision(sample, broker, number, compared, Reason.SINGLE_BUNDLE, words), []
    fired = broker_decision(sample, broker, number, compared, Reason.FIRED, wanted, target=target)
    return fired, walk(sample, broker.broker, number, target)


def walk(sample: ClusterSample, broker: str, number: int, target: float) -> list[CandidateMove]:
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
        reason = bundle.reason or (Reason.TAKEN if marked < target or not has_taken else Reason.TARGET_REACHED)
        if reason is Reason.TAKEN:
            marked, has_taken = marked + bundle.msg_throughput, True
        moves.append(CandidateMove.of(bundle, pair=number, rank=rank, measure=MEASURE, reason=reason))
    return moves
