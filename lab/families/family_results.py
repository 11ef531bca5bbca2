"""Results of families as files: every contestant and seed. Figures are rounded, so that machines agree on them."""

from __future__ import annotations

import hashlib
import json
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple, Self

from lab.experiments import result_files

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

DIGITS = 3

Figures = dict[str, float | None]
"""The measures of a run by name, see `sustained.Sustained`."""


class FamilyResults(NamedTuple):
    """All runs of one family.

    Attributes:
        commit: commit of the sources that produced the results.
        runs: one run per seed, by contestant.
    """

    family: str
    commit: str
    seeds: tuple[int, ...]
    runs: dict[str, list[Figures]]

    def only(self, variants: Collection[str]) -> FamilyResults:
        """Return the results of some contestants."""
        return self._replace(runs={name: runs for name, runs in self.runs.items() if name in variants})

    def of_seeds(self, variant: str, measure: str) -> list[float]:
        """Return a measure of each seed that has it."""
        return [figure for run in self.runs[variant] if (figure := run[measure]) is not None]

    def mean(self, variant: str) -> dict[str, float]:
        """Return the mean of each measure over the seeds that have it."""
        kept = {measure: self.of_seeds(variant, measure) for measure in self.runs[variant][0]}
        return {measure: fmean(figures) for measure, figures in kept.items() if figures}


class Seal(NamedTuple):
    """The hash of a family's results, which nobody should see yet.

    Attributes:
        commit: commit of the sources that produced the results.
        sha256: hash of the results without the commit.
    """

    commit: str
    seeds: tuple[int, ...]
    sha256: str

    @classmethod
    def of(cls, results: FamilyResults) -> Self:
        """Return the seal of some results."""
        text = _text(results._replace(commit=""))
        return cls(results.commit, results.seeds, hashlib.sha256(text.encode()).hexdigest())

    @classmethod
    def read(cls, file: Path) -> Self:
        """Return the seal in a file."""
        document = result_files.load(file)
        return cls(document["commit"], tuple(document["seeds"]), document["sha256"])

    def write(self, file: Path) -> None:
        """Write the seal."""
        result_files.save(file, json.dumps(self._asdict()) + "\n")


def rounded(figures: Mapping[str, float | None]) -> Figures:
    """Return the figures as they are stored."""
    return {name: None if figure is None else round(figure, DIGITS) for name, figure in figures.items()}


def write(folder: Path, results: FamilyResults) -> None:
    """Write a family's results."""
    result_files.save(folder / f"{results.family}.json", _text(results))


def read_all(folder: Path) -> dict[str, FamilyResults]:
    """Return the results of a folder by family."""
    return result_files.load_each(folder, _read)


def _read(file: Path) -> FamilyResults:
    document = result_files.load(file)
    seeds = tuple(dict.fromkeys(row["seed"] for row in document["runs"]))
    runs: dict[str, list[Figures]] = {}
    for row in document["runs"]:
        figures = {name: value for name, value in row.items() if name not in ("contestant", "seed")}
        runs.setdefault(row["contestant"], []).append(figures)
    return FamilyResults(file.stem, document["commit"], seeds, runs)


def _text(results: FamilyResults) -> str:
    rows = (
        {"contestant": name, "seed": seed, **run}
        for name, of_seeds in results.runs.items()
        for seed, run in zip(results.seeds, of_seeds, strict=True)
    )
    return result_files.document({"family": results.family, "commit": results.commit}, rows)
