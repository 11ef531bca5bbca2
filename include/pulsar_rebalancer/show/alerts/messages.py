"""The text of alert messages: the condition, its reasons, key figures, what to do, and a link."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.show.run_text import hits_of
from pulsar_rebalancer.texts import number_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from pulsar_rebalancer.show.alerts.alert_conditions import EndedRun
    from pulsar_rebalancer.show.alerts.incidents import PendingMessage

LISTED = 10
"""Maximum number of reason codes in a message."""


@dataclass(frozen=True)
class AlertMessage:
    """A one-line title and a plain-text body. Receivers choose colours and icons by `kind`."""

    title: str
    body: str
    kind: Literal["failure", "success"]


def compose(cluster: str, pending: PendingMessage, figures: Sequence[str], link: str) -> AlertMessage:
    """Return the message for a condition that has started or ended.

    Args:
        cluster: name in the clusters file.
        figures: lines of text with key figures of the run that sends the message.
        link: URL of that run in Airflow's UI.
    """
    condition, incident = pending.condition, pending.incident
    detail = f" ({incident.detail})" if incident.detail else ""
    lines = [f"Cluster: {cluster}", f"Condition: {condition} ({condition.label})", _line("Started", incident.since)]
    if pending.over:
        lines.append(_line("Last seen", incident.seen_at) + detail)
        if incident.over_at:
            lines.append(_line("Over", incident.over_at))
        if incident.unwatched:
            lines.append(f"No longer checked: {incident.unwatched}: {incident.unwatched.meaning}")
    else:
        lines.append(f"What: {condition.meaning}{detail}")
    lines += ["Reasons:", *_reasons(incident.reasons, actions=not pending.over)]
    lines += ["Figures:", *(f"  {line}" for line in figures or ["none: the run did not get that far"])]
    lines.append(f"What to do: {'nothing, it is over.' if pending.over else condition.action}")
    lines.append(f"Run: {link}")
    title = f"Pulsar {cluster}: {'over: ' if pending.over else ''}{condition.label}"
    return AlertMessage(title=title, body="\n".join(lines), kind="success" if pending.over else "failure")


def _line(name: str, at: datetime) -> str:
    return f"{name}: {at:%Y-%m-%d %H:%M:%S %Z}"


def _reasons(reasons: Mapping[Reason, int], *, actions: bool = False) -> list[str]:
    """Return one line per reason code, most frequent first."""
    ordered = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    lines = [
        f"  {code} x{count}" + (f": {code.meaning} {code.action}".rstrip() if actions else "")
        for code, count in ordered[:LISTED]
    ]
    return lines + ([f"  and {len(ordered) - LISTED} more"] if len(ordered) > LISTED else [])


def figures_of(run: EndedRun) -> list[str]:
    """Return a few lines of text with the run's key figures."""
    lines, summary = [], run.summary
    if summary is not None:
        if summary.score_min is not None and summary.score_max is not None:
            span = f"({summary.score_min:.1f} to {summary.score_max:.1f} %) over {number_of(summary.brokers, 'broker')}"
            lines.append(f"score range: {summary.score_range:.1f} points {span}")
        if hits := hits_of(summary):
            lines.append(f"hits: {hits}")
    if run.outcome is not None and run.outcome.moves:
        moves = run.outcome.moves
        verified, astray = sum(move.ok for move in moves), run.outcome.counts.get(Reason.ASTRAY, 0)
        lines.append(f"moves: {verified} of {len(moves)} verified, {astray} astray")
    if run.validation is not None and run.validation.findings:
        counts = Counter(finding.effect.value for finding in run.validation.findings)
        lines.append("findings: " + ", ".join(f"{count} {effect}" for effect, count in sorted(counts.items())))
    in_force = (run.outcome and run.outcome.in_force) or (run.request and run.request.in_force)
    return [*lines, f"in force: {in_force}"] if in_force else lines
