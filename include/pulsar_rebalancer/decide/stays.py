"""Why a bundle stays: one ordered list of rules, which hold for every source; the first that applies counts.

Policies, placement (`strategies.placement`) and caps (`strategies.caps`) apply to what these rules leave.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, reduce
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_rebalancer.config.field_types import Overrule
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.errors import PlanError
from pulsar_rebalancer.names import is_heartbeat, is_system_bundle, match_mask, namespace_of, regex_of_glob
from pulsar_rebalancer.orders.in_force import immovable_namespaces
from pulsar_rebalancer.orders.order import Control
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.bundle_columns import BundleSample, namespaces_of
from pulsar_rebalancer.run.snapshot import Snapshot
from pulsar_rebalancer.strategies.sample import CandidateMove, ClusterSample
from pulsar_rebalancer.strategies.shedders.registry import profile_of
from pulsar_rebalancer.strategies.shedders.swap import NEVER_SWAPPED

Column: TypeAlias = Any
"""An Arrow array or chunked array, for which the type stubs have no common type."""

GIVE_ONLY_REASONS = (Reason.DRAINING, Reason.NO_PERSISTENT_TOPICS)
"""Reasons why a broker must not receive bundles, although operators and drains may move bundles off the broker."""


@dataclass(frozen=True)
class BundleFacts:
    """What the rules about bundles compare; `move_reasons` gives `recently_unloaded` or `destination_kept`."""

    settings: Settings
    move_reasons: Mapping[str, Reason]
    bundles_to_split: Collection[str] = ()
    quarantined: Collection[str] = ()
    control: Control = field(default_factory=Control)

    @classmethod
    def of_run(cls, run: Snapshot, settings: Settings, overruled: Collection[Overrule] = ()) -> BundleFacts:
        """Return the facts of a run. A planned move without an outcome counts as a recent one."""
        moves = run.state.moves
        recent = moves.recent_unloads(run.request.collected_at, run.settings.grace_period_minutes)
        moved = {
            name: Reason.DESTINATION_KEPT if name in moves.kept_destinations else Reason.RECENTLY_UNLOADED
            for name in recent
            if Overrule.GRACE_PERIOD not in overruled
        }
        control = Control() if Overrule.EXCLUSIONS in overruled else run.state.control
        return cls(settings, moved, run.bundles_to_split, run.validation.quarantine_reasons, control)


def _is_system(names: Column, facts: BundleFacts) -> Column:
    may_be = pc.or_(pc.starts_with(names, "pulsar/"), pc.starts_with(names, "sla-monitor/"))
    stays = is_heartbeat if facts.settings.move_system_bundles else is_system_bundle
    return _membership_mask(names, [name for name in names.filter(may_be).to_pylist() if stays(name)])


def _in_kept_namespace(names: Column, facts: BundleFacts) -> Column:
    kept = immovable_namespaces(facts.settings, facts.control)
    return _membership_mask(namespaces_of(names), kept) if kept else None


def _is_excluded(names: Column, facts: BundleFacts) -> Column:
    patterns = facts.settings.excluded_bundles
    return reduce(pc.or_, (match_mask(regex_of_glob(pattern), names) for pattern in patterns)) if patterns else None


def _has_move_reason(reason: Reason) -> Callable[[Column, BundleFacts], Column]:
    return lambda names, facts: _membership_mask(names, [b for b, why in facts.move_reasons.items() if why is reason])


def _membership_mask(names: Column, members: Collection[str]) -> Column:
    return pc.is_in(names, pa.array(list(members), pa.string())) if members else None


class KeepingRule(NamedTuple):
    """One rule by which a bundle stays.

    Attributes:
        lifted_by: what a person may overrule it with; None if nobody may.
        find_bundles: for a rule about the bundle itself, returns a boolean column, or None for no bundle.
    """

    reason: Reason
    lifted_by: Overrule | None = None
    find_bundles: Callable[[Column, BundleFacts], Column] | None = None


RULES = (
    KeepingRule(Reason.UNKNOWN_NAME),
    KeepingRule(Reason.BROKER_EXCLUDED, Overrule.EXCLUSIONS),
    KeepingRule(Reason.BROKER_QUARANTINED),
    KeepingRule(Reason.SYSTEM_NAMESPACE, None, _is_system),
    KeepingRule(Reason.NAMESPACE_EXCLUDED, Overrule.EXCLUSIONS, _in_kept_namespace),
    KeepingRule(Reason.BUNDLE_EXCLUDED, Overrule.EXCLUSIONS, _is_excluded),
    KeepingRule(Reason.BUNDLE_QUARANTINED, None, lambda names, facts: _membership_mask(names, facts.quarantined)),
    KeepingRule(Reason.TO_BE_SPLIT, None, lambda names, facts: _membership_mask(names, facts.bundles_to_split)),
    KeepingRule(Reason.DESTINATION_KEPT, Overrule.GRACE_PERIOD, _has_move_reason(Reason.DESTINATION_KEPT)),
    KeepingRule(Reason.RECENTLY_UNLOADED, Overrule.GRACE_PERIOD, _has_move_reason(Reason.RECENTLY_UNLOADED)),
    KeepingRule(Reason.NO_TOPIC),
    KeepingRule(Reason.POLICY_UNKNOWN, Overrule.POLICIES),
    KeepingRule(Reason.POLICY_FORBIDS, Overrule.POLICIES),
    KeepingRule(Reason.ANTI_AFFINITY, Overrule.ANTI_AFFINITY),
    KeepingRule(Reason.TOO_MANY_TOPICS, Overrule.TOPIC_CEILING),
    KeepingRule(Reason.NO_DESTINATION),
    KeepingRule(Reason.SAME_BROKER),
    KeepingRule(Reason.ROLLING),
    KeepingRule(Reason.WOULD_OVERLOAD, Overrule.OVERLOAD),
    KeepingRule(Reason.CAP_BROKER, Overrule.CAPS),
    KeepingRule(Reason.CAP_NAMESPACE, Overrule.CAPS),
    KeepingRule(Reason.CAP_BYTES, Overrule.CAPS),
    KeepingRule(Reason.CAP_RUN, Overrule.CAPS),
    KeepingRule(Reason.CAP_WAVES),
)
"""Rules that keep a bundle in place, no matter who wants to move it; the first rule that applies gives the reason."""


def stay_reasons(names: Column, facts: BundleFacts) -> Column:
    """Return, for each bundle name, why it must not be moved, regardless of traffic; null if it may be."""
    nothing = pa.scalar(None, pa.string())
    found = [
        pc.if_else(column, pa.scalar(rule.reason, pa.string()), nothing)
        for rule in RULES
        if rule.find_bundles is not None and (column := rule.find_bundles(names, facts)) is not None
    ]
    return pc.coalesce(*found) if found else pa.nulls(len(names), pa.string())


def keeping_rules(snapshot: Snapshot, names: Collection[str]) -> dict[str, Reason]:
    """Return the first rule of each bundle that one keeps in a run, apart from what its broker's reports say."""
    rules = stay_reasons(pa.array(names, pa.string()), BundleFacts.of_run(snapshot, snapshot.settings)).to_pylist()
    return {name: Reason(rule) for name, rule in zip(names, rules, strict=True) if rule}


