"""Taking a throughput off a broker, which ThresholdShedder and OverloadShedder do in the same way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pulsar_rebalancer.strategies.scoring import score
from pulsar_rebalancer.strategies.view import amount, decision, move

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pulsar_rebalancer.strategies.view import Row, View

MEASURE = "msg_throughput"


def judged(view: View, broker: Mapping[str, Any], **columns: Any) -> Row:
    """The decision on a broker, with its present score; what is not given is null."""
    return decision(view, broker["broker"], source_score=score(broker, view.settings), **columns)


def offload(
    view: View, broker: Mapping[str, Any], *, number: int, target: float, why: str, **columns: Any
) -> tuple[Row, list[Row]]:
    """Take at least `target` off a broker (`filterAndSelectBundle` of the two classes).

    A broker with a single bundle keeps it: on another broker it would be as hot.

    Args:
        view: the cluster.
        broker: a row of its brokers.
        number: `pair` of the decision.
        target: bytes/s.
        why: why the broker sheds, the start of its explanation.
        columns: `value` and `bound` of the decision.

    Returns:
        The decision, and the rows of the moves table.
    """
    base = judged(view, broker, pair=number, **columns)
    wanted = f"{why}: {amount(MEASURE, target)} are to leave"
    count = broker["bundles"] or 0
    if count <= 1:
        held = "its single bundle stays" if count else "it has no bundle"
        return base | {"reason": "single_bundle", "explanation": f"{wanted}, but {held}"}, []
    fired = {"fired": True, "reason": "fired", "explanation": wanted, "measure": MEASURE, "target": target}
    return base | fired, walk(view, broker["broker"], number, target)


def walk(view: View, broker: str, number: int, target: float) -> list[Row]:
    """Walk over a broker's bundles, the busiest first, until those taken carry the target.

    The last one taken may overshoot, the first is taken whatever the target is, and idle ones are taken as well.

    Args:
        view: the cluster.
        broker: whose bundles.
        number: `pair` of the decision.
        target: bytes/s.
    """
    rows: list[Row] = []
    marked, found = 0.0, False
    for rank, bundle in enumerate(sorted(view.bundles_of(broker), key=lambda row: (-row[MEASURE], row["bundle"]))):
        reason = bundle["reason"] or ("taken" if marked < target or not found else "target_reached")
        if reason == "taken":
            marked, found = marked + bundle[MEASURE], True
        rows.append(move(view, bundle, number=number, rank=rank, measure=MEASURE, reason=reason, destination=None))
    return rows
