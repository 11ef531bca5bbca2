"""The validated settings of one cluster, by Pulsar's names or ours, with the same meaning as in Pulsar."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from reprlib import Repr
from typing import Annotated, Literal, Self, TypeVar

from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    field_validator,
    model_validator,
)

from pulsar_rebalancer.config.field_types import DEFAULT_STRATEGY, Mode, Placement, Strategy, Window
from pulsar_rebalancer.config.pulsar_settings import FIELD_OF_PULSAR_NAME, PulsarSettings
from pulsar_rebalancer.errors import FieldsError, SettingsError
from pulsar_rebalancer.names import Brokers, Patterns
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.texts import cleaned_input

MAX_CONCURRENT_MOVES = 64
"""Maximum number of bundles that are moved at the same time."""


class Pause(BaseModel):
    """A pause for one cluster: decisions continue, but no bundles are moved."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    until: AwareDatetime = Field(description="end of the pause, with a time zone")
    reason: str = Field(min_length=1, max_length=500, description="reason, shown in every run")


class BreakerRules(BaseModel):
    """Conditions that open the circuit breaker, and how long it stays open."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bad_brokers: int | None = Field(None, ge=1, description="the breaker opens if a run leaves out this many brokers")
    failed_moves: int | None = Field(
        None, ge=1, description="the breaker opens if this many moves of a run fail or land on the wrong broker"
    )
    worse_rounds: int | None = Field(
        None, ge=1, description="the breaker opens if the score range grows in this many consecutive rounds of moves"
    )
    minutes: float = Field(60, gt=0, le=60 * 24 * 366, description="minutes until the breaker closes by itself")

    @model_validator(mode="after")
    def _check_has_limit(self) -> Self:
        if (self.bad_brokers, self.failed_moves, self.worse_rounds) == (None, None, None):
            raise ValueError("breaker needs at least one limit: bad_brokers, failed_moves or worse_rounds")
        return self


CAPS = ("max_bundles_per_run", "max_bundles_per_broker", "max_bundles_per_namespace", "max_bytes_per_run")


class Settings(PulsarSettings):
    """Effective settings of one cluster.

    Pulsar's settings can come from the live brokers. All others come only from the clusters file or a manual run.
    """

    strategy: str = Field(
        DEFAULT_STRATEGY,
        description="shedder that chooses bundles: Pulsar's class name, or the import path of a custom shedder",
    )
    strategy_settings: dict[str, JsonValue] = Field({}, description="settings of GainShedder or of a custom shedder")
    placement: Placement | None = Field(
        None,
        description="placement strategy (Pulsar's class name) for shedders that choose no destination; "
        "empty: the shedder's default",
    )
    min_bundle_share: float = Field(
        0,
        ge=0,
        le=1,
        description="AvgShedder: a bundle moves only if it carries at least this share (0 to 1) of the traffic to move",
    )
    mode: Mode = Field(
        Mode.OBSERVE,
        description="off, observe (decide and explain), approve (act once a person approves) or auto (act)",
    )
    interval_seconds: float = Field(60, ge=5, le=86400, description="seconds between runs")
    connection: str = Field("pulsar_admin_default", min_length=1, description="Airflow connection of type pulsar_admin")
    spark_connection: str = Field(
        "spark_default", min_length=1, description="Airflow connection of type spark or spark_connect"
    )
    excluded_brokers: Brokers = Field((), description="brokers (host:port) that neither give nor take bundles")
    max_bundles_per_run: int | None = Field(None, ge=1, description="maximum bundles moved per run")
    max_bundles_per_broker: int | None = Field(
        None, ge=1, description="maximum bundles moved off or onto one broker per run"
    )
    max_bundles_per_namespace: int | None = Field(
        None, ge=1, description="maximum bundles of one namespace moved per run"
    )
    max_bytes_per_run: float | None = Field(
        None, gt=0, description="maximum inbound plus outbound throughput of the bundles moved per run, bytes/s"
    )
    excluded_bundles: Patterns = Field((), description="patterns (with * and ?) of bundles that never move")
    move_system_bundles: bool = Field(False, description="bundles of pulsar/system may move, as in Pulsar")
    max_quarantined_brokers: int = Field(2, ge=0, description="maximum number of left-out brokers; above it, runs fail")
    pause: Pause | None = Field(None, description="nothing is moved until the pause ends")
    maintenance_windows: tuple[Window, ...] = Field((), description="bundles are moved only within these windows")
    blackouts: tuple[Window, ...] = Field((), description="nothing is moved within these windows")
    breaker: BreakerRules | None = Field(None, description="circuit breaker: when it opens, and for how long")
    state_max_gap: float = Field(3, ge=1, description="hits restart at zero after this many intervals without a sample")
    listen_seconds: float = Field(
        6,
        ge=0,
        le=120,
        description="maximum seconds to read the extensible load manager's system topics; 0: top bundles and average "
        "throughput are computed, not read",
    )
    max_plan_age_seconds: float = Field(180, gt=0, description="maximum age of a plan when it is carried out, seconds")
    max_awaiting_minutes: float = Field(
        60, gt=0, le=1440, description="maximum age of a plan when a person approves it or carries it out, minutes"
    )
    two_people: bool = Field(
        False,
        description="a second person must approve a requested plan, and carry out a drain, a rolling restart and (in "
        "mode auto) a manual plan",
    )
    unload_concurrency: Annotated[int, Field(ge=1, le=MAX_CONCURRENT_MOVES)] | Literal["auto"] = Field(
        4, description="maximum concurrent moves; auto: each broker's limit adapts to max_client_gap_seconds"
    )
    max_client_gap_seconds: float = Field(
        0.5, gt=0, le=15, description="seconds within which clients must reconnect, if unload_concurrency is auto"
    )
    move_timeout_seconds: float = Field(
        30, gt=0, description="maximum seconds for the unload request, and again until a new owner appears"
    )
    fill_new_brokers: bool = Field(False, description="automatically fill a new healthy broker up to the mean score")
    roll_restart_dag: str = Field(
        "",
        pattern=r"^[A-Za-z0-9_.-]{0,250}$",
        description="id of your DAG that restarts brokers in rolling restarts; empty: a person restarts them",
    )
    roll_wait_minutes: float = Field(
        30,
        gt=0,
        le=60 * 24 * 7,
        description="minutes without progress after which a rolling restart stops, unless orders forbid progress",
    )
    split_mode: Mode = Field(
        Mode.OFF,
        description="action on bundles that are too large: off, observe (list them) or auto (split them; in mode "
        "approve, after approval)",
    )
    max_splits_per_run: int = Field(1, ge=1, description="maximum bundles split per run")
    retention_days: int = Field(
        14, ge=0, le=3650, description="maximum days that run folders and state exports are kept; 0: forever"
    )
    history_days: int = Field(
        90, ge=0, le=3650, description="days that the tables of compacted runs are kept; 0: forever"
    )
    alert_connection: str = Field("", description="Airflow connection of type apprise; empty: no alerts")
    alert_after_intervals: int = Field(
        5, ge=2, le=1000, description="intervals without a finished run before an alert is sent"
    )

    @field_validator("mode", "split_mode", mode="before")
    @classmethod
    def _false_as_off(cls, value: object) -> object:
        # YAML reads a bare `off` as false.
        return Mode.OFF if value is False else value

    @field_validator("strategy")
    @classmethod
    def _check_strategy(cls, value: str) -> str:
        if value not in list(Strategy) and not _IMPORT_PATH.fullmatch(value):
            raise ValueError(f"Input should be {', '.join(Strategy)} or an import path, package.module:function")
        return value

    @field_validator("split_mode")
    @classmethod
    def _check_split_mode(cls, value: Mode) -> Mode:
        if value is Mode.APPROVE:
            raise ValueError("use off, observe or auto; in mode approve, splits wait for approval with the moves")
        return value


_IMPORT_PATH = re.compile(r"[A-Za-z_][\w.]{0,200}:[A-Za-z_]\w{0,100}", re.ASCII)

_SHORT_REPR = Repr()
_SHORT_REPR.maxlevel, _SHORT_REPR.maxstring = 3, 100

Check = Callable[[Settings, str], Settings]
"""Checks settings against their strategy and returns them. Error messages name the second argument as the origin."""


def validate(
    values: Mapping[str, object], *, label: str, origins: Mapping[str, str] | None = None, check: Check | None = None
) -> Settings:
    """Return validated settings.

    Args:
        values: values by setting name, ours or Pulsar's.
        label: source of the settings, for error messages, such as `clusters.yaml: east`.
        origins: source of each field, for error messages; None if all fields come from `label`.
        check: additional check, for example that the settings suit the strategy.

    Raises:
        SettingsError: `wrong_setting` or `contradiction`; the message names the key.
    """
    try:
        settings = Settings.model_validate(dict(values))
    except ValidationError as error:
        raise settings_error(error, label, origins) from None
    return check(settings, label) if check else settings


def settings_error(error: ValidationError, label: str, origins: Mapping[str, str] | None = None) -> SettingsError:
    """Convert a validation error to a `SettingsError` that names the keys; for the arguments, see `validate`.

    Its reason is `contradiction` if only the combination is invalid, else `wrong_setting`.
    """
    problems = []
    for item in error.errors(include_url=False, include_input=True, include_context=False):
        key = ".".join(_setting_with_pulsar_name(str(part)) for part in item["loc"])
        field = FIELD_OF_PULSAR_NAME.get(str(item["loc"][0]), item["loc"][0]) if item["loc"] else ""
        origin = f", from: {origins[str(field)]}" if origins and field in origins else ""
        shown = f" (got {_value_text(item['input'])}{origin})" if key else ""
        problems.append(f"{key + ': ' if key else ''}{item['msg'].removeprefix('Value error, ')}{shown}")
    pair = all(not item["loc"] for item in error.errors())
    return SettingsError(Reason.CONTRADICTION if pair else Reason.WRONG_SETTING, f"{label}: " + "; ".join(problems))


def _value_text(value: object) -> str:
    try:
        return repr((value if isinstance(value, str) else _SHORT_REPR.repr(value))[:80])
    except ValueError:
        return f"a {type(value).__name__} too large to be shown"


def _setting_with_pulsar_name(name: str) -> str:
    field = FIELD_OF_PULSAR_NAME.get(name, name)
    info = Settings.model_fields.get(field)
    return f"{field} ({info.alias})" if info is not None and info.alias else field


_Form = TypeVar("_Form", bound=BaseModel)


def cleaned_inputs(values: Mapping[str, object], label: str) -> dict[str, object]:
    """Clean every string by `texts.cleaned_input`. Raises SettingsError `wrong_setting`, which names the key."""
    cleaned: dict[str, object] = {}
    for key, value in values.items():
        try:
            cleaned[key] = cleaned_input(value)
        except ValueError as error:
            raise SettingsError(Reason.WRONG_SETTING, f"{label}: {key}: {error}", {key: str(error)}) from None
    return cleaned


def parse_form_values(form_class: type[_Form], values: Mapping[str, object], label: str) -> _Form:
    """Return a form with typed values, or defaults. Raises SettingsError `wrong_setting`, with the wrong fields."""
    given = {name: value for name, value in cleaned_inputs(values, label).items() if value not in (None, "", [])}
    try:
        return form_class.model_validate(given)
    except ValidationError as error:
        wrong = dict(_invalid_fields(error))
        fields = {key.partition(".")[0]: sentence for key, sentence in wrong.items()}
        named = "; ".join(f"{key}: {sentence}" for key, sentence in wrong.items())
        raise SettingsError(Reason.WRONG_SETTING, f"{label}: {named}", fields) from None


def _invalid_fields(error: ValidationError) -> Iterator[tuple[str, str]]:
    for item in error.errors():
        raised = item.get("ctx", {}).get("error")
        if isinstance(raised, FieldsError):
            yield from raised.fields.items()
        else:
            sentence = item["msg"].removeprefix("Value error, ")
            yield ".".join(map(str, item["loc"])), f"{sentence} (got {_value_text(item['input'])})"