def stay_reason(bundle: BundleSample, left_out: Mapping[str, Reason]) -> Reason | None:
    """Return why a bundle must not be moved by operators and drains; None if it may be moved.

    A strategy may move bundles without topics, as Pulsar's shedders do, but none of a left-out broker.
    `bundle` has its own reason (`stay_reasons`), and no broker if no broker reports it.
    """
    if not bundle.broker:
        return Reason.UNKNOWN_NAME
    source = left_out.get(bundle.broker)
    if source is not None and source not in GIVE_ONLY_REASONS:
        return source
    return bundle.reason or (None if bundle.topics else Reason.NO_TOPIC)


def checked_moves(sample: ClusterSample, moves: Iterable[CandidateMove]) -> list[CandidateMove]:
    """Return a strategy's moves; a bundle that has a reason to stay stays, whatever the strategy says.

    A destination that the strategy names must be permitted; those that placement chooses always are.

    Raises:
        PlanError: `bad_result` if the named source does not report a bundle that is to move, or if the
            bundle moves twice or has a value that is negative or not a number.
    """
    checked = list(moves)
    taken = [move for move in checked if move.reason is Reason.TAKEN]
    reasons = sample.bundles.stay_reasons_of_bundles({move.bundle for move in taken})
    if profile_of(sample.settings).swaps:
        reasons = {each: reason if reason in NEVER_SWAPPED else None for each, reason in reasons.items()}
    seen: set[str] = set()
    for move in taken:
        problem = _move_error(move, reasons, seen)
        if problem:
            raise PlanError(Reason.BAD_RESULT, f"{sample.settings.strategy}: {move.bundle:.200} {problem}")
        seen.add(move.bundle)

    @cache
    def policy_reason(namespace: str, source: str, destination: str) -> Reason | None:
        return sample.forbids(f"{namespace}/", source, destination)

    def move_reason(move: CandidateMove) -> Reason | None:
        own = sample.left_out_reasons.get(move.source) or reasons[move.source, move.bundle]
        if own or not profile_of(sample.settings).judges_pairs:
            return own
        return policy_reason(namespace_of(move.bundle), move.source, move.destination or "")

    stay = {move.bundle: reason for move in taken if (reason := move_reason(move))}
    return [move.put_off(stay.get(move.bundle, move.reason)) for move in checked] if stay else checked


def _move_error(
    move: CandidateMove, reported_reasons: Mapping[tuple[str, str], Reason | None], checked_bundles: Collection[str]
) -> str:
    if (move.source, move.bundle) not in reported_reasons:
        return f"is not a bundle of {move.source!r:.200}"
    if move.bundle in checked_bundles:
        return "is moved twice"
    values = (move.traffic, move.msg_rate, move.msg_throughput)
    return "" if all(math.isfinite(each) and each >= 0 for each in values) else f"has invalid values: {values}"
