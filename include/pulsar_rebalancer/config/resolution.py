"""Effective settings, the origin of each setting, and the parameters of a manual run.

A later source overrides an earlier one: the defaults of Pulsar 5.0, the live brokers' configuration (load-balancer keys
only), the clusters file, the parameters of a manual run.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from pulsar_rebalancer.config.enums import Mode
from pulsar_rebalancer.config.pulsar_settings import FIELD_OF_PULSAR_NAME, Percent
from pulsar_rebalancer.config.settings import CAPS, Settings, validate
from pulsar_rebalancer.config.typed import parse_typed
from pulsar_rebalancer.errors import SettingsError
from pulsar_rebalancer.names import Brokers, Namespaces, Patterns
from pulsar_rebalancer.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pulsar_rebalancer.config.settings import Check


class Origin(StrEnum):
    """The source of a setting's value."""

    DEFAULT = "default"
    BROKERS = "brokers"
    FILE = "file"
    PARAMS = "params"


PLAN_HASH = "[0-9a-f]{64}"
"""Regular expression that matches a plan's hash."""

THRESHOLD_FIELDS = ("low_threshold", "high_threshold", "hit_count_low", "hit_count_high", "max_unload_percentage")
"""A manual run that changes any of these settings does not count hits."""


class RunParams(BaseModel):
    """Parameters of a manual run. They may force moves, lower the mode, change thresholds and add exclusions."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    force: str = Field("", max_length=500, description="reason for forcing a balance; empty for a normal run")
    force_threshold: Percent | None = Field(
        None, description="gap at which a forced run acts; empty for the low threshold"
    )
    mode: Mode | None = Field(None, description="a lower mode than that of the clusters file")
    low_threshold: Percent | None = None
    high_threshold: Percent | None = None
    hit_count_low: int | None = Field(None, ge=1)
    hit_count_high: int | None = Field(None, ge=1)
    max_unload_percentage: float | None = Field(None, gt=0, le=1)
    max_bundles_per_run: int | None = Field(None, ge=1)
    max_bundles_per_broker: int | None = Field(None, ge=1)
    max_bundles_off_broker: int | None = Field(None, ge=1)
    max_bundles_onto_broker: int | None = Field(None, ge=1)
    max_bundles_per_namespace: int | None = Field(None, ge=1)
    max_bytes_per_run: float | None = Field(None, gt=0)
    excluded_namespaces: Namespaces = ()
    excluded_brokers: Brokers = ()
    excluded_bundles: Patterns = ()
    plan: str = Field("", pattern=f"^({PLAN_HASH})?$", description="hash of the manual plan to carry out")

    @model_validator(mode="after")
    def _two_fields(self) -> Self:
        if self.force_threshold is not None and not self.force.strip():
            raise ValueError("force_threshold needs force: say why the balance is forced")
        if None not in (self.low_threshold, self.high_threshold) and self.low_threshold > self.high_threshold:  # type: ignore[operator]
            raise ValueError(f"low_threshold {self.low_threshold:g} is above high_threshold {self.high_threshold:g}")
        return self

    @property
    def changes_thresholds(self) -> bool:
        """Return whether the run's thresholds or broker pairs differ from those of scheduled runs."""
        return bool(self.excluded_brokers) or any(getattr(self, name) is not None for name in THRESHOLD_FIELDS)


class Resolved(BaseModel):
    """Effective settings with the origin of each field."""

    model_config = ConfigDict(frozen=True)

    settings: Settings
    origins: dict[str, Origin]


def parse_params(values: Mapping[str, object]) -> RunParams:
    """Validate and return the parameters of a manual run.

    Raises:
        SettingsError: `wrong_setting` or `contradiction`; the message names the field.
    """
    return parse_typed(RunParams, values, "parameters of the run")


