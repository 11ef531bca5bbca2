"""Tables and pictures of the committed proof for GainShedder."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from scripts.drawing import FOLDER as PICTURES
from scripts.drawing import PALETTES, ROOT
from scripts.markdown import picture

from lab.experiments.plots import explain, fields_in_rows, page_style, svg
from lab.experiments.scenario import load
from lab.experiments.tables import Table
from lab.families import family_page, family_plot
from lab.families.contestants import AVG, GAIN
from lab.families.family import load_all
from lab.families.family_results import ratio, read_all
from lab.gain.goals import verdicts
from lab.gain.parts import PARTS
from lab.gain.single_cases import BURST, FOLDER, NETWORK, CaseRun, read_case
from pulsar_rebalancer.strategies.shedders.gain_shedder import GainSettings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from scripts.drawing import Palette

    from lab.families.family_results import FamilyResults

RESULTS = ROOT / "lab" / "gain" / "results"
SHOWN_SEED = 2
"""Of the burst in the picture."""

_FIRST, _LAST = 70, 130
"""Minutes of the burst that are shown."""

_MEASURES = {"moves_per_day": 1, "range_mean": 0, "disturbed_per_day": 1}


def blocks() -> dict[str, str]:
    """Return what docs/evidence.md shows of the proof, by the marks around it."""
    training, sealed = (read_all(family_page.RESULTS / kind) for kind in ("training", "sealed"))
    parts, prices = (read_all(RESULTS / what) for what in ("parts", "prices"))
    return {"goals": _goals(sealed), "prices": _prices(prices, training), "parts": _parts(parts), "cases": _cases()}


def pictures() -> dict[Path, str]:
    """Return the pictures that are drawn from the committed results."""
    sealed = read_all(family_page.RESULTS / "sealed")
    titles = {name: family.title.removeprefix("Sealed: ") for name, family in load_all().items()}
    shown = [run for run in _read_case(BURST) if run.seed == SHOWN_SEED]
    spike = load(FOLDER / f"{BURST}.toml").traffic_spikes[0]
    drawn = {}
    for mode, colours in PALETTES.items():
        drawn[f"experiments-gain-{mode}.svg"] = family_plot.moves_against_range(sealed, titles, colours)
        drawn[f"experiments-burst-{mode}.svg"] = _drawn_burst(
            shown, (spike.minute, spike.minute + spike.minutes), colours
        )
    return {PICTURES / name: text for name, text in drawn.items()}


def _read_case(name: str) -> list[CaseRun]:
    return read_case(RESULTS / "cases" / f"{name}.json")[1]


def _goals(sealed: Mapping[str, FamilyResults]) -> str:
    drawn = picture(
        "experiments-gain",
        "Bundles moved per day against the mean range in the sealed families.",
    )
    others = [name for name in next(iter(sealed.values())).runs if name.startswith(AVG)]
    found = {other: verdicts(sealed, other) for other in others}
    rows = []
    for other, judged in found.items():
        cells = []
        for verdict in judged:
            figures = sorted(verdict.values.values(), key=lambda text: float(text.removesuffix("x")))
            missed = f"missed in {len(verdict.missed)} of {len(figures)}" if verdict.missed else "reached"
            cells.append(f"{missed}\n{figures[0]} to {figures[-1]}")
        rows.append([other, *cells])
    return f"{drawn}\n\n{Table(['compared with', *(verdict.goal for verdict in found[AVG])], rows).markdown()}"


def _prices(results: Mapping[str, FamilyResults], training: Mapping[str, FamilyResults]) -> str:
    """Return the table of other values of `min_gain`, in multiples of AvgShedder with the same seeds."""
    compared = {
        name: family._replace(runs={AVG: training[name].runs[AVG][: len(family.seeds)], **family.runs})
        for name, family in results.items()
    }
    rows = []
    for name in next(iter(results.values())).runs:
        largest = max(ratio({of: family}, name, "range_mean") for of, family in compared.items())
        moves, ranges, disturbed = _multiples(compared, name, AVG)
        value = name.removeprefix("min_gain ")
        shown = f"**{value}**" if float(value) == GainSettings().min_gain else value
        rows.append([shown, moves, ranges, f"{largest:.2f}x", disturbed])
    ranges_of = "mean range", "mean range, worst family"
    return Table(["`min_gain`", "moves", *ranges_of, "disturbed load"], rows).markdown()


def _parts(results: Mapping[str, FamilyResults]) -> str:
    rows = [[part, *_multiples(results, part, GAIN), _hotter(results, part, GAIN)] for part in PARTS]
    return Table(["", "moves", "mean range", "disturbed load", "p99 of the hottest"], rows).markdown()


def _cases() -> str:
    drawn = picture(
        "experiments-burst",
        "Scores of the hottest and the coldest broker during a burst, with both strategies.",
    )
    rows = []
    for title, case in (("burst", BURST), ("network", NETWORK)):
        runs = _read_case(case)
        for contestant in dict.fromkeys(run.contestant for run in runs):
            own = [run for run in runs if run.contestant == contestant]
            means = fmean(run.moves for run in own), fmean(run.range_mean for run in own)
            rows.append([title, contestant, *(f"{mean:.1f}" for mean in means)])
    return f"{drawn}\n\n{Table(['case', '', 'moves', 'mean range'], rows).markdown()}"


def _drawn_burst(runs: Sequence[CaseRun], burst: tuple[int, int], colours: Palette) -> str:
    """Return the hottest and the coldest broker over time, a field for each run; bars are bundles that move.

    Args:
        burst: first minute of the burst, and the first one after it.
    """
    with mpl.rc_context(page_style(colours)):
        figure, (fields,) = fields_in_rows(1, len(runs), (400, 198), top=60, gaps=(0.08, 0), sharey="row")
        minutes, shown = range(_FIRST, _LAST), slice(_FIRST, _LAST)
        for run, field in zip(runs, fields, strict=True):
            field.axvspan(*burst, color=colours.box, zorder=0)
            field.fill_between(
                minutes,
                run.coldest[shown],
                run.hottest[shown],
                color=colours.accent,
                alpha=0.3,
                linewidth=0,
            )
            moved = [(minute, run.moved[minute]) for minute in minutes if run.moved[minute]]
            field.bar([at for at, _ in moved], [count for _, count in moved], color=colours.hot, width=0.8)
            total = sum(run.moved[shown])
            field.set_title(f"{run.contestant}: {total} bundles moved", loc="left", fontweight="bold", pad=5)
            field.set_xlim(_FIRST, _LAST - 1)
            field.set_ylim(0, 100)
        marks = [
            Patch(color=colours.accent, alpha=0.3, linewidth=0, label="from the coldest to the hottest broker"),
            Patch(color=colours.hot, linewidth=0, label="bundles that move"),
            Patch(color=colours.box, linewidth=0, label="burst"),
        ]
        explain(figure, [*marks, Line2D([], [], linestyle="none")], "minutes", "score, percent", columns=4)
        return svg(figure)


def _multiples(results: Mapping[str, FamilyResults], name: str, to: str) -> list[str]:
    return [f"{ratio(results, name, measure, plus, to=to):.2f}x" for measure, plus in _MEASURES.items()]


def _hotter(results: Mapping[str, FamilyResults], name: str, than: str) -> str:
    points = [of.mean(name)["hottest_p99"] - of.mean(than)["hottest_p99"] for of in results.values()]
    return f"{fmean(points):+.1f}"
