"""UniformLoadShedder, one run over one cluster: the busiest broker gives bundles away when it is far above the idlest.

Only traffic is looked at: the message rates first, the throughputs when the rates are close enough. One broker sheds
in a run. Follows `UniformLoadShedder.findBundlesForUnloading` of Pulsar 4.2.4 (up to 4.0.8, before #21906, bundles
might exceed what remains by 1000), its 32-bit figures among it: amounts end at 2,147,483,647 and lose their fractions,
and no idlest broker is above that. Ties are decided by name, where Pulsar follows the order of a hash map.
Destinations are the placement strategy's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pulsar_rebalancer.strategies.offload import judged
from pulsar_rebalancer.strategies.scoring import traffic
from pulsar_rebalancer.strategies.view import Shed, amount, left_out, move

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pulsar_rebalancer.settings import Settings
    from pulsar_rebalancer.strategies.view import Row, View

MAX_INT = 2**31 - 1
NOTHING = 1e-6
"""Traffic up to which the idlest broker counts as carrying 1."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The busiest and the idlest broker in one measure.

    Attributes:
        measure: `msg_rate` (msg/s) or `msg_throughput` (bytes/s).
        busiest: a broker; empty without any.
        most: its traffic.
        least: the idlest broker's traffic.
        value: difference in percent of the least for rates, multiple of the least for throughputs.
        bound: what the value must exceed; 0 or less: the measure is not looked at.
        minimum: smallest amount worth moving.
    """

    measure: str
    busiest: str
    most: float
    least: float
    value: float
    bound: float
    minimum: float

    @property
    def exceeded(self) -> bool:
        """Whether the busiest broker has to shed."""
        return self.bound > 0 and self.value > self.bound

    @property
    def sentence(self) -> str:
        """The comparison in words."""
        name, unit = ("message rate", " %") if self.measure == "msg_rate" else ("throughput", "")
        of = "above" if self.measure == "msg_rate" else "times"
        if self.bound <= 0:
            return f"{name} is not looked at"
        compared = f"more than {self.bound:g}{unit}" if self.exceeded else f"not more than {self.bound:g}{unit}"
        most, least = amount(self.measure, self.most), amount(self.measure, self.least)
        return f"{name} {most} is {self.value:,.1f}{unit} {of} the least of {least}, {compared}"


def shed(view: View, kept: Mapping[str, Any]) -> Shed:
    """One run; nothing is kept.

    Args:
        view: the sample.
        kept: not looked at.
    """
    rates, throughputs = _rates(view), _throughputs(view)
    firing = next((spread for spread in (rates, throughputs) if spread.exceeded), None)
    looked_at = firing or rates
    decisions: list[Row] = []
    moves: list[Row] = []
    for number, broker in enumerate(sorted(view.judged, key=lambda row: -traffic(row, looked_at.measure))):
        if firing and broker["broker"] == firing.busiest:
            row, moves = _unload(view, broker, firing, number)
        elif firing is None and broker["broker"] in (rates.busiest, throughputs.busiest):
            spread = rates if broker["broker"] == rates.busiest else throughputs
            columns = {"value": spread.value, "bound": spread.bound, "reason": "below_threshold"}
            row = judged(view, broker, pair=number, explanation=spread.sentence, **columns)
        else:
            row = _not_busiest(view, broker, looked_at, number)
        decisions.append(row)
    if firing:
        sentence = f"{firing.busiest}: {firing.sentence}"
    else:
        sentence = f"{rates.sentence}; {throughputs.sentence}" if view.judged else "no broker can be judged"
    return Shed([*decisions, *left_out(view)], moves, {}, sentence)


def _rates(view: View) -> Spread:
    busiest, most, least = _extremes(view, "msg_rate")
    settings = view.settings
    value = (most - least) * 100 / least
    return Spread("msg_rate", busiest, most, least, value, settings.rate_difference, settings.min_unload_message)


def _throughputs(view: View) -> Spread:
    busiest, most, least = _extremes(view, "msg_throughput")
    settings = view.settings
    bound, minimum = settings.throughput_ratio, settings.min_unload_throughput
    return Spread("msg_throughput", busiest, most, least, most / least, bound, minimum)


def _extremes(view: View, measure: str) -> tuple[str, float, float]:
    busiest, most, least = "", -1.0, float(MAX_INT)
    for row in view.judged:
        carried = traffic(row, measure)
        if carried > most:
            busiest, most = row["broker"], carried
        least = min(least, carried)
    return busiest, most, 1.0 if abs(least) <= NOTHING else least


def _not_busiest(view: View, broker: Mapping[str, Any], spread: Spread, number: int) -> Row:
    carried = traffic(broker, spread.measure)
    explanation = (
        f"carries {amount(spread.measure, carried)}, {spread.busiest} {amount(spread.measure, spread.most)}: "
        "only the busiest broker sheds"
    )
    columns = {"value": carried, "bound": spread.most, "reason": "not_busiest", "explanation": explanation}
    return judged(view, broker, pair=number, **columns)


def _unload(view: View, broker: Mapping[str, Any], spread: Spread, number: int) -> tuple[Row, list[Row]]:
    """The decision on the busiest broker, and its moves."""
    row = judged(view, broker, pair=number, value=spread.value, bound=spread.bound)
    required = min(int((spread.most - spread.least) * view.settings.max_unload_percentage), MAX_INT)
    wanted = f"{spread.sentence}: {amount(spread.measure, required)} are to leave"
    count = broker["bundles"] or 0
    if count <= 1:
        held = "its single bundle stays" if count else "it has no bundle"
        return row | {"reason": "single_bundle", "explanation": f"{wanted}, but {held}"}, []
    if required < spread.minimum:
        explanation = f"{wanted}, less than the minimum of {amount(spread.measure, spread.minimum)}"
        return row | {"reason": "below_minimum", "explanation": explanation}, []
    fired = {"fired": True, "measure": spread.measure, "target": float(required), "reason": "fired"}
    moves = _walk(view, broker["broker"], spread.measure, number, required)
    return row | fired | {"explanation": wanted}, moves


def _walk(view: View, broker: str, measure: str, number: int, required: int) -> list[Row]:
    """Walk over a broker's bundles, the busiest first: each that fits into what remains is taken, idle ones as well."""
    rows: list[Row] = []
    taken = 0
    for rank, bundle in enumerate(sorted(view.bundles_of(broker), key=lambda row: (-row[measure], row["bundle"]))):
        reason = bundle["reason"] or _verdict(bundle[measure], required, taken, view.settings)
        if reason == "taken":
            taken += 1
            required -= int(bundle[measure])
        rows.append(move(view, bundle, number=number, rank=rank, measure=measure, reason=reason, destination=None))
    return rows


def _verdict(carried: float, remaining: int, taken: int, settings: Settings) -> str:
    if settings.max_unload_bundles != -1 and taken >= settings.max_unload_bundles:
        return "cap_shedding"
    return "taken" if carried <= remaining else "over_remaining"
