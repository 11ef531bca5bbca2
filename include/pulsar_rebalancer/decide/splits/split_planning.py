"""Read the split candidates that the *collect* task wrote, and plan the splits with `planner`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pyarrow as pa

from pulsar_rebalancer.config.enums import Mode
from pulsar_rebalancer.decide import stays
from pulsar_rebalancer.decide.splits import planner
from pulsar_rebalancer.decide.splits.conditions import LoadedBundle
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.splits import parts_by_bundle
from pulsar_rebalancer.run.tables import LONG_TERM, TRAFFIC, rows_of
from pulsar_rebalancer.run.topic_loads import FEWEST_TOPICS, Candidates
from pulsar_rebalancer.strategies import means
from pulsar_rebalancer.strategies.left_out import left_out_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pulsar_rebalancer.decide.run_input import RunInput
    from pulsar_rebalancer.decide.splits.planner import SplitPlan
    from pulsar_rebalancer.run.snapshot import Snapshot
    from pulsar_rebalancer.strategies.sample import CandidateMove, Decision

_COLUMNS = ["cluster", "broker", "bundle", *TRAFFIC, "topics", "producers", "consumers", "policy"]

_MOST_TOLD = 5
"""Maximum number of sentences that advise people to split a bundle."""


def plan(run: RunInput) -> SplitPlan:
    """Return a run's splits; empty if `split_mode` is off or the sample does not count.

    Raises:
        SnapshotError: one of the run's files, or a state file, cannot be read.
    """
    candidates = {candidate.bundle: candidate for candidate in (Candidates.find(run.folder) or Candidates()).bundles}
    if run.settings.split_mode is Mode.OFF or not candidates or not run.counting.counts:
        return planner.NO_SPLITS
    context = planner.SplitContext(
        settings=run.settings,
        extensible=run.extensible,
        now=run.request.collected_at,
        hits={} if run.counting.clear else run.before.decision.split_hits,
        splits=run.before.moves.splits,
    )
    splits = planner.plan(context, _loaded(run, sorted(candidates), extensible=context.extensible), candidates)
    held = {"taken": False, "reason": Reason.ROLLING} if run.before.roll else {}
    rows = [row | held if row["taken"] else row for row in splits.rows]
    return splits._replace(rows=[{"cluster": run.cluster, **row} for row in rows])


def _loaded(run: RunInput, names: Sequence[str], *, extensible: bool) -> list[LoadedBundle]:
    """Return the bundles with the figures that split conditions compare.

    If several brokers report a bundle, the report with the most traffic is used.
    """
    sample = run.bundles_named(names, _COLUMNS)
    parts = parts_by_bundle(run.before.moves.splits)
    parents = {bundle for bundle, of_bundle in parts.items() if of_bundle.keys() & set(names)}
    known = rows_of([*names, *parents], run.known_means.read_batches()) if run.known_means else []
    after = {row["bundle"]: row for row in means.update(sample, means.with_parts(known, parts))}
    left_out, names = left_out_of(run), [row["bundle"] for row in sample]
    facts = stays.BundleFacts(run.settings, {}, quarantined=run.validation.quarantined)
    reasons = dict(zip(names, stays.of_bundles(pa.array(names, pa.string()), facts).to_pylist(), strict=True))
    loaded: dict[str, LoadedBundle] = {}
    for row in sorted(sample, key=lambda row: sum(row[name] or 0.0 for name in TRAFFIC)):
        name, broker = row["bundle"], row["broker"]
        long_term = [after[name][column] for column in LONG_TERM]
        present = [sum(row[f"{kind}_{way}"] or 0.0 for way in ("in", "out")) for kind in ("msg_rate", "msg_throughput")]
        rate, throughput = present if extensible else long_term
        loaded[name] = LoadedBundle(
            bundle=name,
            broker=broker,
            topics=row["topics"] or 0,
            sessions=(row["producers"] or 0) + (row["consumers"] or 0),
            msg_rate=rate,
            msg_throughput=throughput,
            policy=row["policy"],
            stays=Reason(reasons[name]) if reasons[name] else left_out.get(broker),
        )
    return list(loaded.values())


def helpful(
    run: Snapshot, decisions: Sequence[Decision], moves: Iterable[CandidateMove], source_traffic: Mapping[str, float]
) -> tuple[str, ...]:
    """Return advice on splits: one sentence for each broker that fired but whose bundles are all too large to move.

    Args:
        moves: one cluster's candidates, sorted by pair and rank.
        source_traffic: current traffic by source, in the same measure as its moves.
    """
    stuck = {d.pair: d for d in decisions if d.fired and d.reason in (Reason.NO_FITTING_BUNDLE, Reason.NO_GAIN)}
    busiest: dict[int, CandidateMove] = {}
    for move in moves if stuck else ():
        if move.pair in stuck and move.reason in (Reason.OVER_REMAINING, Reason.WOULD_OVERSHOOT):
            busiest[move.pair] = max(busiest.get(move.pair, move), move, key=lambda each: each.traffic)
    told = [busiest[pair] for pair in sorted(busiest)[:_MOST_TOLD]]
    rows = run.bundles_named([move.bundle for move in told], ["bundle", "topics"])
    topics = {row["bundle"]: row["topics"] or 0 for row in rows}
    sentences = (
        _sentence(move, stuck[move.pair], source_traffic.get(move.source, 0.0))
        for move in told
        if topics.get(move.bundle, 0) >= FEWEST_TOPICS
    )
    return tuple(filter(None, sentences))


def _sentence(move: CandidateMove, decision: Decision, of_source: float) -> str:
    """Return advice to split a bundle into parts that can be moved; empty if the bundle is small enough.

    A part has to fit into the amount to move. GainShedder has no such amount: a part gains most if it carries half of
    the gap.
    """
    whole = max(of_source, move.traffic)
    half_of_gap = whole * (decision.gap or 0.0) / 2 / (decision.source_score or math.inf)
    fitting = decision.target or half_of_gap
    parts = math.ceil(move.traffic / fitting) if fitting else 2
    split = "in two it" if parts == 2 else f"in {parts} a part of it"
    carries = f"{move.bundle} carries {100 * move.traffic / whole:.0f} % of {move.source}'s traffic"
    return f"{decision.reason}: {carries}; split {split} could be moved" if parts > 1 else ""
