"""TransferShedder, one run over one cluster: the most and the least loaded brokers exchange bundles.

Loads are moving averages. When they have been out of balance for long enough (`Spread.imbalance`), pairs from the
outside in are looked at: the source gives bundles worth half the difference, and where its next bundle is too large,
smaller ones come back from the destination. Of each broker the busiest bundles alone are looked at (`top_bundles`).
Follows `TransferShedder.findBundlesForUnloading` of Pulsar 4.2.4, its defect included: what swaps bring back is counted
in debug mode alone (`credit_swaps`).

Brokers under the extensible load manager report their moving averages. For others they are kept here, by the rule of
BrokerLoadData; a broker that comes back starts anew.

Deviations: names decide ties, where Pulsar follows the order of a hash map. A broker without a report is left out: the
others go on, and it keeps its averages; Pulsar sheds nothing while a broker is silent. Bundles that may never move are
no part of a swap. A source whose load is 0 has nothing to give away; Pulsar divides by it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pulsar_rebalancer.snapshot import RESOURCES
from pulsar_rebalancer.strategies.exchange import MEASURE, Exchange
from pulsar_rebalancer.strategies.load_spread import Load, Spread, is_outdated
from pulsar_rebalancer.strategies.scoring import smooth, traffic, weighted_usage
from pulsar_rebalancer.strategies.top_bundles import top_bundles
from pulsar_rebalancer.strategies.view import Shed, amount, counted, decision, left_out

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pulsar_rebalancer.strategies.load_spread import Imbalance
    from pulsar_rebalancer.strategies.view import Row, View

AVERAGES = ("loads", "throughputs")


class Verdict(NamedTuple):
    """Why brokers are not looked at: a reason code, what was compared with what, and a sentence."""

    reason: str
    value: float | None
    bound: float | None
    sentence: str


def shed(view: View, kept: Mapping[str, Any]) -> Shed:
    """One run.

    Args:
        view: the sample.
        kept: `hits`, runs in a row out of balance; `loads` and `throughputs`, the moving averages by broker (1 is 100
            percent, and bytes/s) where brokers do not report theirs.
    """
    loads, after = broker_loads(view, kept)
    spread = Spread(loads, view.settings)
    hits = kept.get("hits", 0)
    decisions: list[Row] = []
    moves: list[Row] = []
    verdict = _unfit(view, loads, spread)
    if verdict is None:
        imbalance = spread.imbalance() if loads else None
        hits = hits + 1 if imbalance else 0
        verdict = _waiting(view, spread, imbalance, hits)
    if verdict is None:
        decisions, moves, verdict = _pairs(view, spread)
        hits = 0 if any(row["taken"] for row in moves) else hits
        sentence = f"{counted(len(decisions), 'pair')} of brokers looked at, then {verdict.sentence}"
    else:
        sentence = verdict.sentence
    decisions += _others(view, loads, decisions, verdict)
    return Shed([*decisions, *left_out(view)], moves, {"hits": hits, **after}, sentence)


def broker_loads(view: View, kept: Mapping[str, Any]) -> tuple[list[Load], dict[str, dict[str, float]]]:
    """Loads of the brokers that are judged, and the averages to keep (BrokerLoadData.update).

    Args:
        view: the sample.
        kept: as for `shed`.
    """
    of_load, of_throughput = (kept.get(name, {}) for name in AVERAGES)
    listed = {row["broker"] for row in view.brokers}
    loads_after = {broker: average for broker, average in of_load.items() if broker in listed}
    throughputs_after = {broker: average for broker, average in of_throughput.items() if broker in listed}
    loads = []
    for row in view.judged:
        broker, throughput = row["broker"], traffic(row, MEASURE)
        load, average = row.get("load_average"), row.get("throughput_average")
        if load is None:
            usage = weighted_usage(row, view.settings, RESOURCES)
            load = loads_after[broker] = smooth(of_load.get(broker), usage, view.settings)
        if average is None:
            average = throughputs_after[broker] = smooth(of_throughput.get(broker), throughput, view.settings)
        loads.append(Load(broker, load, average, throughput, row.get("report_age_seconds")))
    kept_on = (loads_after, throughputs_after)
    return loads, {name: dict(sorted(by_broker.items())) for name, by_broker in zip(AVERAGES, kept_on, strict=True)}


def _unfit(view: View, loads: list[Load], spread: Spread) -> Verdict | None:
    """Why the sample as a whole cannot be judged, in the order of `LoadStats.update`."""
    settings = view.settings
    delay = settings.shedding_delay_seconds
    for load in loads:
        elapsed = view.unloaded_brokers.get(load.broker)
        if elapsed is not None and elapsed < delay and not is_outdated(load, settings):
            words = f"{load.broker} reported {elapsed:.0f} s after its last unload, less than {delay:g} s"
            if elapsed < 0:
                words = f"{load.broker} has not reported since its last unload, {-elapsed:.0f} s after its report"
            return Verdict("cool_down", elapsed, delay, f"{words}: its load is not known yet")
    if not spread.counted:
        words = f"no report is younger than {settings.load_data_ttl_seconds:g} s" if loads else "no broker reports"
        return Verdict("outdated" if loads else "no_load_data", None, None, words)
    return None


def _waiting(view: View, spread: Spread, imbalance: Imbalance | None, hits: int) -> Verdict | None:
    """Why nothing is shed although the sample can be judged."""
    if imbalance is None:
        return _balanced(view, spread)
    needed = view.settings.hit_count_transfer
    if hits > needed or view.forced:
        return None
    return Verdict("hit_count", hits, needed, f"{imbalance.sentence}: run {hits} of more than {needed} in a row")


def _balanced(view: View, spread: Spread) -> Verdict:
    words = f"the loads are in balance, standard deviation {spread.std:.3f} around a mean of {spread.mean:.1%}"
    return Verdict("balanced", spread.std, view.settings.target_std, words)


def _pairs(view: View, spread: Spread) -> tuple[list[Row], list[Row], Verdict]:
    """Decisions and moves of the pairs that are looked at, and why the others are not."""
    decisions: list[Row] = []
    moves: list[Row] = []
    shed_brokers, cap = 0, view.settings.max_brokers_per_run
    while spread.has_pair:
        if shed_brokers >= cap:
            words = f"no more than {counted(cap, 'broker')} may shed in one run"
            verdict = Verdict("cap_brokers", shed_brokers, cap, words)
            break
        imbalance = spread.imbalance()
        if imbalance is None:
            verdict = _balanced(view, spread)
            break
        source, destination = spread.take_pair()
        row, exchange = _pair(view, len(decisions), source, destination, imbalance)
        decisions.append(row)
        moves += exchange.moves
        if exchange.left > 0:
            spread.move(source, destination, (exchange.left - exchange.gained) * source.load / source.throughput)
            shed_brokers += 1
    else:
        verdict = Verdict("middle", None, None, "no further pair is left")
    return decisions, moves, verdict


def _pair(view: View, number: int, source: Load, destination: Load, imbalance: Imbalance) -> tuple[Row, Exchange]:
    """The decision on one pair."""
    gap = source.load - destination.load
    target = source.throughput * (gap / 2) / source.load if source.load > 0 else 0.0
    exchange = Exchange(view, number, source, destination, target)
    bundles = top_bundles(view, source.broker)
    row = _decision(view, source, number, imbalance.value, imbalance.bound) | {
        "destination": destination.broker,
        "destination_score": destination.load * 100,
        "gap": gap * 100,
    }
    wanted = f"{imbalance.kind}: {imbalance.sentence}"
    if len(bundles) <= 1:
        reason = "single_bundle" if bundles else "no_top_bundles"
        held = "its single bundle stays" if bundles else "it has no top bundles"
        return row | {"reason": reason, "explanation": f"{wanted}; {source.broker} gives none, {held}"}, exchange
    exchange.run(bundles)
    explanation = f"{wanted}; {amount(MEASURE, target)} are to leave {source.broker}"
    fired = {"fired": True, "reason": "fired", "explanation": explanation, "measure": MEASURE, "target": target}
    return row | fired, exchange


def _others(view: View, loads: list[Load], pairs: list[Row], verdict: Verdict) -> list[Row]:
    """Decisions on the brokers that are in no pair, the most loaded first."""
    seen = {row[end] for row in pairs for end in ("source", "destination")}
    rest = sorted((load for load in loads if load.broker not in seen), key=lambda load: (-load.load, load.broker))
    rows: list[Row] = []
    for load in rest:
        row = _decision(view, load, len(pairs) + len(rows), verdict.value, verdict.bound)
        row |= {"reason": verdict.reason, "explanation": f"load {load.load:.1%}; {verdict.sentence}"}
        if is_outdated(load, view.settings):
            ttl = view.settings.load_data_ttl_seconds
            words = f"the report is {load.age:.0f} s old, more than {ttl:g} s: not part of the mean"
            row |= {"reason": "outdated", "value": load.age, "bound": ttl, "explanation": words}
        rows.append(row)
    return rows


def _decision(view: View, load: Load, number: int, value: float | None, bound: float | None) -> Row:
    return decision(view, load.broker, pair=number, source_score=load.load * 100, value=value, bound=bound)
