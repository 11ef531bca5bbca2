"""ThresholdShedder, one run over one cluster: brokers far above the average give away what lies above it.

A broker's load is a moving average, which follows a step only slowly. One whose load is `average_threshold` points or
more above the mean of all brokers gives away bundles; with the lower boundary switched on, and when nothing else was
found, the busiest broker gives some away because another one is as far below the mean (PIP-220). Follows
`ThresholdShedder.findBundlesForUnloading` of Pulsar 4.2.4. Destinations are the placement strategy's.

Deviations: names decide ties, where Pulsar follows the order of a hash map. Averages of brokers that are gone are
forgotten with the run that misses them, in Pulsar with the change of the list of active brokers. A broker that is left
out keeps its average and is no part of the mean.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from pulsar_rebalancer.strategies.offload import judged, offload
from pulsar_rebalancer.strategies.scoring import smooth, traffic, weighted_usage
from pulsar_rebalancer.strategies.view import MIB, Shed, amount, left_out

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pulsar_rebalancer.strategies.view import Row, View

MARGIN = 0.05
"""How far below its bound a broker is to end, 1 is 100 percent."""

LOWER_MARGIN = 0.5
"""Share of the threshold that the busiest broker gives away for one below the lower boundary."""


def shed(view: View, kept: Mapping[str, Any]) -> Shed:
    """One run.

    Args:
        view: the sample.
        kept: `averages`, the moving average of the load by broker, 1 is 100 percent.
    """
    before: Mapping[str, float] = kept.get("averages", {})
    usage = {row["broker"]: weighted_usage(row, view.settings) for row in view.judged}
    averages = _updated(view, before, usage)
    mean = _mean(averages)
    decisions: list[Row] = []
    moves: list[Row] = []
    in_order = sorted(view.judged, key=lambda row: -averages[row["broker"]])
    for number, broker in enumerate(in_order):
        row, walked = _above(view, broker, number, averages[broker["broker"]], mean)
        decisions.append(row)
        moves += walked
    sentence = _above_bound(view, averages, mean)
    if view.judged and view.settings.lower_boundary and not any(row["taken"] for row in moves):
        # Pulsar adds the sample to the averages a second time here.
        averages = _updated(view, averages, usage)
        found, walked, below = _below(view, in_order, averages)
        if found is not None:
            decisions[found["pair"]] = found
            moves = [row for row in moves if row["pair"] != found["pair"]] + walked
        sentence += f"; {below}"
    frozen = {row["broker"] for row in view.brokers} & before.keys() - averages.keys()
    averages |= {broker: before[broker] for broker in frozen}
    return Shed([*decisions, *left_out(view)], moves, {"averages": dict(sorted(averages.items()))}, sentence)


def _updated(view: View, before: Mapping[str, float], usage: Mapping[str, float]) -> dict[str, float]:
    return {broker: smooth(before.get(broker), load, view.settings) for broker, load in usage.items()}


def _mean(averages: Mapping[str, float]) -> float:
    return math.fsum(averages.values()) / len(averages) if averages else 0.0


def _above_bound(view: View, averages: Mapping[str, float], mean: float) -> str:
    if not averages:
        return "no broker can be judged"
    bound = mean + _threshold(view)
    over = sum(load >= bound for load in averages.values()) if mean > 0 else 0
    points = f"{view.settings.average_threshold:g} points or more above the mean load of {mean:.1%}"
    return f"{over} of {len(averages)} brokers are {points}"


def _above(view: View, broker: Mapping[str, Any], number: int, average: float, mean: float) -> tuple[Row, list[Row]]:
    """The decision on one broker, and its moves."""
    threshold = _threshold(view)
    bound = mean + threshold
    columns = {"pair": number, "value": average * 100, "bound": bound * 100}
    above = f"the mean of {mean:.1%} plus {view.settings.average_threshold:g} points"
    if average < bound or mean == 0:
        explanation = f"average load {average:.1%}, below {above}" if mean else "no broker is loaded"
        return judged(view, broker, reason="below_threshold", explanation=explanation, **columns), []
    target = traffic(broker, "msg_throughput") * (average - mean - threshold + MARGIN)
    return _offload(view, broker, target, f"average load {average:.1%} reaches {above}", columns)


def _below(
    view: View, in_order: list[Mapping[str, Any]], averages: Mapping[str, float]
) -> tuple[Row | None, list[Row], str]:
    """The decision on the busiest broker when another one is below the lower boundary, its moves, and a sentence."""
    threshold = _threshold(view)
    mean = _mean(averages)
    bound = mean - threshold
    lowest = min(view.judged, key=lambda row: averages[row["broker"]])["broker"]
    if not averages[lowest] < bound:
        return None, [], f"none is below the lower boundary of {bound:.1%}"
    below = f"{lowest} is below the lower boundary of {bound:.1%} with {averages[lowest]:.1%}"
    giving = [row for row in view.judged if (row["bundles"] or 0) > 1 and averages[row["broker"]] > bound]
    if not giving:
        return None, [], f"{below}, but no other broker has more than one bundle"
    broker = max(giving, key=lambda row: averages[row["broker"]])
    average = averages[broker["broker"]]
    target = traffic(broker, "msg_throughput") * threshold * LOWER_MARGIN
    why = f"average load {average:.1%} is the highest, and {below}"
    columns = {"pair": in_order.index(broker), "value": average * 100, "bound": bound * 100}
    return *_offload(view, broker, target, why, columns), below


def _offload(
    view: View, broker: Mapping[str, Any], target: float, why: str, columns: dict[str, Any]
) -> tuple[Row, list[Row]]:
    minimum = view.settings.min_unload_bundle_throughput * MIB
    if target < minimum:
        little = f"{amount('msg_throughput', target)} are to leave, less than the minimum"
        explanation = f"{why}: {little} of {amount('msg_throughput', minimum)}"
        return judged(view, broker, reason="below_minimum", explanation=explanation, **columns), []
    number = columns.pop("pair")
    return offload(view, broker, number=number, target=target, why=why, **columns)


def _threshold(view: View) -> float:
    return view.settings.average_threshold / 100
