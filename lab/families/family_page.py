"""docs/families.md, its pictures and its reference page, drawn from the committed results."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

from scripts.drawing import FOLDER as PICTURES
from scripts.drawing import PALETTES, ROOT
from scripts.markdown import between, picture

from lab.experiments.tables import Column, Table, figure, of_measures
from lab.families import family_plot
from lab.families.contestants import AVG
from lab.families.family import load_all
from lab.families.family_results import ratio, read_all

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from lab.families.family import Family
    from lab.families.family_results import FamilyResults

RESULTS = ROOT / "lab" / "families" / "results"
DOCUMENT = ROOT / "docs" / "families.md"
REFERENCE = ROOT / "docs" / "reference" / "families.md"
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


def written() -> dict[Path, str]:
    """Return every document and picture of the families, with its text."""
    families, training, held_out = load_all(), read_all(RESULTS / "training"), read_all(RESULTS / "held-out")
    text = DOCUMENT.read_text(encoding="utf-8")
    for marks, content in (
        ("results", _results(training)),
        ("families", _families(families, training)),
    ):
        text = between(marks, content, text)
    titles = {name: family.title for name, family in families.items()}
    return {
        DOCUMENT: text,
        REFERENCE: "\n\n".join(_reference({**training, **held_out}, families)) + "\n",
        **{
            PICTURES / f"{PICTURE}-{mode}.svg": family_plot.moves_against_range(training, titles, colours)
            for mode, colours in PALETTES.items()
        },
    }


def _results(training: Mapping[str, FamilyResults]) -> str:
    commits = " and ".join(f"`{commit}`" for commit in sorted({family.commit for family in training.values()}))
    seeds = sorted({seed for family in training.values() for seed in family.seeds})
    return "\n\n".join(
        [
            picture(
                PICTURE,
                "Bundles moved per day against the mean range, a field for each training family, a mark for each "
                "strategy; docs/reference/families.md has the figures.",
            ),
            "Means over the training families. Moves, disturbed load and range are multiples of AvgShedder's with "
            "the author's minima, moves and disturbed load after adding 1; the rest are means as they are.",
            overall(training).markdown(),
            f"Drawn from `lab/families/results`, seeds {', '.join(map(str, seeds))}, of commit {commits}. "
            "[Every family and measure](reference/families.md).",
        ]
    )


def _families(families: Mapping[str, Family], training: Mapping[str, FamilyResults]) -> str:
    lines = [
        f"* **{family.title}** (`{name}`{'' if name in training else ', held out' * (family.kind == 'held-out')}): "
        f"{family.about}"
        for name, family in families.items()
    ]
    return "\n".join(lines)


def _reference(results: Mapping[str, FamilyResults], families: Mapping[str, Family]) -> list[str]:
    parts = [
        "# Figures of the families",
        "Written by `make experiments DRAW=1` from `lab/families/results`; [families.md](../families.md) "
        "says how they are made. Each figure is the mean over the seeds, with the smallest and the largest.",
        of_measures(MEASURES).markdown(),
        "## Moves per day and mean range by family",
        by_family(results, families).markdown(),
    ]
    for name, family in results.items():
        seeds = ", ".join(map(str, family.seeds))
        parts += [
            f"## {families[name].title}",
            f"`{name}`, seeds {seeds}, commit `{family.commit}`. {families[name].about}",
            of_family(family).markdown(),
        ]
    return parts


def of_family(results: FamilyResults) -> Table:
    """Return the measures of each contestant: the mean over the seeds, with the least and the largest."""
    measures = [name for name in MEASURES if results.of_seeds(AVG, name)]
    rows = [
        [contestant, *(_spread(results.of_seeds(contestant, name)) for name in measures)] for contestant in results.runs
    ]
    return Table(["", *(MEASURES[name].title for name in measures)], rows)


def by_family(results: Mapping[str, FamilyResults], families: Mapping[str, Family]) -> Table:
    """Return moves per day and mean range of each contestant, a row for each family."""
    contestants = [*next(iter(results.values())).runs]
    rows = [
        [
            families[name].title,
            *(
                "\n".join(_spread(family.of_seeds(contestant, measure)) for measure in ("moves_per_day", "range_mean"))
                for contestant in contestants
            ),
        ]
        for name, family in results.items()
    ]
    return Table(["", *contestants], rows)


def overall(results: Mapping[str, FamilyResults]) -> Table:
    """Return means over the families: moves, disturbed load and range in multiples of AvgShedder, the rest as it is."""
    contestants = [*next(iter(results.values())).runs]
    multiples = {"moves_per_day": 1, "disturbed_per_day": 1, "range_mean": 0}
    known = {name for means in _means(results, AVG) for name in means}
    rest = [name for name in MEASURES if name in known - multiples.keys()]
    rows = []
    for contestant in contestants:
        figures = [f"{ratio(results, contestant, name, plus):.2f} x" for name, plus in multiples.items()]
        for name in rest:
            figures.append(figure(fmean(means[name] for means in _means(results, contestant) if name in means)))
        rows.append([contestant, *figures])
    return Table(["", *(MEASURES[name].title for name in (*multiples, *rest))], rows)


def _means(results: Mapping[str, FamilyResults], contestant: str) -> list[dict[str, float]]:
    return [family.mean(contestant) for family in results.values()]


def _spread(figures: Sequence[float]) -> str:
    least, mean, largest = map(figure, (min(figures), fmean(figures), max(figures)))
    return mean if least == largest else f"{mean} ({least} to {largest})"
