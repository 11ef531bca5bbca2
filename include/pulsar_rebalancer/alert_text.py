"""The messages that people get: what started or is over, why, the figures, what to do, and where to look."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from pulsar_rebalancer.alerts import Condition
from pulsar_rebalancer.reasons import REASONS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from pulsar_rebalancer.alerts import Due

LISTED = 10
"""How many reason codes a message names."""


class _Texts(NamedTuple):
    name: str
    meaning: str
    action: str


_TEXTS = {
    Condition.BLOCKED: _Texts(
        "validation failed",
        "The data cannot be judged: runs fail and nothing is decided.",
        "Mend what the reasons name; the next run validates anew.",
    ),
    Condition.UNSAFE: _Texts(
        "acting is unsafe",
        "Runs decide and explain, but the gate stays closed: nothing is moved.",
        "Mend what the reasons name; the gate opens by itself.",
    ),
    Condition.UNLOAD: _Texts(
        "unloading failed",
        "Bundles were not moved, or are on another broker than planned.",
        "See the moves in the log of the run's report task.",
    ),
    Condition.UNFINISHED: _Texts(
        "a run failed",
        "A task of the run failed before the gate was asked: nothing is moved.",
        "See the log of the task that failed.",
    ),
    Condition.SLOW: _Texts(
        "runs take too long",
        "A run took longer than the interval, so the next one starts late or is left out.",
        "See which task takes long; give it more room, or lengthen interval_seconds.",
    ),
    Condition.NO_RUN: _Texts(
        "no run",
        "No run has come to its end for several intervals: the cluster is not looked after.",
        "See whether the DAG is paused, a run hangs, or the workers are busy with other things.",
    ),
}


@dataclass(frozen=True)
class Message:
    """One message.

    Attributes:
        title: one line.
        body: plain text.
        kind: what receivers make colours and icons of.
    """

    title: str
    body: str
    kind: Literal["failure", "success"]


def compose(cluster: str, due: Due, figures: Sequence[str], link: str) -> Message:
    """The message for a condition that started or is over.

    Args:
        cluster: name in the clusters file.
        due: what is to be told.
        figures: lines about the run that tells it.
        link: address of that run in Airflow's UI.
    """
    texts, episode = _TEXTS[due.condition], due.episode
    detail = f" ({episode.detail})" if episode.detail else ""
    if due.over:
        title = f"Pulsar {cluster}: over: {texts.name}"
        happened = [_line("Started", episode.since), _line("Last seen", episode.seen_at) + detail]
        if episode.over_at is not None:
            happened.append(_line("Over", episode.over_at))
    else:
        title = f"Pulsar {cluster}: {texts.name}"
        happened = [_line("Started", episode.since), f"What: {texts.meaning}{detail}"]
    lines = [f"Cluster: {cluster}", f"Condition: {due.condition} ({texts.name})", *happened]
    lines += ["Reasons:", *_reasons(episode.reasons, actions=not due.over)]
    lines += ["Figures:", *(f"  {line}" for line in figures or ["none: the run did not get that far"])]
    lines.append(f"What to do: {'nothing, it is over.' if due.over else texts.action}")
    lines.append(f"Run: {link}")
    return Message(title=title, body="\n".join(lines), kind="success" if due.over else "failure")


def _line(name: str, at: datetime) -> str:
    return f"{name}: {at:%Y-%m-%d %H:%M:%S %Z}"


def _reasons(reasons: Mapping[str, int], *, actions: bool) -> list[str]:
    """Most frequent first."""
    ordered = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    lines = []
    for code, count in ordered[:LISTED]:
        known = REASONS.get(code)
        said = f": {known.meaning} {known.action}".rstrip() if known and actions else ""
        lines.append(f"  {code} x{count}{said}")
    if len(ordered) > LISTED:
        lines.append(f"  and {len(ordered) - LISTED} more")
    return lines
