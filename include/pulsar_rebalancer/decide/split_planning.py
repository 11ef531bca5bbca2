"""Plan splits: which bundles to split, at which positions, and why others are not split."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from pulsar_rebalancer.config.field_types import Mode, SplitAlgorithm
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.decide import stays
from pulsar_rebalancer.decide.split_algorithms import (
    BundleLoad,
    SplitCondition,
    most_even_position,
    part_shares,
    split_condition,
    split_positions,
)
from pulsar_rebalancer.names import HashRange, namespace_of
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run import bundle_columns
from pulsar_rebalancer.run.plan import excess_text, percent_text, positions_text, shares_of_parts, was_recently_split
from pulsar_rebalancer.run.snapshot import MIN_SPLIT_TOPICS, Candidate, Snapshot, SplitCandidates
from pulsar_rebalancer.run.tables import LONG_TERM_RATES, TRAFFIC, Row, java_sum, rows_of_bundles
from pulsar_rebalancer.state import BundleSplit
from pulsar_rebalancer.strategies.sample import CandidateMove, Decision
from pulsar_rebalancer.strategies.shedders.registry import run_left_out_reasons

if TYPE_CHECKING:
    from pulsar_rebalancer.decide.run_input import RunInput


class SplitPlan(NamedTuple):
    """The splits of a run; `hits_by_bundle` counts each bundle's consecutive samples that met a condition."""

    split_rows: list[Row]
    hits_by_bundle: dict[str, int]
    advice_lines: tuple[str, ...] = ()

    @property
    def bundles_to_split(self) -> list[str]:
        return [row["bundle"] for row in self.split_rows if row["taken"]]

    @property
    def skip_reasons(self) -> dict[Reason, int]:
        return dict(sorted(Counter(Reason(row["reason"]) for row in self.split_rows if not row["taken"]).items()))


NO_SPLITS = SplitPlan([], {})


MIN_PART_SHARE = 0.1
"""Each part must carry this share of the bundle's traffic; with n > 5 parts, 0.5 / n of the traffic is enough."""


class Cut(NamedTuple):
    """The positions at which a bundle is cut, and each part's share of the bundle's traffic (0 to 1)."""

    positions: tuple[int, ...]
    shares: tuple[float, ...]

    @property
    def evenness(self) -> float:
        """Return the smallest share as a ratio of an even share; 1 if all shares are equal."""
        return min(self.shares) * len(self.shares)

    @property
    def is_uneven(self) -> bool:
        """Return whether a part is too small for the split to be worth it, as a split is permanent."""
        return min(self.shares) < min(MIN_PART_SHARE, 0.5 / len(self.shares))

    @property
    def positions_text(self) -> str:
        return positions_text(self.positions)


MIN_PART_WIDTH = 65536
"""Minimum width of each part's hash range."""


@dataclass(frozen=True)
class SplitInput:
    """The input for split planning; `extensible`: the cluster runs the extensible load manager."""

    settings: Settings
    extensible: bool
    now: datetime
    hits: Mapping[str, int] = field(default_factory=dict)
    splits: Mapping[str, BundleSplit] = field(default_factory=dict)


def find_cut(
    candidate: Candidate,
    algorithm: SplitAlgorithm,
    settings: Settings,
    *,
    given_positions: Sequence[int] = (),
    pending_bundles: int = 0,
    single_cut: bool = False,
) -> Cut | Reason:
    """Return the positions at which a bundle is cut, or the reason why it cannot be cut.

    Args:
        given_positions: positions for `specified_positions_divide`.
        pending_bundles: number of bundles that other splits in the same plan add to the namespace.
        single_cut: True for one cut only, as in the extensible load manager: the position that halves the
            traffic most evenly.
    """
    hash_range, topics = HashRange.of_bundle(candidate.bundle), candidate.topics
    by_topics = algorithm is not SplitAlgorithm.RANGE
    early = _why_no_cut(candidate, hash_range, given_positions, uses_topics=by_topics)
    if early is not None:
        return early
    positions = split_positions(algorithm, hash_range, topics or (), settings, given_positions)
    if single_cut and len(positions) > 1:
        positions = (most_even_position(hash_range, positions, topics or ()),)
    ends = (hash_range.lower, *positions, hash_range.upper)
    if not positions or min(upper - lower for lower, upper in pairwise(ends)) < MIN_PART_WIDTH:
        return Reason.NO_POSITION
    if len(candidate.bounds) - 1 + pending_bundles + len(positions) > settings.max_namespace_bundles:
        return Reason.NAMESPACE_FULL
    return Cut(positions, part_shares(hash_range, positions, topics or ()))


