"""What is compared: shedders with their placements and settings, also one from outside the package."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pulsar_rebalancer.config.enums import Placement, Strategy
from pulsar_rebalancer.strategies.fitting import validate
from pulsar_rebalancer.strategies.shedders.registry import STRATEGIES_VARIABLE

if TYPE_CHECKING:
    from pulsar_rebalancer.config.settings import Settings

AUTHORS_MINIMA = {"min_unload_message": 10_000, "min_unload_throughput": 10 << 20}
"""Of the published experiments of AvgShedder; Pulsar's defaults are a tenth of them."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One column of the comparison.

    Attributes:
        name: shown in the report, unique.
        settings: of the cluster.
        direct: whether its cluster places as the extensible load manager does.
    """

    name: str
    settings: Settings
    direct: bool = False


def from_outside(path: str) -> Variant:
    """Return the variant of a shedder by its import path: whoever names it here may load it.

    Raises:
        SettingsError: `wrong_setting`; it cannot be loaded.
    """
    os.environ[STRATEGIES_VARIABLE] = f"{os.environ.get(STRATEGIES_VARIABLE, '')},{path}"
    return Variant(path, _settings(path, **AUTHORS_MINIMA))


def _settings(strategy: str, **values: object) -> Settings:
    return validate({"strategy": strategy, **values}, where="experiments")


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
    Variant(
        "no shedding",
        # No broker is so far above the mean.
        _settings(Strategy.THRESHOLD, placement=Placement.LEAST_RATE, average_threshold=1000),
    ),
)
