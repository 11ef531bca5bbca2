"""The trigger forms, built from the models that validate their input, and the pages of the DAGs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.sdk import Param
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from pulsar_rebalancer.config.clusters_file import ClusterEntry, RunParams
from pulsar_rebalancer.config.field_types import Action, Mode, Overrule, SplitAlgorithm
from pulsar_rebalancer.config.pulsar_settings import PulsarSettings
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.orders.in_force import ACTIONS, SHOW, ControlRequest
from pulsar_rebalancer.orders.roll_document import RollRequest
from pulsar_rebalancer.replay.variants import DEFAULT_GRID, ReplayRequest
from pulsar_rebalancer.run.request import PlanRequest
from pulsar_rebalancer.strategies.shedders.registry import safe_profile_of

_SCHEMA_KEYWORDS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "maxLength"}


def run_params(settings: Settings) -> dict[str, Param]:
    """Return a rebalancing run's parameters, one per field of `RunParams`, up to the highest allowed mode."""
    properties = RunParams.model_json_schema()["properties"]
    form = {name: _param(name, schema, settings) for name, schema in properties.items() if name not in ("mode", "plan")}
    # A run may use mode approve only if that is the clusters file's mode.
    lower = [m.value for m in Mode if m.rank <= settings.mode.rank and (m is not Mode.APPROVE or m is settings.mode)]
    form["mode"] = Param(
        None,
        type=["null", "string"],
        enum=[None, *lower],
        title="Mode",
        description=f"{RunParams.model_fields['mode'].description}, which is {settings.mode}",
    )
    return form


def _param(name: str, schema: Mapping[str, Any], settings: Settings) -> Param:
    # In JSON schema an optional field is `anyOf: [<type>, null]`.
    typed = next((option for option in schema.get("anyOf", ()) if option.get("type") != "null"), schema)
    description = RunParams.model_fields[name].description or ""
    if name in Settings.model_fields:
        description = f"{description or Settings.model_fields[name].description}; {_default_value(name, settings)}"
    keywords = {name: value for name, value in typed.items() if name in _SCHEMA_KEYWORDS}
    title = name.replace("_", " ").capitalize()
    if typed["type"] == "array":
        return Param([], type=["null", "array"], items={"type": "string"}, title=title, description=description)
    default = None if "anyOf" in schema else schema["default"]
    return Param(default, type=["null", typed["type"]], title=title, description=description, **keywords)


def _default_value(name: str, settings: Settings) -> str:
    """Return text that names the value without the parameter, or the names to which the parameter adds some."""
    usual = getattr(settings, name)
    if name in PulsarSettings.model_fields and name not in settings.model_fields_set:
        return "added to the brokers' values" if isinstance(usual, tuple) else "default: the brokers' value"
    if isinstance(usual, tuple):
        return f"added to those in the clusters file ({', '.join(usual) or 'none'})"
    return f"value in the clusters file: {'none' if usual is None else f'{usual:g}'}"


def by_hand_params() -> dict[str, Param]:
    return {name: _by_hand_param(name, field) for name, field in PlanRequest.model_fields.items()}


def _by_hand_param(name: str, field: FieldInfo) -> Param:
    given: dict[str, Any] = {"title": name.capitalize(), "description": field.description}
    if name == "action":
        return Param(None, type=["null", "string"], enum=[None, *Action], **given)
    if name == "overrule":
        return Param([], type=["null", "array"], items={"type": "string", "enum": list(Overrule)}, **given)
    if name == "algorithm":
        return Param(None, type=["null", "string"], enum=[None, *SplitAlgorithm], **given)
    if name == "unload":
        return Param(False, type=["null", "boolean"], **given)
    if name in ("bundles", "positions"):
        return Param([], type=["null", "array"], items={"type": "string"}, **given)
    if name == "broker":  # the form shows the first type
        return Param([], type=["null", "array", "string"], items={"type": "string"}, **given)
    return Param("", type=["null", "string"], maxLength=500, **given)


def _form_params(model: type[BaseModel], fields: Mapping[str, Mapping[str, Any]]) -> dict[str, Param]:
    """Return a form with these fields of a model, each with its default and JSON schema."""
    return {
        name: Param(**args, title=name.replace("_", " ").capitalize(), description=model.model_fields[name].description)
        for name, args in fields.items()
    }


_TEXT = {"default": "", "type": ["null", "string"], "maxLength": 500}
_TIME = {"default": None, "type": ["null", "string"], "format": "date-time"}


