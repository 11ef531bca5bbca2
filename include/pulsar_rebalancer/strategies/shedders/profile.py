"""The profile of a shedder: what other code needs to know of it, instead of comparing its name."""

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
        """Decide.

        Args:
            kept: what the strategy kept from the last counted run.
        """


class Threshold(NamedTuple):
    """The gap from which a pair counts a hit, points of score, and the hits in a row that it fires with."""

    gap: float
    hits: int


class Line(BaseModel):
    """A level that is drawn across the brokers of the page, from one score to another (the same for a line)."""

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
    """Return how close the scores of the brokers are."""
    return f"{summary.brokers} brokers are within {summary.score_range:.1f} points"


class NoSettings(BaseModel):
    """No settings other than those of `config.settings.Settings`."""

    model_config = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class Profile:
    """A shedder.

    Attributes:
        shed: one run of it.
        thresholds: of its pairs, `low` and, where there is one, `high`; hits are those of a pair's brokers. They say
            that it pairs brokers by score: the page and the metrics show them, a forced run may name the gap
            (`ClusterSample.force_threshold`), and brokers without persistent topics are left out. Empty: it does not.
        judges_pairs: whether it judges repeated samples and policies itself, pair by pair, and names destinations: the
            pipeline only caps its moves.
        cluster_hits: from how many hits of the whole cluster it sheds; None when it does not count these.
        figure: of a broker, which makes a sample a new one, so that one sample is one hit.
        resources: that it looks at (`run.tables.RESOURCES`).
        placement: names a destination where it does not, unless the settings name another one.
        own_settings: model of `Settings.strategy_settings`.
        check: raises ValueError when settings contradict each other.
        run_params: parameters of a manual run that others do not know (`config.resolution.RunParams`).
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