def from_brokers(runtime: Mapping[str, str]) -> dict[str, str]:
    """Return the live brokers' load-balancer settings, by our field names.

    Args:
        runtime: a broker's response to `/admin/v2/brokers/configuration/runtime`; all values are strings.
    """
    settings = {}
    for pulsar_name, field in FIELD_OF_PULSAR_NAME.items():
        value = _plain(runtime.get(pulsar_name))
        if value is not None:
            settings[field] = value
    # The misspelt old keys win only while the new keys still have their default (ServiceConfiguration).
    for field, old in (("bandwidth_in_weight", "In"), ("bandwidth_out_weight", "Out")):
        value = _plain(runtime.get(f"loadBalancerBandwith{old}ResourceWeight"))
        if value is not None and _is_one(settings.get(field, "1.0")) and not _is_one(value):
            settings[field] = value
    return settings


def _is_one(value: str) -> bool:
    try:
        return float(value) == 1.0
    except ValueError:
        # Resolving the settings will refuse it with the key's name.
        return False


def _plain(value: str | None) -> str | None:
    if value is None or value in ("null", "Optional.empty"):
        return None
    return value.removeprefix("Optional[").removesuffix("]") if value.startswith("Optional[") else value


def disagreements(runtimes: Iterable[Mapping[str, str]]) -> tuple[str, ...]:
    """Return the Pulsar names of the load-balancer settings that differ between brokers, sorted."""
    runtimes = list(runtimes)
    return tuple(sorted(name for name in FIELD_OF_PULSAR_NAME if len({r.get(name) for r in runtimes}) > 1))


def resolve(
    file: Mapping[str, object], brokers: Mapping[str, str], params: RunParams | None = None, check: Check | None = None
) -> Resolved:
    """Return the effective settings: defaults < live brokers < clusters file < parameters of a manual run.

    Args:
        file: the cluster's entry in the clusters file; its keys are our names or Pulsar's.
        brokers: live settings, from `from_brokers`.
        params: parameters of a manual run. Their lists are added to the file's; their mode must not be higher than the
            file's.
        check: additional check, as in `validate`.

    Raises:
        SettingsError: `wrong_setting` or `contradiction`; the message names the key.
    """
    given = {FIELD_OF_PULSAR_NAME.get(name, name): value for name, value in file.items()}
    live = {field: value for field, value in brokers.items() if field not in given}
    merged: dict[str, object] = live | given
    origins = dict.fromkeys(Settings.model_fields, Origin.DEFAULT) | dict.fromkeys(live, Origin.BROKERS)
    origins |= dict.fromkeys(given, Origin.FILE)
    over = "settings of the clusters file over those of the live brokers"
    settings = validate(merged, where=over, origins=origins, check=check)
    if params is None:
        return Resolved(settings=settings, origins=origins)
    changed = _from_params(settings, params)
    merged.update(changed)
    origins.update(dict.fromkeys(changed, Origin.PARAMS))
    settings = validate(merged, where="settings with the run's parameters", origins=origins, check=check)
    return Resolved(settings=settings, origins=origins)


def _from_params(settings: Settings, params: RunParams) -> dict[str, Any]:
    given = params.model_dump(exclude_none=True, exclude={"force", "force_threshold", "plan"})
    changed = {name: value for name, value in given.items() if value not in ((), settings.mode)}
    if params.mode is not None and params.mode.rank > settings.mode.rank:
        raise SettingsError(
            Reason.WRONG_SETTING,
            f"mode: a run may lower the mode, not raise it from {settings.mode} to {params.mode}",
        )
    for name in CAPS:
        cap = getattr(settings, name)
        if cap is not None and changed.get(name, cap) > cap:
            raise SettingsError(Reason.WRONG_SETTING, f"{name}: a run may lower the cap, not raise it from {cap:g}")
    for name in ("excluded_namespaces", "excluded_brokers", "excluded_bundles"):
        if changed.get(name):
            changed[name] = tuple(dict.fromkeys((*getattr(settings, name), *changed[name])))
    return changed
