"""Read the YAML clusters file. An invalid entry does not affect the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

from pulsar_rebalancer.config.field_types import Mode
from pulsar_rebalancer.config.pulsar_settings import FIELD_OF_PULSAR_NAME, Percent
from pulsar_rebalancer.config.settings import CAPS, Check, Settings, cleaned_inputs, parse_form_values, validate
from pulsar_rebalancer.errors import FieldsError, SettingsError
from pulsar_rebalancer.names import CLUSTER_NAME, Brokers, Namespaces, Patterns
from pulsar_rebalancer.reasons import Reason


class _YamlMap(dict[Any, Any]):
    """A mapping that records repeated keys. YAML itself silently keeps only the last value of a repeated key."""

    repeated: tuple[str, ...] = ()


_MAX_DEPTH = 20
"""Maximum number of nesting levels in a clusters file; a valid file has four."""

_MAX_VALUES = 100_000
"""Maximum number of values in a clusters file; the values of an alias count each time the alias is used."""

_MAX_PROBLEM_CHARS = 300


class _Loader(yaml.SafeLoader):
    """Reads plain YAML values only. An invalid value in one entry does not make the whole file unreadable."""

    def get_single_node(self) -> yaml.Node | None:
        try:
            node: yaml.Node | None = super().get_single_node()
        except RecursionError:
            raise yaml.YAMLError(_TOO_DEEP_ERROR) from None
        if node is not None and _count_values(node, (), {}) > _MAX_VALUES:
            raise yaml.YAMLError(f"the file's aliases expand to more than {_MAX_VALUES:,} values")
        return node

    def construct_time(self, node: yaml.ScalarNode) -> object:
        # A date that does not exist stays text, so that only its setting is refused.
        try:
            return self.construct_yaml_timestamp(node)
        except ValueError:
            return node.value

    def construct_entries(self, node: yaml.MappingNode) -> Iterator[_YamlMap]:
        entries = _YamlMap()
        yield entries
        counts = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.value != "<<")
        entries.repeated = tuple(key for key, count in counts.items() if count > 1)
        entries.update(self.construct_mapping(node))


_TOO_DEEP_ERROR = f"the file is nested more than {_MAX_DEPTH} levels deep"


def _count_values(node: yaml.Node, ancestor_ids: tuple[int, ...], known_counts: dict[int, int]) -> int:
    if id(node) in ancestor_ids:
        raise yaml.YAMLError(f"an alias in line {node.start_mark.line + 1} contains itself")
    if len(ancestor_ids) >= _MAX_DEPTH:
        raise yaml.YAMLError(_TOO_DEEP_ERROR)
    if id(node) not in known_counts and not isinstance(node, yaml.ScalarNode):
        parts = node.value if isinstance(node, yaml.SequenceNode) else [part for pair in node.value for part in pair]
        known_counts[id(node)] = 1 + sum(_count_values(part, (*ancestor_ids, id(node)), known_counts) for part in parts)
    return known_counts.get(id(node), 1)


_Loader.add_constructor("tag:yaml.org,2002:map", _Loader.construct_entries)
_Loader.add_constructor("tag:yaml.org,2002:timestamp", _Loader.construct_time)


class ClusterEntry(BaseModel):
    """One cluster from the clusters file.

    Attributes:
        name: the cluster's name in this file; folder names and DAG ids contain it.
        given: the cluster's settings in the file, including those from `defaults`, by our field names.
        settings: the given settings with Pulsar's defaults; the live brokers' settings are added later.
        error: why the entry cannot be used; it then has the default settings.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    given: dict[str, object]
    settings: Settings
    error: str = ""


def load_clusters(path: Path, check: Check | None = None) -> list[ClusterEntry]:
    """Return the clusters in a file, in file order.

    The file maps `clusters` from names to settings, with optional `defaults` for all clusters. `check` is an
    additional check, as in `validate`. Raises SettingsError `wrong_setting` if the whole file cannot be read;
    an invalid entry raises no error.
    """
    try:
        document = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader) or _YamlMap()
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise SettingsError(Reason.WRONG_SETTING, f"{path.name}: cannot be read: {_error_text(error)}") from None
    if not isinstance(document, _YamlMap) or set(document) - {"defaults", "clusters"}:
        raise SettingsError(Reason.WRONG_SETTING, f"{path.name}: expected only the keys `defaults` and `clusters`")
    _refuse_repeated_keys(document, path.name)
    defaults, clusters = document.get("defaults") or _YamlMap(), document.get("clusters") or _YamlMap()
    if not isinstance(defaults, _YamlMap) or not isinstance(clusters, _YamlMap):
        raise SettingsError(Reason.WRONG_SETTING, f"{path.name}: `defaults` and `clusters` must be mappings")
    repeated = clusters.repeated
    return [
        _cluster_entry(str(name), defaults, given, path.name, check, is_repeated=str(name) in repeated)
        for name, given in clusters.items()
    ]


