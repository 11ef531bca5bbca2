"""What is compared: shedders with their placements and settings, also one from outside the package."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pulsar_rebalancer.config.enums import Placement, Strategy
from pulsar_rebalancer.config.settings import Settings, validate
from pulsar_rebalancer.replay.variants import imported
from pulsar_rebalancer.strategies.sample import SheddingResult

if TYPE_CHECKING:
    from pulsar_rebalancer.strategies.kept import ShedderState
    from pulsar_rebalancer.strategies.sample import ClusterSample
    from pulsar_rebalancer.strategies.shedders.registry import Shedder

AUTHORS_MINIMA = {"min_unload_message": 10_000, "min_unload_throughput": 10 << 20}
"""Of the published experiments of AvgShedder; Pulsar's defaults are a tenth of them."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One column of the comparison.

    Attributes:
        name: shown in the report, unique.
        settings: of the cluster.
        direct: whether its cluster places as the extensible load manager does.
        path: import path of a shedder from outside, `package.module:function`; it takes the place of the settings'
            strategy.
    """

    name: str
    settings: Settings
    direct: bool = False
    path: str = ""

    def shedder(self) -> Shedder | None:
        """Return the shedder from outside; None when the settings name it.

        Raises:
            ValueError: the path leads to nothing that can be called.
        """
        return imported(self.path) if self.path else None


def from_outside(path: str) -> Variant:
    """Return the variant of a shedder by its import path; placement is LeastResourceUsageWithWeight where it is asked.

    Raises:
        ValueError: as `Variant.shedder`.
    """
    settings = _settings(Strategy.THRESHOLD, placement=Placement.LEAST_USAGE, **AUTHORS_MINIMA)
    variant = Variant(path, settings, path=path)
    variant.shedder()
    return variant


def nothing(sample: ClusterSample, kept: ShedderState) -> SheddingResult:
    """Shed nothing: what the others are compared with."""
    return SheddingResult([], [], kept, "nothing is shed")


def _settings(strategy: Strategy, **values: object) -> Settings:
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
        _settings(Strategy.THRESHOLD, placement=Placement.LEAST_RATE),
        path="experiments.variants:nothing",
    ),
)
