"""The trigger forms, built from the models that validate their input."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import Param

from pulsar_rebalancer.config.enums import Action, Mode, Overrule, SplitAlgorithm
from pulsar_rebalancer.config.pulsar_settings import PulsarSettings
from pulsar_rebalancer.config.resolution import RunParams
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.replay.replay_request import DEFAULT_GRID, ReplayRequest
from pulsar_rebalancer.run.manual_request import HandRequest
from pulsar_rebalancer.state.orders.control_form import FILE_NAME, ControlAction, ControlRequest
from pulsar_rebalancer.state.orders.roll_form import RollRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic.fields import FieldInfo

_KEYWORDS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "maxLength"}


def run_params(settings: Settings) -> dict[str, Param]:
    """Return the parameters for a rebalancing run, one per field of `RunParams`.

    Args:
        settings: settings from the clusters file, which include the highest mode that a run may request.
    """
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
        description = f"{description or Settings.model_fields[name].description}; {_usual(name, settings)}"
    keywords = {name: value for name, value in typed.items() if name in _KEYWORDS}
    title = name.replace("_", " ").capitalize()
    if typed["type"] == "array":
        return Param([], type=["null", "array"], items={"type": "string"}, title=title, description=description)
    default = None if "anyOf" in schema else schema["default"]
    return Param(default, type=["null", typed["type"]], title=title, description=description, **keywords)


def _usual(name: str, settings: Settings) -> str:
    """Return text that names the value without the parameter, or the names to which the parameter adds some."""
    usual = getattr(settings, name)
    if name in PulsarSettings.model_fields and name not in settings.model_fields_set:
        return "in addition to those of the brokers" if isinstance(usual, tuple) else "otherwise from the brokers"
    if isinstance(usual, tuple):
        return f"in addition to those of the clusters file: {', '.join(usual) or 'none'}"
    return f"clusters file: {'none' if usual is None else f'{usual:g}'}"


def by_hand_params() -> dict[str, Param]:
    """Return the parameters for a by-hand run, one per field of `HandRequest`."""
    return {name: _by_hand_param(name, field) for name, field in HandRequest.model_fields.items()}


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


def control_params() -> dict[str, Param]:
    """Return the parameters for a control run, one per field of `ControlRequest`."""
    typed: dict[str, dict[str, Any]] = {
        "action": {"default": ControlAction.SHOW.value, "type": "string", "enum": list(ControlAction)},
        "reason": {"default": "", "type": ["null", "string"], "maxLength": 500},
        "until": {"default": None, "type": ["null", "string"], "format": "date-time"},
        "file": {"default": None, "type": ["null", "string"], "pattern": f"^({FILE_NAME})?$"},
    }
    return {
        name: Param(**typed[name], title=name.capitalize(), description=field.description)
        for name, field in ControlRequest.model_fields.items()
    }


def roll_params() -> dict[str, Param]:
    """Return the parameters for a rolling restart, one per field of `RollRequest`."""
    typed: dict[str, dict[str, Any]] = {
        "brokers": {"default": [], "type": ["null", "array", "string"], "items": {"type": "string"}},
        "reason": {"default": "", "type": ["null", "string"], "maxLength": 500},
        "plan": {"default": "", "type": ["null", "string"], "maxLength": 64},
    }
    return {
        name: Param(**typed[name], title=name.capitalize(), description=field.description)
        for name, field in RollRequest.model_fields.items()
    }


def replay_params() -> dict[str, Param]:
    """Return the parameters for a replay run: the fields of `ReplayRequest` that a person fills in."""
    typed: dict[str, dict[str, Any]] = {
        "start": {"default": None, "type": ["null", "string"], "format": "date-time"},
        "end": {"default": None, "type": ["null", "string"], "format": "date-time"},
        "grid": {"default": DEFAULT_GRID, "type": "array", "items": {"type": "object"}},
        "worth": {"default": 10, "type": "number", "minimum": 0},
        "days_apart": {"default": False, "type": "boolean"},
    }
    return {
        name: Param(
            **given,
            title=name.replace("_", " ").capitalize(),
            description=ReplayRequest.model_fields[name].description,
        )
        for name, given in typed.items()
    }


def maintenance_params() -> dict[str, Param]:
    """Return the parameters for a maintenance run."""
    return {
        "dry_run": Param(
            True,
            type="boolean",
            title="Dry run",
            description="only report what would change, with counts and bytes; scheduled runs always act",
        )
    }
