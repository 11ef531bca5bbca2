"""One run of any shedder over one cluster: what it sheds, where that goes, what caps leave of it, what it keeps."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from pulsar_rebalancer.policies import Policies
from pulsar_rebalancer.strategies import caps, placing
from pulsar_rebalancer.strategies.outcome import HELD_BACK, told
from pulsar_rebalancer.strategies.policy_filter import PolicyFilter
from pulsar_rebalancer.strategies.registry import SHEDDERS
from pulsar_rebalancer.strategies.view import View

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pulsar_rebalancer.settings import Settings
    from pulsar_rebalancer.state import Counting
    from pulsar_rebalancer.strategies.view import Row


NO_POLICIES = Policies()


class Judged(NamedTuple):
    """What a run decided.

    Attributes:
        decisions: rows of the decisions table, before what moves in the end is added (`outcome.complete`).
        moves: rows of the moves table, destinations named, capped, with their waves.
        kept: what the strategy and its placement keep for the next run.
        sentence: what was found, and what moves in the end.
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
        unloaded_brokers: seconds from a broker's last unload to the sample, by broker.
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

    def with_left_out(self, brokers: Iterable[Mapping[str, Any]]) -> list[Row]:
        """Rows of the brokers table with `left_out`; a broker without a report is left out in any case."""

        def reason(row: Mapping[str, Any]) -> str | None:
            return self.left_out.get(row["broker"]) or ("broker_quarantined" if row.get("error") else None)

        return [{**row, "left_out": reason(row)} for row in brokers]


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
    view = replace(view, forbids=policies.forbids)
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
    moves = caps.apply(moves, view.settings, case.policies.groups)
    return Judged(shed.decisions, moves, after, _sentence(shed.sentence, moves))


def _sentence(found: str, moves: Sequence[Row]) -> str:
    """What was found, and once bundles were looked at what became of those that were chosen."""
    if not moves:
        return found
    held_back = Counter(row["reason"] for row in moves if row["reason"] in HELD_BACK)
    return f"{found}. {told([row for row in moves if row['taken']], held_back)}"


def without_hits(kept: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept, with the hits counted anew; averages stay, as they do in Pulsar while its leader lives."""
    shedder = kept.get("shedder", {})
    return {**kept, "shedder": {**shedder, "hits": 0}} if shedder.get("hits") else dict(kept)


def _view(case: Case, cluster: str, brokers: Sequence[Row], bundles: Sequence[Row]) -> View:
    # Brokers with averages of their own say when they were measured; the others, when they last wrote to the metadata.
    ages = {row["broker"]: row["report_age_seconds"] or 0 for row in brokers if row.get("load_average") is not None}
    return View(
        cluster=cluster,
        brokers=case.with_left_out(brokers),
        bundles=bundles,
        settings=case.settings,
        forced=case.forced,
        unloaded_brokers={name: since - ages.get(name, 0) for name, since in case.unloaded_brokers.items()},
    )
