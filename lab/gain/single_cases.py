"""Single cases before and after: who is hottest and coldest minute by minute, and how many bundles move."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from lab.experiments import results as files
from lab.experiments.building import build
from lab.experiments.measures import Recorder
from lab.experiments.run import balance
from lab.experiments.scenario import load_all
from lab.families.contestants import AVG, GAIN, contestants
from lab.gain.parts import MESSAGES, without

if TYPE_CHECKING:
    from lab.experiments.scenario import Scenario
    from lab.experiments.variants import Variant

FOLDER = Path(__file__).parent
BURST, NETWORK = "one_burst", "network_bound"
SEEDS = (1, 2, 3, 4, 5)


class CaseRun(NamedTuple):
    """One run of a case.

    Attributes:
        moves: bundles moved.
        range_mean: largest minus least score from the disturbance on, points.
        hottest, coldest: score of the hottest and of the coldest broker in each minute, percent.
        moved: bundles moved after each minute.
    """

    contestant: str
    seed: int
    moves: int
    range_mean: float
    hottest: list[float]
    coldest: list[float]
    moved: list[int]


@dataclass
class _Series(Recorder):
    def series(self) -> tuple[list[float], list[float], list[int]]:
        hottest, coldest = ([round(scores[at], 1) for scores in self._scores] for at in (2, 0))
        return hottest, coldest, [len(self._unloads.get(minute, ())) for minute in range(len(hottest))]


def run_case(case: Scenario, variant: Variant, name: str, seed: int) -> CaseRun:
    """Run a case with a contestant; its name says which part is taken away."""
    recorder = _Series(case.disturbed_at)
    with without(name):
        balance(build(case, seed, direct=variant.direct), variant.settings, case.minutes, recorder)
    measures = recorder.measures()
    return CaseRun(name, seed, measures.bundles_moved, round(measures.range_mean, 3), *recorder.series())


def run_cases(folder: Path, commit: str) -> None:
    """Run all cases and write their results."""
    variants = contestants()
    for name, case in load_all(FOLDER).items():
        compared = (AVG, MESSAGES, GAIN) if name == NETWORK else (AVG, GAIN)
        runs = [run_case(case, variants[AVG if who == AVG else GAIN], who, seed) for who in compared for seed in SEEDS]
        text = files.document({"case": name, "commit": commit}, (run._asdict() for run in runs))
        files.save(folder / f"{name}.json", text)


def read_case(file: Path) -> tuple[str, list[CaseRun]]:
    """Return the commit and the runs of a case."""
    document = files.load(file)
    return document["commit"], [CaseRun(**row) for row in document["runs"]]
