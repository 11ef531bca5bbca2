"""The strategies to compare: today's, AvgShedder with the best settings of a grid, and two controls."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

from lab.experiments.variants import AUTHORS_MINIMA, Variant, from_outside
from pulsar_rebalancer.config.enums import Placement, Strategy
from pulsar_rebalancer.strategies.fitting import validate

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

AVG = "AvgShedder"
GAIN = "GainShedder"
NOTHING = "no shedding"
RANDOM = "control: random bundles"
SHUFFLED = "control: shuffled means"

THRESHOLDS = ((10, 25), (15, 40), (20, 40), (30, 50))
"""Low and high, points; the second pair is Pulsar's default."""

HITS = ((4, 1), (8, 2), (16, 4))
"""Needed for a low and for a high gap; the second pair is Pulsar's default."""

SHARES = (0.0, 0.05)
"""Of `min_bundle_share`."""

DEFAULTS = "15/40 points, 8/2 hits, share 0"
"""Of Pulsar, in the grid."""


def grid() -> Iterator[Variant]:
    """Return AvgShedder with every combination of the grid's settings; one of them is Pulsar's default."""
    for (low, high), (hits_low, hits_high), share in product(THRESHOLDS, HITS, SHARES):
        settings: dict[str, float] = {"low_threshold": low, "high_threshold": high, "hit_count_low": hits_low}
        settings |= {"hit_count_high": hits_high, "min_bundle_share": share}
        yield avg(f"{low}/{high} points, {hits_low}/{hits_high} hits, share {share:g}", settings)


def avg(name: str, settings: Mapping[str, Any]) -> Variant:
    """Return AvgShedder with some settings and the author's minima."""
    return _variant(name, Strategy.AVG, {**AUTHORS_MINIMA, **settings})


def contestants(best: Mapping[str, Variant]) -> tuple[Variant, ...]:
    """Return all contestants.

    Args:
        best: the best settings of the grid, by criterion (`choosing.best`).
    """
    return (
        avg(AVG, {}),
        *(replace(variant, name=f"AvgShedder, {what} of the grid") for what, variant in best.items()),
        _variant("ThresholdShedder", Strategy.THRESHOLD, {"placement": Placement.LEAST_USAGE}),
        _variant("UniformLoadShedder", Strategy.UNIFORM, AUTHORS_MINIMA),
        _variant("OverloadShedder", Strategy.OVERLOAD, {}),
        _variant("TransferShedder", Strategy.TRANSFER, {}, direct=True),
        # No broker is so far above the mean; what lost its broker is placed as AvgShedder places it.
        _variant(NOTHING, Strategy.THRESHOLD, {"placement": Placement.AVG, "average_threshold": 1000}),
        replace(from_outside("lab.families.random_bundles:shed"), name=RANDOM),
        replace(from_outside("lab.families.shuffled_means:shed"), name=SHUFFLED),
    )


def joined_later() -> tuple[Variant, ...]:
    """Return contestants that did not exist when the held-out results were sealed: the hashes do not cover them."""
    return (_variant(GAIN, Strategy.GAIN, AUTHORS_MINIMA),)


def priced(min_gain: float) -> Variant:
    """Return GainShedder with another price."""
    settings = {**AUTHORS_MINIMA, "strategy_settings": {"min_gain": min_gain}}
    return _variant(f"min_gain {min_gain:g}", Strategy.GAIN, settings)


def _variant(name: str, strategy: str, settings: Mapping[str, Any], *, direct: bool = False) -> Variant:
    return Variant(name, validate({"strategy": strategy, **settings}, where="families"), direct)
