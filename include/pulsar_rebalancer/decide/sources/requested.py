"""A person's request as a source: what the form of a manual plan asks for."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from pulsar_rebalancer.config.field_types import Action, Overrule, SplitAlgorithm
from pulsar_rebalancer.decide.planning import MEASURE, Proposal, RequestedMove, SourceReport
from pulsar_rebalancer.decide.planning_sample import PlanningSample
from pulsar_rebalancer.decide.sources.drains import moves_off_broker
from pulsar_rebalancer.decide.sources.filling import check_receiver, fill_moves
from pulsar_rebalancer.decide.split_planning import Cut, find_cut
from pulsar_rebalancer.errors import PlanError
from pulsar_rebalancer.names import match_mask, namespace_of, regex_of_glob
from pulsar_rebalancer.reasons import Reason, Trait
from pulsar_rebalancer.run.bundle_columns import BundleSample
from pulsar_rebalancer.run.outcome import MoveOutcome, Outcome
from pulsar_rebalancer.run.plan import parts_text, percent_text
from pulsar_rebalancer.run.request import ManualPlanRecord, PlanRequest
from pulsar_rebalancer.run.snapshot import SplitCandidates
from pulsar_rebalancer.run.tables import Row
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer.strategies.sample import CandidateMove, Decision
from pulsar_rebalancer.texts import number_of


def requested_moves(sample: PlanningSample, storage: ClusterStorage, request: PlanRequest) -> list[RequestedMove]:
    """Return the moves that a person requests.

    Raises PlanError: `unknown_name`, `last_broker`, `file_missing`, or why a broker
    is left out.
    """
    if request.action is Action.DRAIN:
        return drain_moves(sample, request.broker)
    if request.action is Action.FILL:
        return fill_moves(sample, request.broker)
    if request.action is Action.UNDO:
        folder = storage.run_folder(request.run)
        if folder is None:
            raise PlanError(Reason.FILE_MISSING, f"run: {request.run!r} is not the name of a run's folder (plan_id)")
        return undo_moves(sample, Outcome.read(folder))
    return unload_moves(sample, request.bundles, request.destination)


def requested_proposal(
    sample: PlanningSample, moves: Iterable[CandidateMove], record: ManualPlanRecord, splits: Sequence[Row] = ()
) -> Proposal:
    """Return the moves of a manual plan, or of one that is carried out, with a decision for each source."""

    def report(capped_moves: Sequence[CandidateMove]) -> SourceReport:
        moving = [f"{number_of(sum(move.is_taken for move in capped_moves), 'bundle')} to move"]
        ends = [row["explanation"] for row in splits] or moving
        return SourceReport(_decisions(sample, capped_moves, record), f"{_origin_text(record)}: {'; '.join(ends)}")

    return Proposal(list(moves), report)


def _origin_text(record: ManualPlanRecord) -> str:
    asked = f"{record.request.action} by hand" if record.request.action else ""
    return ", ".join(filter(None, [asked, record.approval_text])) or f"approved by {record.by or 'somebody'}"


def _decisions(sample: PlanningSample, moves: Iterable[CandidateMove], record: ManualPlanRecord) -> list[Decision]:
    of_pair: dict[int, list[CandidateMove]] = {}
    for move in moves:
        of_pair.setdefault(move.pair, []).append(move)
    why = f" (reason: {record.request.reason})" if record.request.reason else ""
    action = record.request.action
    asked = f"asked to {action}{why}" if action else f"approved plan {record.carries_out[:16]}"
    asked += f"; {record.approval_text}" if action and record.approval_text else ""
    return [
        Decision(
            source=moved[0].source,
            reason=Reason.BY_HAND,
            pair=pair,
            source_score=sample.broker_scores.get(moved[0].source),
            fired=True,
            explanation=f"{record.by or 'Somebody'} {asked}",
            measure=MEASURE,
            target=math.fsum(move.traffic for move in moved),
        )
        for pair, moved in sorted(of_pair.items())
        if moved[0].source
    ]


def unload_moves(sample: PlanningSample, terms: Iterable[str], destination: str) -> list[RequestedMove]:
    """Return the named bundles without duplicates; an entry without a match has the reason `unknown_name`.

    Args:
        terms: bundles, namespaces, or patterns, in which `*` matches any text and `?` any character.
        destination: the broker that receives the bundles; empty if placement chooses a broker for each.

    Raises:
        PlanError: no bundle has any of these names (`unknown_name`), or `check_receiver`'s reason.
    """
    if destination:
        check_receiver(sample, destination)
    names = pa.array(sample.owners, pa.string())
    bundles = dict.fromkeys(bundle for name in terms for bundle in _matched_names(sample.owners, names, name) or [name])
    if not bundles.keys() & sample.owners.keys():
        raise PlanError(Reason.UNKNOWN_NAME, f"no broker reports a bundle that matches {', '.join(terms)[:200]}")
    return [RequestedMove(bundle, destination or None) for bundle in bundles]


def _matched_names(owners: Mapping[str, str], names: Any, name: str) -> list[str]:
    if name in owners:
        return [name]
    pattern = regex_of_glob(name if {"*", "?"} & set(name) else f"{name}/*")
    return [str(bundle) for bundle in names.filter(match_mask(pattern, names)).to_pylist()]


_COMPARED_ALGORITHMS = (SplitAlgorithm.TOPIC_COUNT, SplitAlgorithm.RANGE, SplitAlgorithm.FLOW)
"""Split algorithms to compare. The first algorithm with the most even parts is chosen."""

LARGEST, HOT = "LARGEST", "HOT"
"""Placeholders for the bundle with the most topics or the most traffic in a namespace (BundleType in pulsar-admin)."""


def bundle_to_split(sample: PlanningSample, bundle: str) -> BundleSample:
    """Return a bundle to split, by its name, `tenant/namespace/LARGEST` or `tenant/namespace/HOT`.

    Raises PlanError: `unknown_name`, or the reason why the bundle must not be changed.
    """
    namespace, _, which = bundle.rpartition("/")
    held = [name for name in sample.owners if namespace_of(name) == namespace] if which in (LARGEST, HOT) else [bundle]
    samples = [sample.bundles.find(sample.owners[name], name) for name in held if name in sample.owners]
    if not samples:
        raise PlanError(Reason.UNKNOWN_NAME, f"no broker reports a bundle that matches {bundle[:200]}")
    chosen = max(samples, key=lambda bundle: _sort_key(bundle, which))
    reason = sample.stay_reason(chosen)
    if reason not in (None, Reason.RECENTLY_UNLOADED, Reason.DESTINATION_KEPT):  # a split needs no grace period
        raise PlanError(reason, f"{chosen.bundle} stays: {reason.meaning}")
    return chosen


def _sort_key(bundle: BundleSample, criterion: str) -> tuple[float, str]:
    return (bundle.topics if criterion == LARGEST else bundle.present_msg_throughput, bundle.bundle)


def split_row(sample: PlanningSample, request: PlanRequest, candidates: SplitCandidates) -> dict[str, Any]:
    """Return the row of the splits table for the bundle that a person wants to split.

    Raises PlanError if the bundle must not be changed, or cannot be cut (`split_planning.find_cut`).
    """
    bundle = bundle_to_split(sample, request.bundles[0])
    candidate = next((c for c in candidates.bundles if c.bundle == bundle.bundle), None)
    if candidate is None:
        raise PlanError(Reason.TOPICS_UNKNOWN, f"the topics of {bundle.bundle} were not read")
    single, given = sample.snapshot.has_extensible_load_manager, len(request.positions)
    if single and given > 1:
        raise PlanError(Reason.CONTRADICTION, f"the extensible load manager accepts one position, not {given}")
    tried = {
        each: find_cut(candidate, each, sample.settings, given_positions=request.positions, single_cut=single)
        for each in filter(None, dict.fromkeys([request.algorithm, *_COMPARED_ALGORITHMS]))
    }
    cuts = {each: cut for each, cut in tried.items() if isinstance(cut, Cut)}
    most_even = max(cuts, key=lambda algorithm: cuts[algorithm].evenness, default=_COMPARED_ALGORITHMS[0])
    algorithm = request.algorithm or most_even
    cut = tried[algorithm]
    if isinstance(cut, Reason):
        raise PlanError(cut, f"{bundle.bundle} cannot be split by {algorithm}: {cut.meaning}")
    compared = "; ".join(f"{each}: {percent_text(cuts[each].shares)}" for each in cuts)
    if cut.is_uneven and Overrule.EVEN_SPLIT not in request.overrule:
        raise PlanError(Reason.UNEVEN_SPLIT, f"parts of {bundle.bundle} would get uneven traffic: {compared}")
    return {
        "cluster": sample.snapshot.request.cluster,
        "broker": bundle.broker,
        "bundle": bundle.bundle,
        "rank": 0,
        "algorithm": algorithm,
        "positions": list(cut.positions),
        "shares": list(cut.shares),
        "unload": request.unload,
        "taken": True,
        "reason": Reason.TO_BE_SPLIT,
        "explanation": f"{bundle.bundle} is split permanently {parts_text(cut.positions, cut.shares)}",
        "compared": f"Each part's share of the traffic, by algorithm: {compared}.",
    }


def drain_moves(sample: PlanningSample, brokers: Collection[str]) -> list[RequestedMove]:
    """Return every bundle on the brokers to drain.

    Raises PlanError: `unknown_name`, `last_broker`, or the reason why the broker is left out.
    """
    for broker in brokers:
        if sample.left_out_reasons.get(broker) is not Reason.DRAINING:
            check_receiver(sample, broker)
    if not sample.cluster_sample.compared_brokers:
        raise PlanError(Reason.LAST_BROKER, f"no broker would be left to take the bundles of {', '.join(brokers)}")
    return [move for broker in brokers for move in moves_off_broker(sample, broker)]


def undo_moves(sample: PlanningSample, outcome: Outcome) -> list[RequestedMove]:
    """Return the moves that undo a run's, except for bundles that have moved again; a split cannot be undone."""
    moved = [_undo_move(sample, move) for move in outcome.moves if move.reason.has(Trait.NEW_OWNER)]
    return moved + [RequestedMove(split.bundle, None, Reason.RANGE_GONE) for split in outcome.splits if split.ok]


def _undo_move(sample: PlanningSample, move: MoveOutcome) -> RequestedMove:
    owner = sample.owners.get(move.bundle)
    reason = None
    if owner is not None and owner != move.owner:
        reason = Reason.OWNER_CHANGED
    elif move.source not in sample.listed_brokers:
        reason = Reason.DESTINATION_GONE
    return RequestedMove(move.bundle, move.source, reason)