def _why_no_cut(
    candidate: Candidate, hash_range: HashRange, given_positions: Sequence[int], *, uses_topics: bool
) -> Reason | None:
    if not candidate.bounds or (uses_topics and candidate.topics is None):
        return Reason.TOPICS_UNKNOWN
    if hash_range not in set(pairwise(candidate.bounds)):
        return Reason.RANGE_GONE
    few = candidate.topics is not None and len(candidate.topics) < MIN_SPLIT_TOPICS
    narrow = hash_range.upper - hash_range.lower <= 1
    outside = not all(map(hash_range.can_be_cut_at, given_positions))
    return Reason.NO_POSITION if few or narrow or outside else None


def plan_splits(context: SplitInput, bundles: Iterable[BundleLoad], candidates: Mapping[str, Candidate]) -> SplitPlan:
    """Return a run's splits. The bundle that exceeds a bound by the most comes first, then by name."""
    met = [(bundle, first) for bundle in bundles if (first := split_condition(bundle, context.settings)) is not None]
    met.sort(key=lambda item: (-item[1].excess_ratio, item[0].bundle))
    walk = _SplitPlanner(context, candidates)
    for rank, (bundle, condition) in enumerate(met):
        walk.add_bundle(rank, bundle, condition)
    return SplitPlan(walk.rows, dict(sorted(walk.hits.items())), tuple(row["explanation"] for row in walk.rows))


