"""Results of families as files: every contestant and seed. Values are rounded, so that machines agree on them."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from lab.experiments import results as files
from lab.families.contestants import AVG

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Values = dict[str, float | None]
"""The measures of a run by name, see `family_run.Sustained`."""


class FamilyResults(NamedTuple):
    """All runs of one family.

    Attributes:
        commit: commit of the sources that produced the results.
        runs: one run per seed, by contestant.
    """

    family: str
    commit: str
    seeds: tuple[int, ...]
    runs: dict[str, list[Values]]

    def of_seeds(self, variant: str, measure: str) -> list[float]:
        """Return a measure of each seed that has it."""
        return [value for run in self.runs[variant] if (value := run[measure]) is not None]

    def mean(self, variant: str) -> dict[str, float]:
        """Return the mean of each measure over the seeds that have it."""
        kept = {measure: self.of_seeds(variant, measure) for measure in self.runs[variant][0]}
        return {measure: fmean(values) for measure, values in kept.items() if values}


def ratio(results: Mapping[str, FamilyResults], variant: str, measure: str, plus: float = 0, to: str = AVG) -> float:
    """Return the mean over the families of a measure in multiples of another's, after adding `plus` to both."""
    compared = [(family.mean(variant)[measure], family.mean(to)[measure]) for family in results.values()]
    return fmean((own + plus) / (other + plus) for own, other in compared)


def write(folder: Path, results: FamilyResults) -> None:
    """Write a family's results."""
    rows = (
        {"contestant": name, "seed": seed, **run}
        for name, of_seeds in results.runs.items()
        for seed, run in zip(results.seeds, of_seeds, strict=True)
    )
    text = files.document({"family": results.family, "commit": results.commit}, rows)
    files.save(folder / f"{results.family}.json", text)


def read_all(folder: Path) -> dict[str, FamilyResults]:
    """Return the results of a folder by family."""
    return files.load_each(folder, _read)


def _read(file: Path) -> FamilyResults:
    document = files.load(file)
    seeds = tuple(dict.fromkeys(row["seed"] for row in document["runs"]))
    runs: dict[str, list[Values]] = {}
    for row in document["runs"]:
        values = {name: value for name, value in row.items() if name not in ("contestant", "seed")}
        runs.setdefault(row["contestant"], []).append(values)
    return FamilyResults(file.stem, document["commit"], seeds, runs)
