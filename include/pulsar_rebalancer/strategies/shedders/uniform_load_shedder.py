"""UniformLoadShedder for one run of one cluster: the busiest broker sheds bundles if its traffic is too high.

The busiest broker's traffic is compared with the idlest broker's: message rates first, and throughputs if the rates are
close enough. The algorithm follows `UniformLoadShedder.findBundlesForUnloading` in Pulsar 4.2.4, including its 32-bit
integers: amounts are rounded down and capped at 2,147,483,647, and the least traffic is capped at the same value. (Up
to 4.0.8, before #21906, bundles could exceed the remaining amount by 1000.) Ties are broken by name; in Pulsar, by hash
map order. The placement strategy chooses the destinations.
"""

from __future__ import annotations

from dataclasses import dataclass

from pulsar_rebalancer.config.field_types import Placement
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.tables import BrokerSample, Measure
from pulsar_rebalancer.state import ShedderState
from pulsar_rebalancer.strategies.sample import (
    CandidateMove,
    ClusterSample,
    Decision,
    Profile,
    SheddingResult,
    amount_text,
    left_out_decisions,
)
from pulsar_rebalancer.strategies.shedders.overload_shedder import BoundCheck, broker_decision

MAX_INT = 2**31 - 1
MIN_TRAFFIC = 1e-6
"""If the idlest broker's traffic is at most this number, 1 is used instead."""


@dataclass(frozen=True, slots=True)
class TrafficDifference:
    """A comparison between the busiest and the idlest broker in one measure.

    Attributes:
        measure: message rate or throughput.
        busiest_broker: brokerId of the busiest broker; empty if there are no brokers.
        highest: the busiest broker's traffic.
        lowest: the idlest broker's traffic.
        value: the difference in percent of `lowest` for message rates; the ratio `highest` / `lowest` for throughputs.
        bound: the limit that the value must exceed. If the limit is 0 or less, the measure is ignored.
        minimum: amount of traffic below which nothing is moved.
    """

    measure: Measure
    busiest_broker: str
    highest: float
    lowest: float
    value: float
    bound: float
    minimum: float

    @property
    def is_exceeded(self) -> bool:
        return self.bound > 0 and self.value > self.bound

    @property
    def sentence(self) -> str:
        by_rate = self.measure is Measure.RATE
        name, unit, above_or_times = ("message rate", " %", "above") if by_rate else ("throughput", "", "times")
        if self.bound <= 0:
            return f"{name} is ignored"
        limit = f"more than {self.bound:g}{unit}" if self.is_exceeded else f"not more than {self.bound:g}{unit}"
        most, least = amount_text(self.measure, self.highest), amount_text(self.measure, self.lowest)
        return f"{name} {most} is {self.value:,.1f}{unit} {above_or_times} the lowest ({least}), {limit}"


def shed(sample: ClusterSample, state: ShedderState) -> SheddingResult:
    """Make the shedding decisions for one run. No state is kept between runs."""
    rates, throughputs = _rate_difference(sample), _throughput_difference(sample)
    firing = next((difference for difference in (rates, throughputs) if difference.is_exceeded), None)
    looked_at = firing or rates
    decisions: list[Decision] = []
    moves: list[CandidateMove] = []
    busiest = (firing.busiest_broker,) if firing else (rates.busiest_broker, throughputs.busiest_broker)
    carried = sample.all_brokers.traffic_by_broker(looked_at.measure)
    for number, name in enumerate(sorted(carried, key=lambda name: -carried[name])):
        if name not in busiest and sample.brief:
            continue
        broker = sample.broker(name)
        if name not in busiest:
            decision = _other_decision(sample, broker, looked_at, number)
        elif firing:
            decision, moves = _shed_busiest(sample, broker, firing, number)
        else:
            own = rates if name == rates.busiest_broker else throughputs
            compared = BoundCheck(own.value, own.bound)
            decision = broker_decision(sample, broker, number, compared, Reason.BALANCED, own.sentence)
        decisions.append(decision)
    if firing:
        sentence = f"{firing.busiest_broker}: {firing.sentence}"
    else:
        sentence = f"{rates.sentence}; {throughputs.sentence}" if carried else "no broker can be compared"
    return SheddingResult([*decisions, *left_out_decisions(sample)], moves, ShedderState(), sentence)


