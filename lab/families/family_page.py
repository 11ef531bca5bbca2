"""Tables and pictures of the committed results of the families."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

from scripts.drawing import FOLDER as PICTURES
from scripts.drawing import PALETTES, ROOT
from scripts.markdown import picture

from lab.experiments.tables import Column, Table, value
from lab.families import family_plot
from lab.families.contestants import AVG
from lab.families.family import load_all
from lab.families.family_results import ratio, read_all

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from lab.families.family_results import FamilyResults

RESULTS = ROOT / "lab" / "families" / "results"
PICTURE = "experiments-families"

MEASURES = {
    "moves_per_day": Column("moves per day", "bundles that the strategy moved"),
    "disturbed_per_day": Column(
        "disturbed load per day, %",
        "throughput of the moved bundles when they moved, in percent of the mean throughput of the cluster",
    ),
    "client_seconds_per_day": Column(
        "client-seconds per day",
        "seconds in which a bundle had no broker, times its clients; includes bundles whose broker stopped",
    ),
    "range_mean": Column("mean range", "largest minus least true score of the brokers, points, mean over the day"),
    "range_p95": Column("p95 of the range", "its 95th percentile"),
    "hottest_p99": Column("p99 of the hottest", "99th percentile of the score of the hottest broker, percent"),
    "minutes_above_80_per_day": Column("minutes above 80 %", "minutes per day in which a broker was above 80 %"),
    "over_unloaded_per_day": Column(
        "over-unloaded per day",
        "bundles moved whose source was 5 points below the mean within the ten minutes after",
    ),
    "settling": Column(
        "settling, min",
        "minutes from the start or stop of a broker until the range was at most 20 points for five minutes in a row, "
        "at most until the next such change; mean over the changes",
    ),
}
"""Each measure that the tables show."""


def blocks() -> dict[str, str]:
    """Return what docs/evidence.md shows of the committed results, by the marks around it."""
    drawn = picture(
        PICTURE, "Bundles moved per day against the mean range: a field for each family, a mark for each strategy."
    )
    return {"families": f"{drawn}\n\n{overall(read_all(RESULTS / 'training')).markdown()}"}


def pictures() -> dict[Path, str]:
    """Return the pictures that are drawn from the committed results."""
    training, titles = read_all(RESULTS / "training"), {name: family.title for name, family in load_all().items()}
    return {
        PICTURES / f"{PICTURE}-{mode}.svg": family_plot.moves_against_range(training, titles, colours)
        for mode, colours in PALETTES.items()
    }


def of_family(results: FamilyResults) -> Table:
    """Return the measures of each contestant: the mean over the seeds, with the least and the largest."""
    measures = [name for name in MEASURES if results.of_seeds(AVG, name)]
    rows = [
        [contestant, *(_spread(results.of_seeds(contestant, name)) for name in measures)] for contestant in results.runs
    ]
    return Table(["", *(MEASURES[name].title for name in measures)], rows)


def overall(results: Mapping[str, FamilyResults]) -> Table:
    """Return means over the families: multiples of AvgShedder, and the p99 of the hottest broker."""
    multiples = {"moves_per_day": 1, "disturbed_per_day": 1, "range_mean": 0}
    rows = []
    for contestant in next(iter(results.values())).runs:
        values = [f"{ratio(results, contestant, name, plus):.2f}x" for name, plus in multiples.items()]
        means = [family.mean(contestant) for family in results.values()]
        rows.append([contestant, *values, value(fmean(mean["hottest_p99"] for mean in means))])
    return Table(["", *(MEASURES[name].title for name in (*multiples, "hottest_p99"))], rows)


def _spread(values: Sequence[float]) -> str:
    least, mean, largest = map(value, (min(values), fmean(values), max(values)))
    return mean if least == largest else f"{mean} ({least} to {largest})"
