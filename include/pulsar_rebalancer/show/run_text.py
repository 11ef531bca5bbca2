"""A run as text, for its log and for alerts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.plan import Summary
from pulsar_rebalancer.strategies.shedders.registry import profile_shown
from pulsar_rebalancer.texts import number_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pulsar_rebalancer.run.outcome import Outcome
    from pulsar_rebalancer.storage.path import StoragePath
    from pulsar_rebalancer.strategies.shedders.profile import Threshold

LISTED = 20
"""Maximum number of moves listed in the log."""


def describe(outcome: Outcome, run: StoragePath) -> str:
    """Return a summary of the run in a few lines: scores, pairs, hits, verdict, splits and moves."""
    lines = [f"Cluster {outcome.cluster}, run {run.uri}"]
    summary = Summary.find(run)
    in_force = outcome.in_force or (summary.in_force if summary else "")
    lines += [f"  state:   {in_force}"] if in_force else []
    if summary is not None:
        lines += _decided(summary)
    lines.append(f"  verdict: {outcome.verdict}")
    if outcome.splits:
        counts = ", ".join(f"{count} {reason}" for reason, count in outcome.split_counts.items())
        lines.append(f"  splits:  {sum(split.ok for split in outcome.splits)} of {len(outcome.splits)} done ({counts})")
    lines += [f"    {split.bundle}: {split.reason} {split.error}".rstrip() for split in outcome.splits[:LISTED]]
    if outcome.moves:
        verified = sum(move.ok for move in outcome.moves)
        counts = ", ".join(f"{count} {reason}" for reason, count in outcome.counts.items())
        lines.append(f"  moves:   {verified} of {len(outcome.moves)} verified on their planned broker ({counts})")
    lines += [f"  harm:    {outcome.harm.sentence}"] if outcome.harm else []
    for move in outcome.moves[:LISTED]:
        said = "; ".join(filter(None, (move.error, move.harm.text if move.harm else "")))
        lines.append(f"    {move.bundle}: {move.source} -> {move.destination}: {move.reason} {said}".rstrip())
    if len(outcome.moves) > LISTED:
        lines.append(f"    and {len(outcome.moves) - LISTED} more: {run.uri}/outcome.json")
    if outcome.destinations_kept:
        lines.append(f"  kept:    {Reason.DESTINATION_KEPT.meaning}")
    for bundle, destination in sorted(outcome.destinations_kept.items())[:LISTED]:
        lines.append(f"    {bundle}: {destination}")
    return "\n".join(lines)


def _decided(summary: Summary) -> list[str]:
    scores = "no broker was judged"
    if summary.score_min is not None and summary.score_max is not None:
        span = f"{summary.score_min:.1f} to {summary.score_max:.1f} % (range {summary.score_range:.1f})"
        scores = f"{span} over {number_of(summary.brokers, 'broker')}"
    drains = [
        f"  drain:   {broker}: {drain.moving} of {number_of(drain.bundles, 'bundle')} to be moved, "
        f"{drain.left} left for later; stay: {stay}; never move: {', '.join(drain.named) or 'none'}"
        if drain.bundles is not None
        else f"  drain:   {broker}: no load report, so its bundles are unknown"
        for broker, drain in summary.drains.items()
        for stay in [", ".join(f"{count} {reason}" for reason, count in drain.stay.items()) or "none"]
    ]
    pairs = []
    if low := _thresholds(summary).get("low"):
        pairs.append(f"  pairs:   {summary.pairs}, {summary.pairs_over} at or above {low.gap:g}")
        pairs.append(f"  hits:    {hits_of(summary)} ({summary.counting})")
    return [
        f"  plan:    {summary.sentence}",
        f"  scores:  {scores}",
        *pairs,
        f"  fired:   {summary.pairs_fired}; {number_of(summary.bundles_taken, 'bundle')} to be moved",
        *drains,
        *(f"  split:   {sentence}" for sentence in summary.splits_told),
    ]


def hits_of(summary: Summary) -> str:
    """Return a phrase with the most hits of any pair and the hits that it needs; empty if the strategy has no pairs."""
    each = zip(summary.hits, _thresholds(summary).items(), strict=False)
    return ", ".join(f"most {kind} {have} of {threshold.hits}" for have, (kind, threshold) in each)


def _thresholds(summary: Summary) -> Mapping[str, Threshold]:
    settings = summary.resolved.settings
    return profile_shown(settings).thresholds(settings)
