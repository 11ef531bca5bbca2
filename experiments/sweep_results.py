"""The result of a sweep, the verdicts for each value of an assumption, as a small file."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from experiments import result_files

COMMITTED = Path(__file__).parent / "results" / "sweeps"

VERSION = 1


class Outcome(NamedTuple):
    """A verdict, and the figures that it is judged by."""

    verdict: str
    text: str


class Sweep(NamedTuple):
    """The results for each value of an assumption.

    Attributes:
        commit: commit of the sources that produced the results.
        values: labels of the values.
        default: label of the value that the scenarios have.
        outcomes: one for each value, by variant and title of the problem.
        figures: the median for each value, by scenario and variant; None where bundles never settled.
    """

    assumption: str
    commit: str
    seeds: tuple[int, ...]
    values: tuple[str, ...]
    default: str
    outcomes: dict[str, dict[str, tuple[Outcome, ...]]]
    figures: dict[str, dict[str, tuple[float | None, ...]]]

    def usual(self, variant: str, problem: str) -> str:
        """Return the verdict at the default."""
        return self.outcomes[variant][problem][self.values.index(self.default)].verdict

    def flips(self, variant: str, problem: str) -> dict[str, str]:
        """Return the verdict at each value at which it differs from the verdict at the default."""
        outcomes, usual = self.outcomes[variant][problem], self.usual(variant, problem)
        return {
            value: outcome.verdict
            for value, outcome in zip(self.values, outcomes, strict=True)
            if outcome.verdict != usual
        }


def write(folder: Path, sweep: Sweep) -> None:
    """Write the outcome of an assumption."""
    head = {"version": VERSION, **sweep._asdict()}
    del head["outcomes"]
    head["figures"] = {
        name: {variant: [figure and float(f"{figure:.4g}") for figure in row] for variant, row in rows.items()}
        for name, rows in sweep.figures.items()
    }
    rows = (
        {"variant": variant, "problem": problem, "outcomes": outcomes}
        for variant, problems in sweep.outcomes.items()
        for problem, outcomes in problems.items()
    )
    result_files.save(folder / f"{sweep.assumption}.json", result_files.document(head, rows, "rows"))


def read_all(folder: Path) -> dict[str, Sweep]:
    """Return the outcomes in a folder, by assumption.

    Raises:
        ValueError: a file has another version.
    """
    return result_files.load_each(folder, _read)


def _read(file: Path) -> Sweep:
    document = result_files.load(file, VERSION)
    del document["version"]
    outcomes: dict[str, dict[str, tuple[Outcome, ...]]] = {}
    for row in document.pop("rows"):
        of_values = tuple(Outcome(*outcome) for outcome in row["outcomes"])
        outcomes.setdefault(row["variant"], {})[row["problem"]] = of_values
    document |= {name: tuple(document[name]) for name in ("seeds", "values")}
    figures = {
        name: {variant: tuple(row) for variant, row in rows.items()} for name, rows in document.pop("figures").items()
    }
    return Sweep(**document, outcomes=outcomes, figures=figures)
