"""A shedder of somebody else's package: the hottest broker gives the coldest one a bundle once the gap has lasted."""

from pydantic import BaseModel, ConfigDict, Field

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.tables import Measure
from pulsar_rebalancer.state import HitCount, ShedderState
from pulsar_rebalancer.strategies.sample import (
    CandidateMove,
    ClusterSample,
    Decision,
    Line,
    Profile,
    SheddingResult,
    Threshold,
    hits_after,
    left_out_decisions,
)
from pulsar_rebalancer.strategies.scoring import score

PATH = f"{__name__}:shed"


class Own(BaseModel):
    """Its settings: a gap in points, and how often it must have been seen."""

    model_config = ConfigDict(extra="forbid")

    gap: float = Field(30, gt=0)
    times: int = Field(2, ge=1)


def shed(sample: ClusterSample, state: ShedderState) -> SheddingResult:
    own = Own.model_validate(sample.settings.strategy_settings)
    found = sorted(sample.compared_brokers, key=lambda broker: score(broker, sample.settings))
    hot, cold = found[-1], found[0]
    scores = {broker.broker: score(broker, sample.settings) for broker in found}
    gap = scores[hot.broker] - scores[cold.broker]
    before = state.hits.get(hot.broker, HitCount()).low
    repeated = sample.counting.are_repeated({each.broker: scores[each.broker] for each in (hot, cold)})
    hits = before + (not repeated) if gap >= own.gap else 0
    fired = hits >= own.times or (sample.force_threshold is not None and gap >= sample.force_threshold)
    reason = Reason.FIRED if fired else Reason.HIT_COUNT if hits else Reason.BALANCED
    after = before if not sample.counting.counts else 0 if fired else hits
    moves = []
    if fired:
        busiest = max(sample.bundles.of_broker(hot.broker), key=lambda bundle: (bundle.msg_rate, bundle.bundle))
        why = busiest.reason or sample.forbids(busiest.bundle, hot.broker, cold.broker) or Reason.TAKEN
        moves = [CandidateMove.new(busiest, pair=0, rank=0, measure=Measure.RATE, reason=why, destination=cold.broker)]
    decisions = [
        Decision(
            hot.broker,
            reason,
            pair=0,
            destination=cold.broker,
            source_score=scores[hot.broker],
            destination_score=scores[cold.broker],
            gap=gap,
            source_low_before=before,
            source_high_before=0,
            source_high=0,
            source_low=after,
            destination_high=0,
            destination_low=0,
            low_hits=hits,
            fired=fired,
            measure=Measure.RATE if fired else None,
            target=moves[0].traffic if moves else None,
        )
    ]
    decisions += [
        Decision(each.broker, Reason.NO_PARTNER, pair=number, source_score=scores[each.broker])
        for number, each in enumerate(found[1:-1], start=1)
    ]
    state, sentence = ShedderState(hits=hits_after(decisions)), f"the outermost two are {gap:.0f} apart"
    return SheddingResult([*decisions, *left_out_decisions(sample)], moves, state, sentence)


def _own(settings: Settings) -> Own:
    return Own.model_validate(settings.strategy_settings)


PROFILE = Profile(
    shed,
    thresholds=lambda settings: {"low": Threshold(_own(settings).gap, _own(settings).times)},
    own_settings=Own,
    lines=lambda settings, mean: (Line(name="of somebody else", lower=1, upper=1 + _own(settings).gap),),
    sentence=lambda summary: f"somebody else finds {summary.brokers} brokers even enough",
)
