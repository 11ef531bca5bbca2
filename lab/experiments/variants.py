"""The variants to compare: shedders, including custom ones, with their placements and settings.

For each placement there is a variant that sheds nothing, which shows the effect of the placement itself.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pulsar_rebalancer.config.field_types import Placement, Strategy
from pulsar_rebalancer.strategies.shedders.registry import STRATEGIES_VARIABLE, placement_of, validate

if TYPE_CHECKING:
    from pulsar_rebalancer.config.settings import Settings

BASELINE = "no shedding"
"""Names of the variants without shedding begin with this."""

AUTHORS_MINIMA = {"min_unload_message": 10_000, "min_unload_throughput": 10 << 20}
"""Of the published experiments of AvgShedder; Pulsar's defaults are a tenth of them."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One column of the comparison.

    Attributes:
        name: shown in the report, unique.
        direct: True if its cluster places bundles like the extensible load manager.
    """

    name: str
    settings: Settings
    direct: bool = False

    @property
    def baseline(self) -> str:
        """Return the name of the variant that places bundles in the same way and sheds nothing."""
        return _baseline(placement_of(self.settings), self.direct)


def baseline_of(name: str) -> str:
    """Return the variant without shedding that a variant is compared with.

    A custom shedder is compared with the placement of one that names none.
    """
    known = {variant.name: variant.baseline for variant in VARIANTS}
    return known.get(name, _baseline(Placement.LEAST_USAGE))


def from_outside(path: str) -> Variant:
    """Return the variant of a shedder by its import path: anyone who names it here may load it.

    Raises:
        SettingsError: `wrong_setting`; it cannot be loaded.
    """
    os.environ[STRATEGIES_VARIABLE] = f"{os.environ.get(STRATEGIES_VARIABLE, '')},{path}"
    return Variant(path, _settings(path, **AUTHORS_MINIMA))


def _settings(strategy: str, **values: object) -> Settings:
    return validate({"strategy": strategy, **values}, label="experiments")


def _baseline(placement: Placement, direct: bool = False) -> str:
    return f"{BASELINE}, {placement.value}{', extensible' if direct else ''}"


def _without_shedding(placement: Placement, *, direct: bool = False) -> Variant:
    """Return a variant whose thresholds no broker reaches."""
    if placement is Placement.AVG:  # which goes with its own shedder only
        settings = _settings(Strategy.AVG, low_threshold=1000, high_threshold=1000)
    else:
        settings = _settings(Strategy.THRESHOLD, placement=placement, average_threshold=1000)
    return Variant(_baseline(placement, direct), settings, direct)


VARIANTS = (
    Variant("AvgShedder", _settings(Strategy.AVG, **AUTHORS_MINIMA)),
    Variant("AvgShedder, default minima", _settings(Strategy.AVG)),
    Variant("AvgShedder, bundles of 5 % and more", _settings(Strategy.AVG, min_bundle_share=0.05, **AUTHORS_MINIMA)),
    Variant(
        "ThresholdShedder + LeastResourceUsageWithWeight",
        _settings(Strategy.THRESHOLD, placement=Placement.LEAST_USAGE),
    ),
    Variant("UniformLoadShedder + LeastLongTermMessageRate", _settings(Strategy.UNIFORM, **AUTHORS_MINIMA)),
    Variant("UniformLoadShedder, default minima", _settings(Strategy.UNIFORM)),
    Variant("OverloadShedder + LeastLongTermMessageRate", _settings(Strategy.OVERLOAD)),
    Variant("TransferShedder", _settings(Strategy.TRANSFER), direct=True),
    Variant("GainShedder", _settings(Strategy.GAIN)),
    _without_shedding(Placement.AVG),
    _without_shedding(Placement.LEAST_RATE),
    _without_shedding(Placement.LEAST_USAGE),
    _without_shedding(Placement.LEAST_USAGE, direct=True),
)
