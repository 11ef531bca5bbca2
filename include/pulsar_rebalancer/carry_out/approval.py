"""Which plans need no person in mode `approve`, and how a plan is shown to the person who decides."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from pulsar_rebalancer.run.snapshot import CLIENTS, Snapshot
from pulsar_rebalancer.state.orders.calendar import within
from pulsar_rebalancer.texts import one_line

if TYPE_CHECKING:
    from datetime import datetime

    from pulsar_rebalancer.config.settings import SelfApproval
    from pulsar_rebalancer.run.plan import Actions, Summary
    from pulsar_rebalancer.storage.path import StoragePath

LISTED = 20
"""How many moves are named one by one."""


def approves_itself(criteria: SelfApproval | None, summary: Summary, now: datetime) -> bool:
    """Return whether a plan meets every criterion that is given; one that a person made, or that splits, never does.

    Args:
        criteria: of the clusters file; None: every plan needs a person.
        summary: of the plan.
        now: the present.
    """
    if criteria is None or summary.by_hand is not None or summary.bundles_split:
        return False
    if criteria.max_bundles is not None and summary.bundles_taken > criteria.max_bundles:
        return False
    if criteria.min_gain is not None and _gain(summary) < criteria.min_gain:
        return False
    return criteria.window is None or within(criteria.window, now)


def _gain(summary: Summary) -> float:
    """Return by how many points the plan is to narrow the range of scores."""
    if summary.predicted_max is None or summary.predicted_min is None:
        return 0.0
    return summary.score_range - (summary.predicted_max - summary.predicted_min)


class Texts(NamedTuple):
    """A question in Markdown."""

    subject: str
    body: str


def texts(summary: Summary, actions: Actions, run: StoragePath, until: datetime) -> Texts:
    """Return what the person who decides is asked; names from Pulsar are text and nothing else.

    Args:
        summary: of the plan.
        actions: what it does, verified.
        run: the folder of its run.
        until: when it is too old.

    Raises:
        SnapshotError: a file of the run cannot be read.
    """
    moves, splits = actions
    topics, producers, consumers = _disturbed(run, [move.bundle for move in moves])
    scores = f"{summary.score_min or 0:.1f} to {summary.score_max or 0:.1f} %"
    if summary.predicted_min is not None and summary.predicted_max is not None:
        scores += f", afterwards {summary.predicted_min:.1f} to {summary.predicted_max:.1f} % (predicted)"
    lines = [
        code(summary.sentence),
        "",
        f"* plan `{summary.hash[:16]}` of `{summary.plan_id}`, can be approved until {until:%Y-%m-%d %H:%M} UTC",
        f"* scores {scores}",
        f"* disturbs {topics} topics, {producers} producers, {consumers} consumers",
        *(f"* splits {code(split.bundle)} at {', '.join(map(hex, split.positions))}" for split in splits[:LISTED]),
        "",
        *(f"* {code(move.bundle)}: {code(move.source)} to {code(move.destination)}" for move in moves[:LISTED]),
    ]
    if len(moves) > LISTED:
        lines.append(f"* and {len(moves) - LISTED} more: {code(run.uri)}")
    what = f"{len(moves)} bundles" + (f" and split {len(splits)}" if splits else "")
    return Texts(f"Move {what} in cluster {summary.cluster}?", "\n".join(lines))


def code(text: str) -> str:
    """Return a text as a code span of Markdown: nothing in it is markup, no address becomes a link, nothing ends it."""
    shown = one_line(text, 500)
    fence = "`" * (max((len(found) for found in re.findall("`+", shown)), default=0) + 1)
    # Spaces, which Markdown takes away again, keep a backtick at the edge from the fence.
    return f"{fence} {shown} {fence}" if shown else ""


def _disturbed(run: StoragePath, bundles: list[str]) -> tuple[int, int, int]:
    """Return topics, producers and consumers of bundles: their clients look for the new owner."""
    clients = Snapshot(run).clients(bundles).values()
    topics, producers, consumers = (sum(each[name] for each in clients) for name in CLIENTS)
    return topics, producers, consumers
