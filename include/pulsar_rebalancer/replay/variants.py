"""The variants to compare: a cluster's settings with some values changed."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from pulsar_rebalancer.config.pulsar_settings import FIELD_OF_PULSAR_NAME, PulsarSettings
from pulsar_rebalancer.config.settings import CAPS
from pulsar_rebalancer.errors import SettingsError
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.strategies.fitting import validate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pulsar_rebalancer.config.settings import Settings

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
    """One set of settings to compare.

    Attributes:
        name: name that is unique among the compared variants.
        changed: settings that differ from the current settings.
        current: True if these are the cluster's current settings.
    """

    name: str
    settings: Settings
    changed: Mapping[str, object] = field(default_factory=dict)
    current: bool = False


class Variants(NamedTuple):
    """The variants that a grid yields.

    Attributes:
        variants: all variants, the current settings first.
        left_out: for each combination that contradicts itself, why it was left out.
    """

    variants: list[Variant]
    left_out: list[str]


def expand(grid: Sequence[Mapping[str, object]], current: Settings) -> Variants:
    """Return the current settings and every combination in a grid.

    Args:
        grid: list of parts. A part maps settings, by our names or Pulsar's, to a value or a list of values; all
            combinations within a part are compared. Settings that a part does not name keep their current values.
        current: the cluster's effective settings.

    Raises:
        SettingsError: `wrong_setting` when a setting or strategy is unknown, a value has the wrong type, or there are
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
