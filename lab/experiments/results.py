"""Results of a scenario as a small file: measures of every variant and seed, and how the range went over time."""

from __future__ import annotations

import json
import math
from dataclasses import fields
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from lab.experiments.measures import Measures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from lab.experiments.run import Run

VERSION = 4
Kind = TypeVar("Kind")

_DIGITS = 5
"""Significant digits of a measure in a file."""


class Spread(NamedTuple):
    """A measure over the seeds.

    Attributes:
        median: median over all runs, where a run without the measure counts as the largest; None if that run is the
            median.
        known: values of the runs that have the measure, ascending.
        missing: number of runs without the measure.
    """

    median: float | None
    known: list[float]
    missing: int


class Band(NamedTuple):
    """The range of the scores over time, over the seeds: points, one value per step.

    Attributes:
        step: minutes; a value of a run is the mean over them.
        unloading: share of the seeds that unloaded in the step, 0 to 1.
    """

    step: int
    median: list[float]
    least: list[float]
    largest: list[float]
    unloading: list[float]


class Results(NamedTuple):
    """All runs of one scenario.

    Attributes:
        commit: commit of the sources that produced the results, and whether they had uncommitted changes.
        measures: one entry per seed, by variant.
    """

    scenario: str
    commit: str
    seeds: tuple[int, ...]
    measures: dict[str, list[Measures]]
    bands: dict[str, Band]

    def spread(self, variant: str, measure: str) -> Spread:
        """Return a measure of a variant over the seeds."""
        values = [getattr(measures, measure) for measures in self.measures[variant]]
        known = sorted(value for value in values if value is not None)
        middle = median([*known, *[math.inf] * (len(values) - len(known))])
        lacking = math.isinf(middle) and middle not in known
        return Spread(None if lacking else middle, known, len(values) - len(known))

    def total(self, variant: str, measure: str) -> float:
        """Return the sum of a measure over the seeds."""
        return float(sum(getattr(measures, measure) or 0 for measures in self.measures[variant]))


def document(head: Mapping[str, Any], rows: Iterable[Any], name: str = "runs") -> str:
    """Return the text of a file: the fields of the head, then the rows under their name."""
    lines = ",\n".join(map(json.dumps, rows))
    return f'{json.dumps(head)[:-1]}, "{name}": [\n{lines}\n]}}\n'


def save(file: Path, text: str) -> None:
    """Write a file, all or nothing, and the folders that are missing."""
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(file)


def load(file: Path, version: int | None = None) -> dict[str, Any]:
    """Return the content of a file.

    Args:
        version: number that the file must have; None for a format without versions.

    Raises:
        ValueError: the file has another version.
    """
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    if content.get("version") != version:
        raise ValueError(f"{file}: version {content.get('version')}, this program reads {version}; run it again")
    return content


def load_each(folder: Path, read: Callable[[Path], Kind]) -> dict[str, Kind]:
    """Return what each file of a folder holds, by the file's name without its ending."""
    return {file.stem: read(file) for file in sorted(folder.glob("*.json"))}


def gathered(scenario: str, commit: str, runs: Iterable[Run]) -> Results:
    """Return the runs of a scenario as its results."""
    by_variant: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: run.seed):
        by_variant.setdefault(run.variant, []).append(run)
    seeds = tuple(run.seed for run in next(iter(by_variant.values())))
    measures = {variant: [run.measures for run in same] for variant, same in by_variant.items()}
    return Results(scenario, commit, seeds, measures, {variant: _band(same) for variant, same in by_variant.items()})


def write(folder: Path, results: Results) -> None:
    """Write the results of a scenario; variants with the same values share a line."""
    alike: dict[str, list[str]] = {}
    for variant, rows in results.measures.items():
        measures = {field.name: [_short(getattr(row, field.name)) for row in rows] for field in fields(Measures)}
        values = json.dumps({"measures": measures, "band": results.bands[variant]._asdict()})
        alike.setdefault(values, []).append(variant)
    head = {"version": VERSION, "scenario": results.scenario, "commit": results.commit, "seeds": results.seeds}
    runs = ({"variants": variants} | json.loads(values) for values, variants in alike.items())
    text = document(head | {"variants": list(results.measures)}, runs)
    save(folder / f"{results.scenario}.json", text)


def read(file: Path) -> Results:
    """Return the results in a file.

    Raises:
        ValueError: the file has another version.
    """
    document = load(file, VERSION)
    line_of = {variant: line for line in document["runs"] for variant in line["variants"]}
    measures = {variant: _rows(line_of[variant]["measures"]) for variant in document["variants"]}
    bands = {variant: Band(**line_of[variant]["band"]) for variant in document["variants"]}
    return Results(document["scenario"], document["commit"], tuple(document["seeds"]), measures, bands)


def read_all(folder: Path, names: Iterable[str]) -> dict[str, Results]:
    """Return the results in a folder, by scenario; other names are left out."""
    files = {name: folder / f"{name}.json" for name in names}
    return {name: read(file) for name, file in files.items() if file.exists()}


def _band(runs: Sequence[Run]) -> Band:
    step = runs[0].curve.step
    ranges = np.array([run.curve.ranges for run in runs])
    minutes = np.arange(ranges.shape[1])
    unloading = np.mean([np.isin(minutes, np.array(run.curve.unloads) // step) for run in runs], axis=0)
    middle, least, largest = (over(ranges, axis=0).round(1).tolist() for over in (np.median, np.min, np.max))
    return Band(step, middle, least, largest, unloading.round(2).tolist())


def _short(value: float | None) -> float | str | None:
    if value is None or isinstance(value, int):
        return value
    # JSON has no infinity.
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else "inf"


def _rows(columns: dict[str, list[Any]]) -> list[Measures]:
    known = ([math.inf if value == "inf" else value for value in column] for column in columns.values())
    return [Measures(**dict(zip(columns, row, strict=True))) for row in zip(*known, strict=True)]
