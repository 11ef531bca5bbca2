"""A shedder's profile: properties that other code uses instead of comparing shedder names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pydantic import BaseModel, ConfigDict

from pulsar_rebalancer.config.enums import Placement
from pulsar_rebalancer.strategies.scoring import SCORED, score

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pulsar_rebalancer.config.settings import Settings
    from pulsar_rebalancer.run.plan import Summary
    from pulsar_rebalancer.run.tables import BrokerSample
    from pulsar_rebalancer.strategies.kept import ShedderState
    from pulsar_rebalancer.strategies.sample import ClusterSample, SheddingResult


class Shedder(Protocol):
    """A function that makes a strategy's decisions for one run of one cluster."""

    def __call__(self, sample: ClusterSample, kept: ShedderState) -> SheddingResult:
        """Make the shedding decisions for one run.

        Args:
            kept: the strategy's state after the last counted run.
        """


class Threshold(NamedTuple):
    """The smallest score gap that counts as a hit, in points, and the number of consecutive hits needed to fire."""

    gap: float
    hits: int


class Line(BaseModel):
    """A band that the page draws across the brokers' bars, between two scores.

    If both scores are equal, the band is a line.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    lower: float
    upper: float


def around(mean: float | None, thresholds: Mapping[str, Threshold]) -> tuple[Line, ...]:
    """Return a range around the mean for each threshold. Scores inside the range differ by less than the threshold."""
    if mean is None:
        return ()
    return tuple(
        Line(name=f"{kind} threshold", lower=round(max(0.0, mean - gap / 2), 2), upper=round(mean + gap / 2, 2))
        for kind, (gap, _) in thresholds.items()
    )


def within(summary: Summary) -> str:
    """Return a phrase that describes the difference between the brokers' scores."""
    return f"{summary.brokers} brokers are within {summary.score_range:.1f} points"


class NoSettings(BaseModel):
    """The model for a shedder that has no settings other than those in `config.settings.Settings`."""

    model_config = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class Profile:
    """A shedder's profile.

    Attributes:
        shed: function that makes the shedding decisions for one run.
        thresholds: thresholds for pairs: `low` and, if the shedder has one, `high`; empty if the shedder does not pair
            brokers by score. Hits are counted for both brokers of a pair. If there are thresholds, the page and the
            metrics show them, a forced run may set the gap (`ClusterSample.force_threshold`), and brokers without
            persistent topics are left out.
        judges_pairs: True if the shedder itself handles repeated samples and policies for each pair, and chooses the
            destinations. The pipeline then only applies caps to its moves.
        swaps: True if a bundle that goes back in exchange for another one is not held by the grace period, as in
            Pulsar's TransferShedder.
        learns: True if the shedder needs the results of `strategies.learning`.
        cluster_hits: number of hits for the whole cluster at which the shedder sheds; None if it counts no such hits.
        figure: function that returns a broker's figure. A sample with an unchanged figure is treated as a repeat and
            causes no further hit.
        resources: names of the resources that the shedder considers (`run.tables.RESOURCES`).
        placement: default placement, for shedders that do not choose destinations.
        own_settings: model for `Settings.strategy_settings`.
        check: function that raises ValueError if settings contradict each other.
        run_params: optional parameters of a manual run that this shedder accepts (`config.resolution.RunParams`).
        lines: function that returns the lines that the page draws across the brokers, from the settings and the mean
            score (None if no brokers were compared).
        sentence: function that returns the sentence that the page shows if nothing has to be moved.
        grid: values that a replay compares by default, by setting.
    """

    shed: Shedder
    thresholds: Callable[[Settings], Mapping[str, Threshold]] = lambda settings: {}
    judges_pairs: bool = False
    swaps: bool = False
    learns: bool = False
    cluster_hits: Callable[[Settings], int | None] = lambda settings: None
    figure: Callable[[BrokerSample, Settings], float] = score
    resources: tuple[str, ...] = SCORED
    placement: Placement = Placement.LEAST_USAGE
    own_settings: type[BaseModel] = NoSettings
    check: Callable[[Settings], None] = lambda settings: None
    run_params: tuple[str, ...] = ()
    lines: Callable[[Settings, float | None], tuple[Line, ...]] = lambda settings, mean: ()
    sentence: Callable[[Summary], str] = lambda summary: summary.sentence or within(summary)
    grid: dict[str, object] = field(default_factory=dict)
