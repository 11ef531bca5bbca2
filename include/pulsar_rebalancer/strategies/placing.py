"""From taken bundles to moves: each gets a destination that policies allow, or is passed over with a reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pulsar_rebalancer.strategies.caps import units
from pulsar_rebalancer.strategies.placement.registry import selector
from pulsar_rebalancer.strategies.placement.selector import choose, overloaded

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from pulsar_rebalancer.strategies.placement.selector import Selector
    from pulsar_rebalancer.strategies.policy_filter import PolicyFilter
    from pulsar_rebalancer.strategies.view import Row, View


def place(
    view: View, moves: Iterable[Mapping[str, Any]], policies: PolicyFilter, kept: Mapping[str, Any], seed: str
) -> tuple[list[Row], dict[str, Any]]:
    """Name the destinations that the shedder left open, and check those that it planned.

    Moves are placed one after the other, by pair and rank, the two ways of a swap together or not at all: each sees the
    bundles placed before it as if they had moved, in the filter's counts and in the placement's. For anti-affinity
    groups that is not enough, because a move may be capped or fail: `caps.apply` lets one bundle of a group go.

    Follows ModularLoadManagerImpl.doLoadShedding and selectBroker; planned destinations are checked here, though Pulsar
    takes them as they are.

    Args:
        view: the cluster.
        moves: rows of the moves table as a shedder made them.
        policies: which brokers a bundle may go to; it counts what is placed.
        kept: what the placement kept from the last counted run, `{}` at first.
        seed: decides between equal destinations; the same seed gives the same plan.

    Returns:
        The rows by pair and rank: a taken one has a destination; one that is taken no longer says why in `reason`
        (`outcome.REFUSED`). And what the placement keeps.
    """
    chooser = selector(view, kept)
    hot = overloaded(view)
    rows: list[Row] = []
    for unit in units(moves):
        made = [dict(row) for row in unit]
        rows += made
        if not made[0]["taken"]:
            continue
        decided = [_destination(row, policies, chooser, hot, seed) for row in made]
        refused = next((reason for _, reason in decided if reason is not None), None)
        for row, (destination, _) in zip(made, decided, strict=True):
            if refused is not None or destination is None:
                row |= {"taken": False, "reason": refused}
                continue
            row["destination"] = destination
            chooser.placed(row["bundle"], destination)
            policies.placed(row["bundle"], row["source"], destination)
    return rows, chooser.document()


def _destination(
    move: Mapping[str, Any], policies: PolicyFilter, chooser: Selector, hot: Collection[str], seed: str
) -> tuple[str | None, str | None]:
    """The destination, or the reason why there is none."""
    bundle, source, planned = move["bundle"], move["source"], move["destination"]
    if planned == source:
        return None, "same_broker"
    if planned is not None:
        return planned, policies.forbids(bundle, source, planned)
    held = policies.holds(bundle, source)
    if held is not None:
        return None, held
    chosen = _choose(bundle, policies, chooser, hot, seed)
    if chosen is None:
        return None, "no_destination"
    return chosen, "same_broker" if chosen == source else None


def _choose(bundle: str, policies: PolicyFilter, chooser: Selector, hot: Collection[str], seed: str) -> str | None:
    """Placement's choice; where that is overloaded once more over all that isolation policies leave (selectBroker)."""
    first = choose(seed, bundle, chooser.eligible(bundle, policies.candidates(bundle)))
    if first not in hot:
        return first
    return choose(seed, bundle, chooser.eligible(bundle, policies.policy_set(bundle))) or first