def _error_text(error: Exception) -> str:
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return " ".join(str(error).split())[:_MAX_PROBLEM_CHARS]
    context = f"{error.context}, " if error.context else ""
    place = f"line {error.problem_mark.line + 1}, column {error.problem_mark.column + 1}"
    return f"{place}: {f'{context}{error.problem}'[:_MAX_PROBLEM_CHARS]}"


def _refuse_repeated_keys(entries: _YamlMap, label: str) -> None:
    if entries.repeated:
        raise SettingsError(Reason.CONTRADICTION, f"{label}: these keys are repeated: {', '.join(entries.repeated)}")


def _cluster_entry(
    name: str, defaults: _YamlMap, entry: object, path: str, check: Check | None, *, is_repeated: bool
) -> ClusterEntry:
    safe = name if CLUSTER_NAME.fullmatch(name) else "".join(c if c.isalnum() else "_" for c in name)[:60] or "unnamed"
    try:
        if safe != name:
            raise SettingsError(
                Reason.WRONG_SETTING, f"{path}: {name!r} is not a cluster name: only letters, digits, . _ - are allowed"
            )
        if is_repeated:
            raise SettingsError(Reason.CONTRADICTION, f"{path}: two clusters are named {name}: give each its own name")
        if entry is not None and not isinstance(entry, _YamlMap):
            raise SettingsError(Reason.WRONG_SETTING, f"{path}: {name}: expected a mapping of settings")
        merged = _field_values(defaults, f"{path}: defaults") | _field_values(entry or _YamlMap(), f"{path}: {name}")
        return ClusterEntry(name=name, given=merged, settings=validate(merged, label=f"{path}: {name}", check=check))
    except SettingsError as error:
        return ClusterEntry(name=safe, given={}, settings=Settings(), error=str(error))


def _field_values(entries: _YamlMap, label: str) -> dict[str, object]:
    _refuse_repeated_keys(entries, label)
    given: dict[str, object] = {}
    for key, value in entries.items():
        field = FIELD_OF_PULSAR_NAME.get(str(key), str(key))
        if field in given:
            raise SettingsError(Reason.CONTRADICTION, f"{label}: {field} is set twice, once under Pulsar's name")
        if isinstance(value, _YamlMap):
            _refuse_repeated_keys(value, f"{label}: {field}")
        given[field] = value
    return cleaned_inputs(given, label)


class Origin(StrEnum):
    DEFAULT = "default"
    BROKERS = "brokers"
    FILE = "file"
    PARAMS = "params"


PLAN_HASH = "[0-9a-f]{64}"

THRESHOLD_FIELDS = ("low_threshold", "high_threshold", "hit_count_low", "hit_count_high", "max_unload_percentage")
"""A manual run that changes any of these settings does not count hits."""


class RunParams(BaseModel):
    """Parameters of a manual run. They may force moves, lower the mode, change thresholds and add exclusions."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    force: str = Field("", max_length=500, description="reason to balance now, without waiting; empty: normal run")
    force_threshold: Percent | None = Field(
        None, description="score gap, in points, at which a forced run moves bundles; empty: low_threshold"
    )
    mode: Mode | None = Field(None, description="mode of this run, not higher than the mode in the clusters file")
    low_threshold: Percent | None = None
    high_threshold: Percent | None = None
    hit_count_low: int | None = Field(None, ge=1)
    hit_count_high: int | None = Field(None, ge=1)
    max_unload_percentage: float | None = Field(None, gt=0, le=1)
    max_bundles_per_run: int | None = Field(None, ge=1)
    max_bundles_per_broker: int | None = Field(None, ge=1)
    max_bundles_per_namespace: int | None = Field(None, ge=1)
    max_bytes_per_run: float | None = Field(None, gt=0)
    excluded_namespaces: Namespaces = ()
    excluded_brokers: Brokers = ()
    excluded_bundles: Patterns = ()
    plan: str = Field("", pattern=f"^({PLAN_HASH})?$", description="hash of the manual plan to carry out")

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        if self.force_threshold is not None and not self.force.strip():
            raise FieldsError({"force": "Give a reason for the forced run; the reason is recorded."})
        if None not in (self.low_threshold, self.high_threshold) and self.low_threshold > self.high_threshold:  # type: ignore[operator]
            raise FieldsError({"low_threshold": f"The value is above high_threshold ({self.high_threshold:g})."})
        return self

    @property
    def changes_decision(self) -> bool:
        return bool(self.model_dump(exclude={"mode", "plan"}, exclude_defaults=True))

    @property
    def changes_thresholds(self) -> bool:
        return bool(self.excluded_brokers) or any(getattr(self, name) is not None for name in THRESHOLD_FIELDS)


class RunSettings(BaseModel):
    model_config = ConfigDict(frozen=True)

    settings: Settings
    origins: dict[str, Origin]


def parse_params(values: Mapping[str, object]) -> RunParams:
    """Validate a manual run's parameters. Raises SettingsError `wrong_setting`, with the wrong fields."""
    return parse_form_values(RunParams, values, "run parameters")