def _rate_difference(sample: ClusterSample) -> TrafficDifference:
    busiest, most, least = _traffic_extremes(sample, Measure.RATE)
    bound, minimum = sample.settings.rate_difference, sample.settings.min_unload_message
    return TrafficDifference(Measure.RATE, busiest, most, least, (most - least) * 100 / least, bound, minimum)


def _throughput_difference(sample: ClusterSample) -> TrafficDifference:
    busiest, most, least = _traffic_extremes(sample, Measure.THROUGHPUT)
    bound, minimum = sample.settings.throughput_ratio, sample.settings.min_unload_throughput
    return TrafficDifference(Measure.THROUGHPUT, busiest, most, least, most / least, bound, minimum)


def _traffic_extremes(sample: ClusterSample, measure: Measure) -> tuple[str, float, float]:
    carried = sample.all_brokers.traffic_by_broker(measure)
    busiest = max(carried, key=carried.__getitem__, default="")
    most, least = carried.get(busiest, -1.0), min([float(MAX_INT), *carried.values()])
    return busiest, most, 1.0 if abs(least) <= MIN_TRAFFIC else least


def _other_decision(sample: ClusterSample, broker: BrokerSample, difference: TrafficDifference, pair: int) -> Decision:
    carried = broker.traffic(difference.measure)
    explanation = (
        f"carries {amount_text(difference.measure, carried)}; only the busiest broker sheds "
        f"({difference.busiest_broker}, {amount_text(difference.measure, difference.highest)})"
    )
    compared = BoundCheck(carried, difference.highest)
    return broker_decision(sample, broker, pair, compared, Reason.NO_PARTNER, explanation)


def _shed_busiest(
    sample: ClusterSample, broker: BrokerSample, difference: TrafficDifference, pair: int
) -> tuple[Decision, list[CandidateMove]]:
    """Return the decision for the busiest broker, and the moves away from it."""
    measure, compared = difference.measure, BoundCheck(difference.value, difference.bound)
    required = min(int((difference.highest - difference.lowest) * sample.settings.max_unload_percentage), MAX_INT)
    text = f"{difference.sentence}: {amount_text(measure, required)} must leave"
    if broker.bundles <= 1:
        words = f"{text}, but {'the only bundle stays' if broker.bundles else 'the broker has no bundle'}"
        return broker_decision(sample, broker, pair, compared, Reason.FEW_BUNDLES, words), []
    if required < difference.minimum:
        words = f"{text}, less than the minimum of {amount_text(measure, difference.minimum)}"
        return broker_decision(sample, broker, pair, compared, Reason.BELOW_MINIMUM, words), []
    fired = broker_decision(sample, broker, pair, compared, Reason.FIRED, text, measure=measure, target=float(required))
    return fired, _pick_bundles(sample, broker.broker, measure, pair, required)


def _pick_bundles(sample: ClusterSample, broker: str, measure: Measure, pair: int, traffic: int) -> list[CandidateMove]:
    """Choose bundles of a broker, busiest first, that fit into the remaining amount. Idle bundles are chosen too."""
    moves: list[CandidateMove] = []
    taken = 0
    busiest_first = sorted(sample.shed_candidates(broker), key=lambda bundle: (-bundle.mean(measure), bundle.bundle))
    for rank, bundle in enumerate(busiest_first):
        reason = bundle.reason or _reason_by_size(bundle.mean(measure), traffic, taken, sample.settings)
        if reason is Reason.TAKEN:
            taken += 1
            traffic -= int(bundle.mean(measure))
        moves.append(CandidateMove.new(bundle, pair=pair, rank=rank, measure=measure, reason=reason))
    return moves


def _reason_by_size(traffic: float, remaining_traffic: int, bundles_taken: int, settings: Settings) -> Reason:
    if settings.max_unload_bundles != -1 and bundles_taken >= settings.max_unload_bundles:
        return Reason.NOT_REACHED
    return Reason.TAKEN if traffic <= remaining_traffic else Reason.OVER_REMAINING


PROFILE = Profile(shed, placement=Placement.LEAST_RATE, grid={"rate_difference": [20, 50]})
