"""The strategies to compare: today's, and AvgShedder with two further settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lab.experiments.variants import AUTHORS_MINIMA, Variant
from pulsar_rebalancer.config.field_types import Placement, Strategy
from pulsar_rebalancer.strategies.shedders.registry import validate

if TYPE_CHECKING:
    from collections.abc import Mapping

AVG = "AvgShedder"
GAIN = "GainShedder"
NOTHING = "no shedding"

_OFTEN = {"hit_count_low": 16, "hit_count_high": 4, "min_bundle_share": 0.05}
BEST = {
    "fewest moves": {"low_threshold": 15, "high_threshold": 40, **_OFTEN},
    "smallest range": {"low_threshold": 10, "high_threshold": 25, **_OFTEN},
}
"""The best of a grid of 24 settings, with a p99 of the hottest broker at most 0.5 points above Pulsar's defaults."""


def contestants(kind: str = "training") -> dict[str, Variant]:
    """Return the contestants in a kind of families by name, in the order of the tables.

    Sealed families judge GainShedder only against AvgShedder and no shedding.
    """
    variants = (
        avg(AVG, {}),
        *(avg(f"AvgShedder, {what} of the grid", settings) for what, settings in BEST.items()),
        _variant("ThresholdShedder", Strategy.THRESHOLD, {"placement": Placement.LEAST_USAGE}),
        _variant("UniformLoadShedder", Strategy.UNIFORM, AUTHORS_MINIMA),
        _variant("OverloadShedder", Strategy.OVERLOAD, {}),
        _variant("TransferShedder", Strategy.TRANSFER, {}, direct=True),
        # No broker is so far above the mean; what lost its broker is placed as AvgShedder places it.
        _variant(NOTHING, Strategy.THRESHOLD, {"placement": Placement.AVG, "average_threshold": 1000}),
        _variant(GAIN, Strategy.GAIN, AUTHORS_MINIMA),
    )
    kept = (AVG, NOTHING, GAIN) if kind == "sealed" else ("",)
    return {variant.name: variant for variant in variants if variant.name.startswith(kept)}


def avg(name: str, settings: Mapping[str, Any]) -> Variant:
    """Return AvgShedder with some settings and the author's minima."""
    return _variant(name, Strategy.AVG, {**AUTHORS_MINIMA, **settings})


def priced(min_gain: float) -> Variant:
    """Return GainShedder with another price."""
    settings = {**AUTHORS_MINIMA, "strategy_settings": {"min_gain": min_gain}}
    return _variant(f"min_gain {min_gain:g}", Strategy.GAIN, settings)


def _variant(name: str, strategy: str, settings: Mapping[str, Any], *, direct: bool = False) -> Variant:
    return Variant(name, validate({"strategy": strategy, **settings}, label="families"), direct)
