"""Approving plans: what people are asked about a plan, and who may approve it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from pulsar_rebalancer.errors import PlanError
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.snapshot import CLIENTS, Snapshot
from pulsar_rebalancer.texts import number_of, one_line

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from pulsar_rebalancer.run.plan import Actions, Summary
    from pulsar_rebalancer.run.splits import Split
    from pulsar_rebalancer.storage.path import StoragePath

LISTED = 20
"""Maximum number of moves or splits listed on a page."""


def lacks_second_person(requested_by: Collection[str], person: Collection[str]) -> PlanError | None:
    """Return why a person may not approve or carry out a plan in a cluster that requires two people; None if they may.

    Args:
        requested_by: users who requested the plan, as in `Summary.requested_by`.
        person: the user's id and login name. Airflow records both for an answer, but only the login name for a run, so
            a match on either counts.
    """
    if "" in requested_by or not any(person):
        return PlanError(Reason.NO_USER, "it is unknown who requested the plan, or who wants it carried out")
    same = set(requested_by).intersection(person)
    return PlanError(Reason.SAME_PERSON, f"{', '.join(same)} requested it") if same else None


class Texts(NamedTuple):
    """The subject and body of an approval question, in Markdown."""

    subject: str
    body: str


def texts(summary: Summary, actions: Actions, run: StoragePath, until: datetime, barred: Collection[str] = ()) -> Texts:
    """Return the plan as Markdown for the person who approves or rejects it. Names are escaped.

    Args:
        actions: the plan's verified moves and splits.
        until: deadline for approving the plan.
        barred: users who may not approve the plan.

    Raises:
        SnapshotError: one of the run's files cannot be read.
    """
    moves, splits = actions
    counts = zip(_disturbed(run, actions.unloaded), ("topic", "producer", "consumer"), strict=True)
    disturbed = ", ".join(number_of(count, noun) for count, noun in counts)
    scores = f"{summary.score_min or 0:.1f} to {summary.score_max or 0:.1f} %"
    if summary.predicted_range is not None:
        scores += f", afterwards {summary.predicted_min:.1f} to {summary.predicted_max:.1f} % (predicted)"
    lines = [
        code(summary.sentence),
        "",
        f"* plan `{summary.hash[:16]}` of `{summary.plan_id}`, can be approved until {until:%Y-%m-%d %H:%M} UTC",
        *(f"* requested by {code(user)}, so another person has to approve it" for user in sorted(barred)),
        f"* scores {scores}",
        f"* disturbs {disturbed}",
        *(f"* splits {code(split.bundle)} permanently {split.cut}{_because(split)}" for split in splits[:LISTED]),
        "",
        *(f"* {code(move.bundle)}: {code(move.source)} to {code(move.destination)}" for move in moves[:LISTED]),
    ]
    more = [
        f"{len(part) - LISTED} more {name}"
        for name, part in (("moves", moves), ("splits", splits))
        if len(part) > LISTED
    ]
    if more:
        lines.append(f"* and {' and '.join(more)}: {code(run.uri)}")
    what = number_of(len(moves), "bundle") + (f" and split {len(splits)}" if splits else "")
    return Texts(f"Move {what} in cluster {summary.cluster}?", "\n".join(lines))


def _because(split: Split) -> str:
    return f" (it has {split.excess})" if split.excess else ""


def code(text: str) -> str:
    """Return text as a Markdown code span. Backticks in the text do not end the span."""
    shown = one_line(text, 500)
    fence = "`" * (max((len(backticks) for backticks in re.findall("`+", shown)), default=0) + 1)
    # The spaces separate a leading or trailing backtick from the fence; Markdown strips them.
    return f"{fence} {shown} {fence}" if shown else ""


def _disturbed(run: StoragePath, bundles: list[str]) -> tuple[int, int, int]:
    """Return how many topics the bundles have, and how many producers and consumers have to reconnect."""
    clients = Snapshot(run).clients(bundles).values()
    topics, producers, consumers = (sum(counts[name] for counts in clients) for name in CLIENTS)
    return topics, producers, consumers
