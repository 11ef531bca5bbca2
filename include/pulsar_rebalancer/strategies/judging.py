"""One run of any shedder over one cluster: what it sheds, where that goes, what caps leave of it, what it keeps."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from pulsar_rebalancer.policies import Policies
from pulsar_rebalancer.strategies import caps, placing
from pulsar_rebalancer.strategies.policy_filter import PolicyFilter
from pulsar_rebalancer.strategies.registry import SHEDDERS
from pulsar_rebalancer.strategies.view import View

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pulsar_rebalancer.settings import Settings
    from pulsar_rebalancer.state import Counting
    from pulsar_rebalancer.strategies.view import Row


NO_POLICIES = Policies()


class Judged(NamedTuple):
    """What a run decided.

    Attributes:
        decisions: rows of the decisions table, before selection's results are added (`outcome.complete`).
        moves: rows of the moves table, destinations named, capped, with their waves.
        kept: what the strategy and its placement keep for the next run.
        sentence: what was decided and why.
    """

    decisions: list[Row]
    moves: list[Row]
    kept: dict[str, Any]
    sentence: str


@dataclass(frozen=True)
class Case:
    """What a run over one cluster starts from, beside the tables.

    Attributes:
        settings: effective settings.
        counting: how the sample counts (`state.counting`).
        kept: as the last counted run left it: `shedder` and `placement`.
        policies: isolation policies, anti-affinity groups and failure domains.
        left_out: why a broker is neither source nor destination, by broker.
        forced: the run acts without waiting for hits.
        unloaded_brokers: seconds since a broker's last unload, by broker.
        seed: decides between equal destinations; the same seed gives the same plan.
    """

    settings: Settings
    counting: Counting
    kept: Mapping[str, Any] = field(default_factory=dict)
    policies: Policies = NO_POLICIES
    left_out: Mapping[str, str] = field(default_factory=dict)
    forced: bool = False
    unloaded_brokers: Mapping[str, float] = field(default_factory=dict)
    seed: str = ""


def judge(case: Case, cluster: str, brokers: Sequence[Row], bundles: Sequence[Row]) -> Judged:
    """Shed, place, cap.

    A sample too soon after the last one is judged, but nothing is shed: the averages it would build on are those of
    the last sample. What is kept changes with samples that count alone.

    Args:
        case: what the run starts from.
        cluster: its cluster.
        brokers: rows of the brokers table.
        bundles: as `View.bundles`.
    """
    before = without_hits(case.kept) if case.counting.clear else dict(case.kept)
    view = _view(case, cluster, brokers, bundles)
    policies = PolicyFilter(case.policies, view.brokers, bundles, case.settings)
    view = replace(view, allowed=policies.allows)
    shed = SHEDDERS[case.settings.strategy](view, before.get("shedder", {}))
    if case.counting.reason == "too_soon":
        waiting = [row | {"fired": False, "measure": None, "target": None} for row in shed.decisions]
        decisions = [row | {"reason": "too_soon"} if row["pair"] is not None else row for row in waiting]
        return Judged(decisions, [], before, "too soon after the last sample: nothing is shed")
    moves, placement = placing.place(view, shed.moves, policies, before.get("placement", {}), case.seed)
    after = {"shedder": shed.kept, "placement": placement}
    if not case.counting.counts:
        # Whoever acts must earn the hits again, as AvgShedder's forced pairs do.
        after = without_hits(before) if any(row["taken"] for row in moves) else before
    return Judged(shed.decisions, caps.apply(moves, view.settings), after, shed.sentence)


def without_hits(kept: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept, with the hits counted anew; averages stay, as they do in Pulsar while its leader lives."""
    shedder = kept.get("shedder", {})
    return {**kept, "shedder": {**shedder, "hits": 0}} if shedder.get("hits") else dict(kept)


def _view(case: Case, cluster: str, brokers: Sequence[Row], bundles: Sequence[Row]) -> View:
    no_report = {row["broker"]: "broker_quarantined" for row in brokers if row.get("error")}
    left_out = no_report | dict(case.left_out)
    return View(
        cluster=cluster,
        brokers=[{**row, "left_out": left_out.get(row["broker"])} for row in brokers],
        bundles=bundles,
        settings=case.settings,
        forced=case.forced,
        unloaded_brokers=case.unloaded_brokers,
    )
