"""The profile of a shedder: what other code asks for instead of comparing names."""

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
    """One run of a strategy over one cluster."""

    def __call__(self, sample: ClusterSample, kept: ShedderState) -> SheddingResult:
        """Decide one run.

        Args:
            kept: what the strategy kept from the last counted run.
        """


class Threshold(NamedTuple):
    """The gap from which a pair counts a hit, in points of score, and the hits in a row at which it fires."""

    gap: float
    hits: int


class Line(BaseModel):
    """A band that the page draws across the brokers, from one score to another; a line if they are equal."""

    model_config = ConfigDict(frozen=True)

    name: str
    lower: float
    upper: float


def around(mean: float | None, thresholds: Mapping[str, Threshold]) -> tuple[Line, ...]:
    """Return the ranges around the mean in which no pair reaches a threshold, which is a gap between two brokers."""
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
    """No settings other than those of `config.settings.Settings`."""

    model_config = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class Profile:
    """A shedder.

    Attributes:
        shed: one run of it.
        thresholds: of its pairs, `low` and, where there is one, `high`; empty if it does not pair brokers by score. The
            hits are those of a pair's brokers. The page and the metrics show the thresholds, a forced run may name the
            gap (`ClusterSample.force_threshold`), and brokers without persistent topics are left out.
        judges_pairs: whether it judges repeated samples and policies itself, pair by pair, and names destinations: the
            pipeline only caps its moves.
        cluster_hits: number of hits of the whole cluster from which it sheds; None when it does not count these.
        figure: of a broker; a change makes the sample a new one, so that one sample gives one hit.
        resources: those that it looks at (`run.tables.RESOURCES`).
        placement: names the destinations that it leaves open, unless the settings name another placement.
        own_settings: model of `Settings.strategy_settings`.
        check: raises ValueError when settings contradict each other.
        run_params: parameters of a manual run that other shedders may not know (`config.resolution.RunParams`).
        lines: lines across the brokers of the page, given their mean score; None when none was judged.
        sentence: the page's sentence when nothing has to move.
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
