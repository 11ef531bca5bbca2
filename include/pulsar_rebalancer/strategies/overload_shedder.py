"""OverloadShedder, one run over one cluster: every broker above a fixed bound gives away what lies above it.

No average is kept and the others are not looked at, so that a cluster that is hot as a whole moves bundles round and
round. Follows `OverloadShedder.findBundlesForUnloading` of Pulsar 4.2.4; bundles of equal traffic are taken by name,
where Pulsar follows the order of a hash map. Destinations are the placement strategy's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pulsar_rebalancer.strategies.offload import judged, offload
from pulsar_rebalancer.strategies.scoring import traffic, weighted_usage
from pulsar_rebalancer.strategies.view import Shed, left_out

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pulsar_rebalancer.strategies.view import Row, View

MARGIN = 0.05
"""How far below the bound a broker is to end, 1 is 100 percent."""


def shed(view: View, kept: Mapping[str, Any]) -> Shed:
    """One run; nothing is kept.

    Args:
        view: the sample.
        kept: not looked at.
    """
    bound = view.settings.overloaded_threshold / 100
    usage = {row["broker"]: weighted_usage(row, view.settings) for row in view.judged}
    decisions: list[Row] = []
    moves: list[Row] = []
    for number, broker in enumerate(sorted(view.judged, key=lambda row: -usage[row["broker"]])):
        load = usage[broker["broker"]]
        columns = {"value": load * 100, "bound": bound * 100}
        if load < bound:
            row = judged(view, broker, pair=number, reason="not_overloaded", **columns)
            decisions.append(row | {"explanation": f"load {load:.1%}, below {bound:.1%}"})
            continue
        target = traffic(broker, "msg_throughput") * (load - bound + MARGIN)
        why = f"load {load:.1%} reaches {bound:.1%}"
        row, walked = offload(view, broker, number=number, target=target, why=why, **columns)
        decisions.append(row)
        moves += walked
    over = sum(load >= bound for load in usage.values())
    sentence = f"{over} of {len(usage)} brokers are loaded to {bound:.0%} or more"
    return Shed([*decisions, *left_out(view)], moves, {}, sentence)