class _SplitPlanner:
    def __init__(self, context: SplitInput, candidates: Mapping[str, Candidate]) -> None:
        self._context = context
        self._settings = context.settings
        self._candidates = candidates
        self._of_broker: Counter[str] = Counter()
        self._bundles_more: Counter[str] = Counter()
        self.rows: list[Row] = []
        self.hits: dict[str, int] = {}

    def add_bundle(self, rank: int, bundle: BundleLoad, condition: SplitCondition) -> None:
        """Add the row of a bundle; bundles that validation left out get none."""
        if bundle.stay_reason is Reason.BUNDLE_QUARANTINED:
            return
        result = self._why_not_split(bundle) or self._cut_or_reason(bundle)
        cut = result if isinstance(result, Cut) else None
        reason = result if isinstance(result, Reason) else self._cut_reason(condition, result)
        if cut is not None and reason is Reason.TO_BE_SPLIT:
            namespace = namespace_of(bundle.bundle)
            self._of_broker[bundle.broker] += 1
            self._bundles_more[namespace] += len(cut.positions)
            self.hits.pop(bundle.bundle, None)
        self.rows.append(
            {
                "broker": bundle.broker,
                "bundle": bundle.bundle,
                "rank": rank,
                **{"condition": condition.name, "value": condition.value, "bound": condition.bound},
                "hits": self.hits.get(bundle.bundle) if self._context.extensible else None,
                "algorithm": self._settings.split_algorithm,
                "positions": cut.positions if cut else None,
                "shares": cut.shares if cut else None,
                "unload": self._settings.unload_split_bundles and bundle.policy_kind is None,
                "taken": reason is Reason.TO_BE_SPLIT,
                "reason": reason,
                "explanation": _explanation(bundle, condition, cut, reason),
            }
        )

    def _why_not_split(self, bundle: BundleLoad) -> Reason | None:
        """Count a hit; return why the bundle is not split, or None if its topics must be examined."""
        if bundle.topics < MIN_SPLIT_TOPICS:
            return Reason.NO_POSITION
        if bundle.stay_reason is not None:
            return bundle.stay_reason
        if self._context.extensible:
            # A broker that has reached its limit of splits ignores its other bundles, and their hits do not grow.
            before = self._context.hits.get(bundle.bundle, 0)
            capped = self._of_broker[bundle.broker] >= self._settings.max_splits_per_broker
            self.hits[bundle.bundle] = before if capped else before + 1
            if self.hits[bundle.bundle] <= self._settings.hit_count_split:
                return Reason.HIT_COUNT
            if capped:
                return Reason.CAP_SPLITS
        recent = was_recently_split(bundle.bundle, self._context.splits, self._context.now)
        return Reason.RECENTLY_SPLIT if recent else None

    def _cut_or_reason(self, bundle: BundleLoad) -> Cut | Reason:
        candidate = self._candidates.get(bundle.bundle)
        if candidate is None:
            return Reason.TOPICS_UNKNOWN
        return find_cut(
            candidate,
            self._settings.split_algorithm,
            self._settings,
            pending_bundles=self._bundles_more[namespace_of(bundle.bundle)],
            single_cut=self._context.extensible,
        )

    def _cut_reason(self, condition: SplitCondition, cut: Cut) -> Reason:
        settings = self._settings
        if cut.is_uneven and condition.name in ("msg_rate", "bandwidth"):
            return Reason.UNEVEN_SPLIT
        if settings.auto_split:
            return Reason.BUILTIN_SPLITTING_ON
        if settings.split_mode is not Mode.AUTO:
            return Reason.SPLIT_OBSERVED
        if self._of_broker.total() >= settings.max_splits_per_run:
            return Reason.CAP_SPLITS
        return Reason.TO_BE_SPLIT


def _explanation(bundle: BundleLoad, condition: SplitCondition, cut: Cut | None, reason: Reason) -> str:
    finding = f"{bundle.bundle} on {bundle.broker} has {excess_text(condition.name, condition.value, condition.bound)}"
    if cut is not None:
        finding += f"; a split at {cut.positions_text} would give parts with {percent_text(cut.shares)} of the traffic"
    return f"{finding}. {reason.meaning}"


_BUNDLE_COLUMNS = ["cluster", "broker", "bundle", *TRAFFIC, "topics", "producers", "consumers", "policy"]

_MAX_ADVICE = 5
"""Maximum number of sentences that advise operators to split a bundle."""


def make_split_plan(run: RunInput) -> SplitPlan:
    """Return the splits; empty if `split_mode` is off or the sample does not count. Raises SnapshotError."""
    read = SplitCandidates.read_if_exists(run.folder) or SplitCandidates()
    candidates = {candidate.bundle: candidate for candidate in read.bundles}
    if run.settings.split_mode is Mode.OFF or not candidates or not run.hit_rules.counts:
        return NO_SPLITS
    context = SplitInput(
        settings=run.settings,
        extensible=run.has_extensible_load_manager,
        now=run.request.collected_at,
        hits={} if run.hit_rules.clear else run.state.decision.split_hits,
        splits=run.state.moves.splits,
    )
    splits = plan_splits(context, _bundle_loads(run, sorted(candidates), extensible=context.extensible), candidates)
    held = {"taken": False, "reason": Reason.ROLLING} if run.state.roll else {}
    rows = [row | held if row["taken"] else row for row in splits.split_rows]
    return splits._replace(split_rows=[{"cluster": run.cluster, **row} for row in rows])


