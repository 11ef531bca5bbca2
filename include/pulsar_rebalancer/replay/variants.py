"""The variants to compare: a cluster's settings with some values changed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from itertools import product
from typing import Any, NamedTuple

from pulsar_rebalancer.config.clusters_file import RunParams
from pulsar_rebalancer.config.pulsar_settings import FIELD_OF_PULSAR_NAME, PulsarSettings
from pulsar_rebalancer.config.settings import CAPS, Settings
from pulsar_rebalancer.errors import SettingsError, SnapshotError
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.compacted_tables import RUNS, table_file
from pulsar_rebalancer.run.request import RunRequest
from pulsar_rebalancer.storage.documents import ClusterStorage, day_of
from pulsar_rebalancer.storage.path import StoragePath, json_document
from pulsar_rebalancer.strategies.shedders.registry import validate

MOST_VARIANTS = 1000

CURRENT = "current settings"

_NOT_REPLAYED = {
    "report_max_interval_minutes",
    "host_usage_interval_minutes",
    "failure_domains",
    *(name for name in PulsarSettings.model_fields if "split" in name),
    "max_bundle_topics",
    "max_bundle_sessions",
    "max_bundle_msg_rate",
    "max_bundle_bandwidth",
    "max_namespace_bundles",
    "flow_difference",
}

OF_STRATEGY = ("placement", "strategy_settings")
"""Settings that belong to one strategy and have no meaning for another."""

REPLAYED = (
    "strategy",
    *OF_STRATEGY,
    "min_bundle_share",
    *CAPS,
    "excluded_brokers",
    "excluded_bundles",
    *(name for name in PulsarSettings.model_fields if name not in _NOT_REPLAYED),
)
"""Settings that affect the decisions of a variant."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One set of settings to compare, with a unique name; `changed` are those that differ from the current."""

    name: str
    settings: Settings
    changed: Mapping[str, object] = field(default_factory=dict)
    current: bool = False


class Variants(NamedTuple):
    """A grid's variants, the current settings first, and why self-contradicting combinations are left out."""

    variants: list[Variant]
    left_out: list[str]


def expand(grid: Sequence[Mapping[str, object]], current: Settings) -> Variants:
    """Return the current settings and every combination in a grid.

    Each part of the grid maps settings, by our names or Pulsar's, to a value or a list of values, and all
    combinations within a part are compared. Settings that a part does not name keep their current values.

    Raises SettingsError `wrong_setting` for an unknown setting or strategy, a value of the wrong type, or
    more than `MOST_VARIANTS` combinations.
    """
    parts = [_by_field(part, f"grid, part {number}") for number, part in enumerate(grid, start=1)]
    _refuse_many(parts)
    by_key = {_key(current): Variant(CURRENT, current, current=True)}
    left_out: list[str] = []
    for number, part in enumerate(parts, start=1):
        for values in product(*part.values()):
            changed = dict(zip(part, values, strict=True))
            try:
                variant = _variant(changed, current, f"grid, part {number}")
            except SettingsError as error:
                if error.reason is not Reason.CONTRADICTION:
                    raise
                left_out.append(error.message)
                continue
            by_key.setdefault(_key(variant.settings), variant)
    return Variants(list(by_key.values()), left_out)


def _by_field(part: Mapping[str, object], where: str) -> dict[str, list[Any]]:
    if not isinstance(part, dict):
        raise SettingsError(Reason.WRONG_SETTING, f"{where} is not a mapping of settings to values")
    by_field: dict[str, list[Any]] = {}
    for key, values in part.items():
        name = FIELD_OF_PULSAR_NAME.get(str(key), str(key))
        if name not in REPLAYED:
            raise SettingsError(Reason.WRONG_SETTING, f"{where}: {str(key)[:80]!r} is not a setting of replays")
        listed = values if isinstance(values, list) else [values]
        if not listed:
            raise SettingsError(Reason.WRONG_SETTING, f"{where}: {name} has no value")
        by_field[name] = listed
    return by_field


def _refuse_many(parts: Sequence[Mapping[str, list[Any]]]) -> None:
    count = sum(math.prod(len(values) for values in part.values()) for part in parts)
    if count > MOST_VARIANTS:
        sizes = ", ".join(f"{name} {len(values)}" for part in parts for name, values in part.items())
        raise SettingsError(
            Reason.WRONG_SETTING,
            f"grid: {count:,} variants, at most {MOST_VARIANTS:,}: give fewer values (now {sizes[:500]})",
        )


def _variant(changed: dict[str, object], current: Settings, where: str) -> Variant:
    values = current.model_dump(mode="json", exclude_unset=True)
    if changed.get("strategy", current.strategy) != current.strategy:
        values = {name: value for name, value in values.items() if name not in OF_STRATEGY}
    settings = validate(values | changed, where=where)
    shown = {name: value for name, value in changed.items() if name != "strategy"}
    name = ", ".join([settings.strategy, *(f"{key} {value}" for key, value in shown.items())])
    return Variant(name, settings, changed)


def _key(settings: Settings) -> str:
    decisive = settings.model_dump(mode="json", include=set(REPLAYED))
    return str(sorted(decisive.items()))


def current_settings(storage: ClusterStorage, of_file: Settings) -> tuple[Settings, str]:
    """Return the settings of the latest run without parameters, with text that names their source.

    They include what the run read from the brokers. Without such a run, in its folder or the compacted
    tables, the clusters file's settings count.
    """
    tables = [name.removesuffix(".parquet") for name in (storage.base / "history" / RUNS).names()]
    days = {day for name in (*storage.runs.names(), *tables) if (day := day_of(name))}
    for day in sorted(days, reverse=True):
        for name, request in _of_day(storage, day):
            if request.params == RunParams():
                return request.resolved.settings, f"those of run {name}"
    return of_file, "those of the clusters file; no run with the brokers' own settings was found"


def _of_day(storage: ClusterStorage, day: date) -> Iterator[tuple[str, RunRequest]]:
    folder = storage.runs / f"date={day.isoformat()}"
    compacted = _compacted(table_file(storage, RUNS, day))
    for name in sorted({*folder.names(), *compacted}, reverse=True):
        text = compacted.get(name)
        try:
            request = (
                RunRequest.read(folder / name) if text is None else RunRequest.parse(json_document(text, name), name)
            )
        except SnapshotError:
            continue
        yield name, request


def _compacted(listed: StoragePath) -> dict[str, str | None]:
    try:
        tables = list(listed.read_batches(["run", "settings"])) if listed.exists() else []
    except SnapshotError:
        return {}
    return {row["run"]: row["settings"] for table in tables for row in table.to_pylist()}