def control_params() -> dict[str, Param]:
    action = {"default": SHOW, "type": "string", "enum": list(ACTIONS)}
    return _form_params(ControlRequest, {"action": action, "reason": _TEXT, "until": _TIME, "subject": _TEXT})


def roll_params() -> dict[str, Param]:
    brokers = {"default": [], "type": ["null", "array", "string"], "items": {"type": "string"}}
    plan = {"default": "", "type": ["null", "string"], "maxLength": 64}
    return _form_params(RollRequest, {"brokers": brokers, "reason": _TEXT, "plan": plan})


def replay_params() -> dict[str, Param]:
    """Return the parameters for a replay run: the fields of `ReplayRequest` that a person fills in."""
    fields: dict[str, dict[str, Any]] = {
        "start": _TIME,
        "end": _TIME,
        "grid": {"default": DEFAULT_GRID, "type": "array", "items": {"type": "object"}},
        "worth": {"default": 10, "type": "number", "minimum": 0},
        "days_apart": {"default": False, "type": "boolean"},
    }
    return _form_params(ReplayRequest, fields)


def maintenance_params() -> dict[str, Param]:
    return {
        "dry_run": Param(
            True,
            type="boolean",
            title="Dry run",
            description="only report how many files and bytes would change; scheduled runs always make the changes",
        )
    }


_PAGE_TEXTS = {
    "rebalance": (
        "Reads the brokers' load, decides which bundles to move, and moves them if the gate opens. To force a "
        "balance now, trigger the DAG and fill in *Force*. **Backfills are refused**: only the current load can be "
        "balanced. Thresholds missing from the clusters file come from the live brokers.",
        ("mode", "interval_seconds", "connection", "strategy"),
        "docs/runs.md",
    ),
    "by_hand": (
        "Moves or splits bundles, or drains brokers, on request. Trigger the DAG with an *Action*: the *plan* task "
        "shows what would move. To carry out the plan, trigger the DAG again with only the plan's hash.",
        ("mode", "max_awaiting_minutes"),
        "docs/control.md",
    ),
    "control": (
        "Pauses and stops runs, and manages the cluster's state. Trigger the DAG with an *Action* and a reason.",
        ("mode",),
        "docs/control.md",
    ),
    "apply": (
        "Asks a person to approve the latest plan that moves something. Bundles move only if someone approves in time.",
        ("max_awaiting_minutes",),
        "docs/control.md",
    ),
    "maintenance": (
        "Compacts and deletes old files once a day. If *Dry run* is on, a manual run only reports the changes.",
        ("retention_days", "history_days"),
        "docs/operations.md",
    ),
    "roll": (
        "Restarts brokers one by one: each broker is drained, restarts, and gets its bundles back. The first run only "
        "shows the order and the duration. To begin, trigger the DAG again with only the *Plan* id from the first run.",
        ("mode", "roll_restart_dag", "roll_wait_minutes"),
        "docs/rolling-restarts.md",
    ),
    "replay": (
        "Replays recorded runs with other settings. Nothing is moved. The run's tab *Balance* shows the report.",
        ("strategy", "retention_days"),
        "docs/replay.md",
    ),
    "watch": (
        "Sends an alert when no run has ended for several intervals. Keep this DAG unpaused.",
        ("alert_connection", "alert_after_intervals", "interval_seconds"),
        "docs/alerts.md",
    ),
}


def dag_doc_md(kind: str, entry: ClusterEntry) -> str:
    about, settings, document = _PAGE_TEXTS[kind]
    rows = "".join(f"| `{name}` | {getattr(entry.settings, name)} |\n" for name in settings)
    if "strategy" in settings:
        limits = safe_profile_of(entry.settings).thresholds(entry.settings)
        rows += "".join(f"| {name} threshold | {gap:g} points, {hits} hits |\n" for name, (gap, hits) in limits.items())
    return f"### Cluster `{entry.name}`\n\n{about}\n\n| setting | value |\n|---|---|\n{rows}\nMore: `{document}`.\n"


def broken_entry_doc_md(entry: ClusterEntry) -> str:
    """Return Markdown that explains the error in a cluster's entry, for the cluster's only DAG."""
    error = entry.error.replace("`", "'")
    return f"### The entry `{entry.name}` of the clusters file cannot be used\n\n```\n{error}\n```\n"