def _bundle_loads(run: RunInput, names: Sequence[str], *, extensible: bool) -> list[BundleLoad]:
    """Return the bundles; of several reports about a bundle, the one with the most traffic is used."""
    sample = run.bundle_rows(names, _BUNDLE_COLUMNS)
    parts = shares_of_parts(run.state.moves.splits)
    parents = {bundle for bundle, of_bundle in parts.items() if of_bundle.keys() & set(names)}
    known = rows_of_bundles([*names, *parents], run.known_means_file.read_batches()) if run.known_means_file else []
    after = {row["bundle"]: row for row in bundle_columns.update_means(sample, bundle_columns.add_parts(known, parts))}
    left_out, names = run_left_out_reasons(run), [row["bundle"] for row in sample]
    quarantined = run.validation.quarantine_reasons
    facts = stays.BundleFacts(run.settings, {}, quarantined=quarantined, control=run.state.control)
    reasons = dict(zip(names, stays.stay_reasons(pa.array(names, pa.string()), facts).to_pylist(), strict=True))
    loaded: dict[str, BundleLoad] = {}
    for row in sorted(sample, key=lambda row: java_sum(row[name] or 0.0 for name in TRAFFIC)):
        name, broker = row["bundle"], row["broker"]
        long_term = [after[name][column] for column in LONG_TERM_RATES]
        present = [
            java_sum(row[f"{kind}_{way}"] or 0.0 for way in ("in", "out")) for kind in ("msg_rate", "msg_throughput")
        ]
        rate, throughput = present if extensible else long_term
        loaded[name] = BundleLoad(
            bundle=name,
            broker=broker,
            topics=row["topics"] or 0,
            sessions=(row["producers"] or 0) + (row["consumers"] or 0),
            msg_rate=rate,
            msg_throughput=throughput,
            policy_kind=row["policy"],
            stay_reason=Reason(reasons[name]) if reasons[name] else left_out.get(broker),
        )
    return list(loaded.values())


def split_advice(
    run: Snapshot, decisions: Sequence[Decision], moves: Iterable[CandidateMove], source_traffic: Mapping[str, float]
) -> tuple[str, ...]:
    """Return one sentence for each broker that fired but whose bundles are all too large to move."""
    stuck = {d.pair: d for d in decisions if d.fired and d.reason in (Reason.NO_FITTING_BUNDLE, Reason.NO_GAIN)}
    busiest: dict[int, CandidateMove] = {}
    for move in moves if stuck else ():
        if move.pair in stuck and move.reason in (Reason.OVER_REMAINING, Reason.WOULD_OVERSHOOT):
            busiest[move.pair] = max(busiest.get(move.pair, move), move, key=lambda candidate: candidate.traffic)
    examined = [busiest[pair] for pair in sorted(busiest)[:_MAX_ADVICE]]
    rows = run.bundle_rows([move.bundle for move in examined], ["bundle", "topics"])
    topics = {row["bundle"]: row["topics"] or 0 for row in rows}
    sentences = (
        _advice_sentence(move, stuck[move.pair], source_traffic.get(move.source, 0.0))
        for move in examined
        if topics.get(move.bundle, 0) >= MIN_SPLIT_TOPICS
    )
    return tuple(filter(None, sentences))


def _advice_sentence(move: CandidateMove, decision: Decision, source_traffic: float) -> str:
    """Return advice to split a bundle into parts that can be moved; empty if the bundle is small enough.

    A part has to fit into the amount to move; GainShedder has none, so a part carries half of the gap.
    """
    whole = max(source_traffic, move.traffic)
    half_of_gap = whole * (decision.gap or 0.0) / 2 / (decision.source_score or math.inf)
    fitting = decision.target or half_of_gap
    parts = math.ceil(move.traffic / fitting) if fitting else 2
    share = 100 * move.traffic / whole
    too_large = f"{move.bundle} carries {share:.0f} % of {move.source}'s traffic, too much for one move"
    return f"{too_large}; after a split into {parts} parts, a part can move." if parts > 1 else ""