def live_settings(runtime: Mapping[str, str]) -> dict[str, str]:
    """Return the live brokers' load-balancer settings, by our field names.

    `runtime` is a response to `/admin/v2/brokers/configuration/runtime`, in which all values are strings.
    """
    settings = {}
    for pulsar_name, field in FIELD_OF_PULSAR_NAME.items():
        value = _unwrapped_optional(runtime.get(pulsar_name))
        if value is not None:
            settings[field] = value
    # The misspelt old keys win only while the new keys still have their default (ServiceConfiguration).
    for field, old in (("bandwidth_in_weight", "In"), ("bandwidth_out_weight", "Out")):
        value = _unwrapped_optional(runtime.get(f"loadBalancerBandwith{old}ResourceWeight"))
        if value is not None and _equals_one(settings.get(field, "1.0")) and not _equals_one(value):
            settings[field] = value
    return settings


def _equals_one(value: str) -> bool:
    try:
        return float(value) == 1.0
    except ValueError:
        # Resolving the settings will refuse it with the key's name.
        return False


def _unwrapped_optional(value: str | None) -> str | None:
    if value is None or value in ("null", "Optional.empty"):
        return None
    return value.removeprefix("Optional[").removesuffix("]") if value.startswith("Optional[") else value


def differing_settings(runtimes: Iterable[Mapping[str, str]]) -> tuple[str, ...]:
    runtimes = list(runtimes)
    names = (*FIELD_OF_PULSAR_NAME, "loadManagerClassName")
    return tuple(sorted(name for name in names if len({r.get(name) for r in runtimes}) > 1))


def resolve(
    file: Mapping[str, object], brokers: Mapping[str, str], params: RunParams | None = None, check: Check | None = None
) -> RunSettings:
    """Return the effective settings: defaults < live brokers < clusters file < parameters of a manual run.

    Args:
        file: the cluster's entry in the clusters file; its keys are our names or Pulsar's.
        brokers: live settings, from `live_settings`.
        params: their lists are added to the file's; their mode must not be higher than the file's.
        check: additional check, as in `validate`.

    Raises:
        SettingsError: `wrong_setting` or `contradiction`; the message names the key.
    """
    given = {FIELD_OF_PULSAR_NAME.get(name, name): value for name, value in file.items()}
    live = {field: value for field, value in brokers.items() if field not in given}
    merged: dict[str, object] = live | given
    origins = dict.fromkeys(Settings.model_fields, Origin.DEFAULT) | dict.fromkeys(live, Origin.BROKERS)
    origins |= dict.fromkeys(given, Origin.FILE)
    over = "settings from the clusters file and the live brokers"
    settings = validate(merged, label=over, origins=origins, check=check)
    if params is None:
        return RunSettings(settings=settings, origins=origins)
    changed = _param_changes(settings, params)
    merged.update(changed)
    origins.update(dict.fromkeys(changed, Origin.PARAMS))
    settings = validate(merged, label="settings changed by the run's parameters", origins=origins, check=check)
    return RunSettings(settings=settings, origins=origins)


def _param_changes(settings: Settings, params: RunParams) -> dict[str, object]:
    given = params.model_dump(exclude_none=True, exclude={"force", "force_threshold", "plan"})
    changed = {name: value for name, value in given.items() if value not in ((), settings.mode)}
    if params.mode is not None and params.mode.rank > settings.mode.rank:
        raise SettingsError(
            Reason.WRONG_SETTING, f"mode: a run may lower the mode, not raise it from {settings.mode} to {params.mode}"
        )
    for name in CAPS:
        cap = getattr(settings, name)
        if cap is not None and changed.get(name, cap) > cap:
            raise SettingsError(Reason.WRONG_SETTING, f"{name}: a run may lower the cap, not raise it above {cap:g}")
    for name in ("excluded_namespaces", "excluded_brokers", "excluded_bundles"):
        if changed.get(name):
            changed[name] = tuple(dict.fromkeys((*getattr(settings, name), *changed[name])))
    return changed
