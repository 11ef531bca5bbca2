"""Results of a scenario as a file: every variant and seed, and with what they were made."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from experiments.measures import Curve, Measures
from experiments.run import Run

if TYPE_CHECKING:
    from pathlib import Path

VERSION = 3


class Spread(NamedTuple):
    """A measure over the seeds.

    Attributes:
        median: runs that lack it count as larger than all others; None where one of them is in the middle.
        known: of the runs that have it, ascending.
        missing: how many lack it.
    """

    median: float | None
    known: list[float]
    missing: int


class Results(NamedTuple):
    """All runs of one scenario.

    Attributes:
        scenario: its name.
        commit: of the sources that made it.
        seeds: which ones.
        runs: by variant, one for each seed.
    """

    scenario: str
    commit: str
    seeds: tuple[int, ...]
    runs: dict[str, list[Run]]

    def spread(self, variant: str, measure: str) -> Spread:
        """Return a measure of a variant over the seeds."""
        values = [getattr(run.measures, measure) for run in self.runs[variant]]
        known = sorted(value for value in values if value is not None)
        middle = median([*known, *[math.inf] * (len(values) - len(known))])
        lacking = math.isinf(middle) and middle not in known
        return Spread(None if lacking else middle, known, len(values) - len(known))

    def total(self, variant: str, measure: str) -> float:
        """Return the sum of a measure over the seeds."""
        return float(sum(getattr(run.measures, measure) or 0 for run in self.runs[variant]))


def write(folder: Path, results: Results) -> None:
    """Write the results of a scenario, all or nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {
        "version": VERSION,
        "scenario": results.scenario,
        "commit": results.commit,
        "seeds": results.seeds,
        "runs": [
            {
                "variant": run.variant,
                "seed": run.seed,
                "measures": asdict(run.measures),
                # A curve for each variant is enough to look at.
                "curve": run.curve._asdict() if run.seed == results.seeds[0] else None,
            }
            for runs in results.runs.values()
            for run in runs
        ],
    }
    file = folder / f"{results.scenario}.json"
    partial = file.with_suffix(".partial")
    partial.write_text(json.dumps(document), encoding="utf-8")
    partial.replace(file)


def read(file: Path) -> Results:
    """Return the results in a file.

    Raises:
        ValueError: it is of another version.
    """
    document = json.loads(file.read_text(encoding="utf-8"))
    if document["version"] != VERSION:
        raise ValueError(f"{file}: version {document['version']}, this program reads {VERSION}; run it again")
    runs: dict[str, list[Run]] = {}
    for row in document["runs"]:
        curve = Curve(**row["curve"]) if row["curve"] else Curve([], [], [], [], [], [])
        run = Run(document["scenario"], row["variant"], row["seed"], Measures(**row["measures"]), curve)
        runs.setdefault(row["variant"], []).append(run)
    return Results(document["scenario"], document["commit"], tuple(document["seeds"]), runs)
