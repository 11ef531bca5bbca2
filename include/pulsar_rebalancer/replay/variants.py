"""What is compared: settings of a cluster with some of them changed, and a shedder that may come from outside."""

from __future__ import annotations

import importlib
import math
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from pulsar_rebalancer.config.enums import Placement, Strategy
from pulsar_rebalancer.config.pulsar_settings import FIELD_OF_PULSAR_NAME, PulsarSettings
from pulsar_rebalancer.config.settings import CAPS, validate
from pulsar_rebalancer.errors import SettingsError
from pulsar_rebalancer.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pulsar_rebalancer.config.settings import Settings
    from pulsar_rebalancer.strategies.shedders.registry import Shedder

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

REPLAYED = (
    "strategy",
    "placement",
    "min_bundle_share",
    *CAPS,
    "excluded_brokers",
    "excluded_bundles",
    *(name for name in PulsarSettings.model_fields if name not in _NOT_REPLAYED),
)
"""Settings that change what a variant does."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to balance.

    Attributes:
        name: unique among those compared.
        settings: effective ones.
        path: import path of a shedder from outside, `package.module:function`; it takes the place of the settings'
            strategy.
        changed: what differs from the current settings.
        current: whether these are the current settings.
    """

    name: str
    settings: Settings
    path: str = ""
    changed: Mapping[str, object] = field(default_factory=dict)
    current: bool = False

    @property
    def strategy(self) -> str:
        """Return its name, or the import path."""
        return self.path or self.settings.strategy

    def shedder(self) -> Shedder | None:
        """Return the shedder from outside; None when the settings name it.

        Raises:
            ValueError: the path leads to nothing that can be called.
        """
        return imported(self.path) if self.path else None


class Variants(NamedTuple):
    """What a grid says.

    Attributes:
        variants: the current settings first.
        left_out: combinations that contradict themselves, each with why.
    """

    variants: list[Variant]
    left_out: list[str]


def imported(path: str) -> Shedder:
    """Return a shedder by its import path.

    Raises:
        ValueError: it leads to nothing that can be called.
    """
    module, _, function = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), function)
    except (Exception, SystemExit) as error:  # whatever the module of someone else does when it is imported
        raise ValueError(f"strategy {path}: {type(error).__name__}: {error}") from None
    if not callable(found):
        raise ValueError(f"strategy {path}: cannot be called")
    return cast("Shedder", found)


def outside(grid: object) -> set[str]:
    """Return the import paths that a grid names as strategies, whatever else is in it."""
    parts = grid if isinstance(grid, list) else []
    named = [part.get("strategy") for part in parts if isinstance(part, dict)]
    flat = [each for names in named for each in (names if isinstance(names, list) else [names])]
    return {each for each in flat if isinstance(each, str) and ":" in each}


def expand(grid: Sequence[Mapping[str, object]], current: Settings) -> Variants:
    """Return the current settings and every combination of a grid.

    Args:
        grid: each part names settings, ours or Pulsar's, with a value or a list of values; all combinations of a part
            are compared. What a part does not name is as in the current settings. A strategy with a colon is the
            import path of one from outside.
        current: effective settings of the cluster.

    Raises:
        SettingsError: `wrong_setting`; a setting or strategy is unknown or its value of the wrong type, or there are
            more than `MOST_VARIANTS` combinations.
    """
    parts = [_by_field(part, f"grid, part {number}") for number, part in enumerate(grid, start=1)]
    _refuse_many(parts)
    found = {_key(current, ""): Variant(CURRENT, current, current=True)}
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
            found.setdefault(_key(variant.settings, variant.path), variant)
    return Variants(list(found.values()), left_out)


def _by_field(part: Mapping[str, object], where: str) -> dict[str, list[Any]]:
    if not isinstance(part, dict):
        raise SettingsError(Reason.WRONG_SETTING, f"{where} is no mapping of settings to values")
    found: dict[str, list[Any]] = {}
    for key, values in part.items():
        name = FIELD_OF_PULSAR_NAME.get(str(key), str(key))
        if name not in REPLAYED:
            raise SettingsError(Reason.WRONG_SETTING, f"{where}: {str(key)[:80]!r} is no setting that a replay knows")
        listed = values if isinstance(values, list) else [values]
        if not listed:
            raise SettingsError(Reason.WRONG_SETTING, f"{where}: {name} has no value")
        found[name] = listed
    return found


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
    strategy = changed.get("strategy", current.strategy)
    path = strategy if isinstance(strategy, str) and ":" in strategy else ""
    if strategy != current.strategy and "placement" not in changed:
        values.pop("placement", None)
    given = dict(changed)
    if path:
        # Its own settings are those of the shedder that it takes the place of; destinations that it leaves open are
        # for a placement that works with any.
        given |= {"strategy": Strategy.THRESHOLD, "placement": changed.get("placement", Placement.LEAST_USAGE)}
        _refuse_unknown(path, where)
    settings = validate(values | given, where=where)
    shown = {name: value for name, value in changed.items() if name != "strategy"}
    name = ", ".join([path or settings.strategy, *(f"{key} {value}" for key, value in shown.items())])
    return Variant(name, settings, path, changed)


def _refuse_unknown(path: str, where: str) -> None:
    try:
        imported(path)
    except ValueError as error:
        raise SettingsError(Reason.WRONG_SETTING, f"{where}: {error}") from None


def _key(settings: Settings, path: str) -> str:
    decisive = settings.model_dump(mode="json", include=set(REPLAYED))
    return f"{path} {sorted(decisive.items())}"
