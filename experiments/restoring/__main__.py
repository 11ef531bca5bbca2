"""Print how AvgShedder settles after brokers return, with and without `restore_placement`: the table of the docs.

python -m experiments.restoring
"""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from experiments.building import build
from experiments.measures import Recorder
from experiments.restoring.restoring_balancer import RestoringBalancer
from experiments.run import balance
from experiments.scenario import load_all
from experiments.variants import AUTHORS_MINIMA
from pulsar_rebalancer.config.enums import Strategy
from pulsar_rebalancer.strategies.fitting import validate

if TYPE_CHECKING:
    from collections.abc import Iterable

    from experiments.measures import Measures
    from experiments.scenario import Scenario

SEEDS = (1, 2, 3, 4, 5)
CASES = load_all(Path(__file__).parent)


class Outcome(NamedTuple):
    """Medians over the seeds: minutes until it settles, bundles moved, range on average and at the end, points."""

    settled: float
    moved: float
    mean: float
    end: float


def measured(case: Scenario, seed: int, *, restore: bool) -> Measures:
    """Run a case, and return its measures."""
    settings = {"strategy": Strategy.AVG, "restore_placement": restore, **AUTHORS_MINIMA}
    recorder = Recorder(case.disturbed_at)
    balance(
        build(case, seed, direct=False), validate(settings, where=case.name), case.minutes, recorder, RestoringBalancer
    )
    return recorder.measures()


def outcome(case: Scenario, *, restore: bool, seeds: Iterable[int] = SEEDS) -> Outcome:
    """Return the medians of a case. A seed that never settles counts as the longest."""
    runs = [measured(case, seed, restore=restore) for seed in seeds]
    return Outcome(
        median(case.minutes if run.settled_after is None else run.settled_after for run in runs),
        *(median(getattr(run, name) for run in runs) for name in ("bundles_moved", "range_mean", "range_end")),
    )


def rows() -> list[str]:
    """Return the rows of the table."""
    return [
        f"| {case.title} | {'with' if restore else 'without'} | {found.settled:g} | {found.moved:g} | "
        f"{found.mean:.1f} | {found.end:.1f} |"
        for case in CASES.values()
        for restore in (False, True)
        for found in (outcome(case, restore=restore),)
    ]


if __name__ == "__main__":
    print("\n".join(rows()))
