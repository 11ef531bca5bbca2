"""The documentation that Airflow shows for each DAG: its purpose, its settings, and links to the manual."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsar_rebalancer.strategies.shedders.registry import profile_shown

if TYPE_CHECKING:
    from pulsar_rebalancer.config.clusters_file import ClusterEntry

_PAGES = {
    "rebalance": (
        "Reads the brokers' load, decides which bundles to move, and moves them if the gate opens. To force a "
        "balance now, trigger it and fill in *Force*. **Backfills are refused**: only the current load can be "
        "balanced. Thresholds missing from the clusters file come from the live brokers.",
        ("mode", "interval_seconds", "connection", "strategy"),
        "docs/runs.md",
    ),
    "by_hand": (
        "Moves, splits and drains on request. Trigger it with an *Action*: the *plan* task shows what would move. "
        "To carry the plan out, trigger it again with only the plan's hash.",
        ("mode", "max_shown_plan_age_seconds"),
        "docs/control.md",
    ),
    "control": (
        "Pauses and stops runs, and manages the state. Trigger it with an *Action* and a reason.",
        ("mode",),
        "docs/control.md",
    ),
    "apply": (
        "Asks a person to approve the newest plan that moves something. Nothing moves without approval in time.",
        ("max_awaiting_minutes",),
        "docs/control.md",
    ),
    "maintenance": (
        "Compacts and deletes old files once a day. A manual run only reports the changes, unless *Dry run* is off.",
        ("compact_after_days", "retention_days", "history_days"),
        "docs/operations.md",
    ),
    "roll": (
        "Restarts brokers one after the other: each is drained, restarts and gets its bundles back. The first run only "
        "shows the order and how long it takes. To carry it out, trigger it again with only the shown *Plan*.",
        ("mode", "roll_restart_dag", "roll_max_score", "roll_wait_minutes"),
        "docs/rolling-restarts.md",
    ),
    "replay": (
        "Replays recorded runs with other settings. Nothing is moved. The run's tab *Balance* has the report.",
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
    """Return a DAG's documentation in Markdown; `kind` is the kind of DAG, as in the prefix of its id."""
    about, settings, document = _PAGES[kind]
    rows = "".join(f"| `{name}` | {getattr(entry.settings, name)} |\n" for name in settings)
    if "strategy" in settings:
        limits = profile_shown(entry.settings).thresholds(entry.settings)
        rows += "".join(f"| {name} threshold | {gap:g} points, {hits} hits |\n" for name, (gap, hits) in limits.items())
    return f"### Cluster `{entry.name}`\n\n{about}\n\n| setting | value |\n|---|---|\n{rows}\nMore: `{document}`.\n"


def broken_page(entry: ClusterEntry) -> str:
    """Return Markdown that explains the error in a cluster's entry, for the only DAG that such a cluster has."""
    error = entry.error.replace("`", "'")
    return f"### The entry `{entry.name}` of the clusters file cannot be used\n\n```\n{error}\n```\n"
