"""A shedder's profile, which other code uses instead of comparing shedders' names."""

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
    """A function that decides one run of a strategy over one cluster."""

    def __call__(self, sample: ClusterSample, kept: ShedderState) -> SheddingResult:
        """Decide one run.

        Args:
            kept: the strategy's state after the last counted run.
        """


class Threshold(NamedTuple):
    """The score gap, in points, from which a pair counts a hit, and the hits in a row at which the pair fires."""

    gap: float
    hits: int


class Line(BaseModel):
    """A band that the page draws across the brokers, from one score to another; a line if both scores are equal."""

    model_config = ConfigDict(frozen=True)

    name: str
    lower: float
    upper: float


def around(mean: float | None, thresholds: Mapping[str, Threshold]) -> tuple[Line, ...]:
    """Return a range around the mean for each threshold. Two brokers in the range have a gap below the threshold."""
    if mean is None:
        return ()
    return tuple(
        Line(name=f"{kind} threshold", lower=round(max(0.0, mean - gap / 2), 2), upper=round(mean + gap / 2, 2))
        for kind, (gap, _) in thresholds.items()
    )


def within(summary: Summary) -> str:
    """Return in words how close the scores of the brokers are."""
    return f"{summary.brokers} brokers are within {summary.score_range:.1f} points"


class NoSettings(BaseModel):
    """No settings except the settings in `config.settings.Settings`."""

    model_config = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class Profile:
    """The profile of a shedder.

    Attributes:
        shed: function that decides one run.
        thresholds: thresholds for pairs, `low` and, if the shedder has one, `high`; empty if the shedder does not pair
            brokers by score. Hits belong to a pair's brokers. If there are thresholds, the page and the metrics show
            them, a forced run may name the gap (`ClusterSample.force_threshold`), and brokers without persistent topics
            are left out.
        judges_pairs: True if the shedder itself judges repeated samples and policies, pair by pair, and names
            destinations. The pipeline then only applies caps to its moves.
        cluster_hits: number of hits for the whole cluster from which the shedder sheds; None if it counts no such hits.
        figure: the broker's figure that makes a sample new when it changes, so that one sample gives only one hit.
        resources: names of the resources that the shedder looks at (`run.tables.RESOURCES`).
        placement: the placement that names destinations if the shedder does not and the settings name no placement.
        own_settings: model for `Settings.strategy_settings`.
        check: raises ValueError if settings contradict each other.
        run_params: parameters of a manual run that other shedders may not know (`config.resolution.RunParams`).
        lines: returns the lines that the page draws across the brokers, given the brokers' mean score, or None if no
            broker was judged.
        sentence: the page's sentence if nothing has to move.
        grid: values of settings that a replay compares by default.
    """

    shed: Shedder
    thresholds: Callable[[Settings], Mapping[str, Threshold]] = lambda settings: {}
    judges_pairs: bool = False
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
