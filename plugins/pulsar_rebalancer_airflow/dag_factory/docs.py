"""The pages that Airflow shows beside a DAG: what it does, its settings, and which document says more."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pulsar_rebalancer.config.clusters_file import ClusterEntry

_PAGES = {
    "rebalance": (
        "Reads the load of the brokers, decides which bundles move, and moves them if the gate opens. To force a "
        "balance now, trigger it and fill in *Force*. **Backfills are refused**: a live cluster has no past. "
        "Thresholds that the clusters file does not give are those of the live brokers.",
        ("mode", "strategy", "interval_seconds", "low_threshold", "high_threshold", "connection"),
        "docs/runs.md",
    ),
    "by_hand": (
        "Moves, splits and drains that a person asks for. Trigger it with an *Action*: the task *plan* shows what "
        "would move. Trigger it again with only the plan's hash to carry it out.",
        ("mode", "max_shown_plan_age_seconds"),
        "docs/by-hand.md",
    ),
    "control": (
        "Pauses, stops, hands over and back, and looks after the state. Trigger it with an *Action* and a reason.",
        ("mode", "connection"),
        "docs/control.md",
    ),
    "apply": (
        "Asks a person about the newest plan that moves something. Without an approval in time nothing moves.",
        ("max_awaiting_minutes",),
        "docs/control.md",
    ),
    "maintenance": (
        "Compacts and removes old files, once a day. A manual run only says what would go, unless *Dry run* is off.",
        ("compact_after_days", "retention_days", "history_days"),
        "docs/operations.md",
    ),
    "replay": (
        "Takes recorded runs through other settings. Nothing is moved. The run's tab *Balance* has the report.",
        ("strategy", "retention_days"),
        "docs/replay.md",
    ),
    "watch": (
        "Sends an alert when no run has ended for several intervals. Keep it unpaused.",
        ("alert_connection", "alert_after_intervals", "interval_seconds"),
        "docs/alerts.md",
    ),
}


def page(kind: str, entry: ClusterEntry) -> str:
    """Return Markdown about a DAG; its kind is the prefix of its id."""
    about, settings, document = _PAGES[kind]
    rows = "".join(f"| `{name}` | {getattr(entry.settings, name)} |\n" for name in settings)
    return f"### Cluster `{entry.name}`\n\n{about}\n\n| setting | value |\n|---|---|\n{rows}\nMore: `{document}`.\n"


def broken_page(entry: ClusterEntry) -> str:
    """Return Markdown: what is wrong with an entry. The DAG is replaced once the file is corrected."""
    error = entry.error.replace("`", "'")
    return f"### The entry `{entry.name}` of the clusters file cannot be used\n\n```\n{error}\n```\n"
