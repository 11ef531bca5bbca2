"""The results of families as rows of text."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

from lab.experiments.tables import Column, Table, figure
from lab.families.choosing import best, loses, ratio, tried
from lab.families.contestants import AVG, RANDOM, SHUFFLED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lab.families.family import Family
    from lab.families.family_results import FamilyResults

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


def of_controls(results: Mapping[str, FamilyResults]) -> str:
    """Return in a sentence for each control whether it loses, and by what."""
    sentences = []
    for control in (RANDOM, SHUFFLED):
        figures = [
            f"{ratio(results, control, measure, plus):.2f} x {what}"
            for measure, plus, what in (
                ("moves_per_day", 1, "the moves"),
                ("disturbed_per_day", 1, "the disturbed load"),
                ("range_mean", 0, "the mean range"),
            )
        ]
        outcome = "loses" if loses(results, control) else "does not lose"
        sentences.append(f"* **{control.removeprefix('control: ')}** {outcome}: {', '.join(figures)} of AvgShedder.")
    return "\n".join(sentences)


def of_grid(results: Mapping[str, FamilyResults]) -> Table:
    """Return the grid: each setting in multiples of Pulsar's defaults, and what the rule chose."""
    chosen = {variant.name: what for what, variant in best(results).items()}
    rows = [
        [
            settings.variant.name,
            f"{settings.moves:.2f} x",
            f"{settings.range:.3f} x",
            f"{settings.hotter:+.1f}",
            chosen.get(settings.variant.name, ""),
        ]
        for settings in tried(results)
    ]
    return Table(["settings", "moves per day", "mean range", "p99 of the hottest, points", "chosen for"], rows)


def _means(results: Mapping[str, FamilyResults], contestant: str) -> list[dict[str, float]]:
    return [family.mean(contestant) for family in results.values()]


def _spread(figures: Sequence[float]) -> str:
    least, mean, largest = map(figure, (min(figures), fmean(figures), max(figures)))
    return mean if least == largest else f"{mean} ({least} to {largest})"
