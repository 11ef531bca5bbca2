"""What docs/gain-shedder.md shows of the proof, drawn from the committed results."""

from __future__ import annotations

from statistics import fmean, median
from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from scripts.drawing import FOLDER as PICTURES
from scripts.drawing import PALETTES, ROOT
from scripts.markdown import between, picture

from lab.experiments.page import COMMITTED
from lab.experiments.plots import explain, fields_in_rows, page_style, svg
from lab.experiments.results import read
from lab.experiments.scenario import load
from lab.experiments.tables import Table, seeds
from lab.families import family_page, family_plot
from lab.families.contestants import AVG, GAIN
from lab.families.family import load_all
from lab.families.family_results import ratio, read_all
from lab.gain.goals import CLEARLY, loses_clearly, verdicts
from lab.gain.parts import PARTS, RANDOM, SHUFFLED
from lab.gain.single_cases import BURST, FOLDER, NETWORK, CaseRun, read_case
from pulsar_rebalancer.strategies.shedders.gain_shedder import GainSettings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from scripts.drawing import Palette

    from lab.experiments.results import Results
    from lab.families.family_results import FamilyResults

RESULTS = ROOT / "lab" / "gain" / "results"
DOCUMENT = ROOT / "docs" / "gain-shedder.md"
SHOWN_SEED = 2
"""Of the burst in the picture."""

_FIRST, _LAST = 70, 130
"""Minutes of the burst that are shown."""

_MEASURES = {"moves_per_day": 1, "range_mean": 0, "disturbed_per_day": 1}


def written() -> dict[Path, str]:
    """Return the document and its pictures, with their texts."""
    held_out, training = (read_all(family_page.RESULTS / kind) for kind in ("held-out", "training"))
    parts, prices = (read_all(RESULTS / what) for what in ("parts", "prices"))
    (burst_commit, burst), (network_commit, network) = (
        read_case(RESULTS / "cases" / f"{name}.json") for name in (BURST, NETWORK)
    )
    text = DOCUMENT.read_text(encoding="utf-8")
    for marks, content in (
        ("goals", _goals(held_out)),
        ("prices", _prices(prices, training)),
        ("parts", _parts(parts)),
        ("burst", _burst(burst, burst_commit)),
        ("network", _of_case(network, network_commit)),
        ("hundred", _at_the_end(read(COMMITTED / "hundred_hot_hundred_new.json"))),
    ):
        text = between(marks, content, text)
    titles = {name: family.title.removeprefix("Held out: ") for name, family in load_all().items()}
    shown = [run for run in burst if run.seed == SHOWN_SEED]
    spike = load(FOLDER / f"{BURST}.toml").traffic_spikes[0]
    of_burst = spike.minute, spike.minute + spike.minutes
    pictures = {}
    for mode, colours in PALETTES.items():
        pictures[f"experiments-gain-{mode}.svg"] = family_plot.moves_against_range(held_out, titles, colours)
        pictures[f"experiments-burst-{mode}.svg"] = _drawn_burst(shown, of_burst, colours)
    return {DOCUMENT: text} | {PICTURES / name: svg for name, svg in pictures.items()}


def _goals(held_out: Mapping[str, FamilyResults]) -> str:
    others = [name for name in next(iter(held_out.values())).runs if name.startswith(AVG)]
    families = [*held_out]
    paragraphs = [
        picture(
            "experiments-gain",
            "Bundles moved per day against the mean range in the held-out families, a mark for each strategy.",
        )
    ]
    for other in others:
        rows = [
            [
                verdict.goal,
                *(verdict.figures[name] for name in families),
                f"missed in {len(verdict.missed)} of {len(families)}" if verdict.missed else "reached",
            ]
            for verdict in verdicts(held_out, other)
        ]
        name = "AvgShedder with the author's minima" if other == AVG else other
        paragraphs += [f"Compared with {name}:", Table(["goal", *families, ""], rows).markdown()]
    return "\n\n".join([*paragraphs, _origin(held_out)])


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
        is_default = float(value) == GainSettings().min_gain
        shown = f"**{value}**" if is_default else value
        rows.append([shown, moves, ranges, f"{largest:.2f} x", disturbed, _hotter(compared, name, AVG)])
    ranges_of = "mean range", "mean range, worst family"
    head = ["`min_gain`", "moves", *ranges_of, "disturbed load", "p99 of the hottest, points"]
    families = ", ".join(f"`{name}`" for name in results)
    return f"{Table(head, rows).markdown()}\n\nFamilies {families}. {_origin(results)}"


def _parts(results: Mapping[str, FamilyResults]) -> str:
    rows = [[part, *_multiples(results, part, GAIN), _hotter(results, part, GAIN)] for part in (GAIN, *PARTS)]
    table = Table(["", "moves", "mean range", "disturbed load", "p99 of the hottest, points"], rows).markdown()
    by_family = Table(
        ["moves, range", *results],
        [
            [
                part,
                *(
                    f"{family.mean(part)['moves_per_day']:.0f}, {family.mean(part)['range_mean']:.1f}"
                    for family in results.values()
                ),
            ]
            for part in (GAIN, *PARTS)
        ],
    ).markdown()
    outcome = {True: "loses clearly", False: "does not lose clearly"}
    controls = "\n".join(
        f"* **{control.removeprefix('control: ')}** {outcome[loses_clearly(results, control)]}."
        for control in (RANDOM, SHUFFLED)
    )
    rule = (
        "A control loses clearly if it has neither fewer moves nor a smaller range, and at least "
        f"{CLEARLY:g} times one of them."
    )
    return "\n\n".join([table, by_family, rule, controls, _origin(results)])


def _burst(runs: Sequence[CaseRun], commit: str) -> str:
    drawn = picture(
        "experiments-burst",
        "Scores of the hottest and the coldest broker during one burst, with AvgShedder and with GainShedder.",
    )
    return "\n\n".join([drawn, f"Seed {SHOWN_SEED} of `{BURST}`. All seeds:", _of_case(runs, commit)])


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


def _of_case(runs: Sequence[CaseRun], commit: str) -> str:
    rows = []
    for contestant in dict.fromkeys(run.contestant for run in runs):
        own = [run for run in runs if run.contestant == contestant]
        rows.append(
            [contestant, f"{fmean(run.moves for run in own):.1f}", f"{fmean(run.range_mean for run in own):.1f}"]
        )
    drawn = ", ".join(str(seed) for seed in dict.fromkeys(run.seed for run in runs))
    return f"{Table(['', 'moves', 'mean range'], rows).markdown()}\n\nMeans of seeds {drawn}, of commit `{commit}`."


def _at_the_end(results: Results) -> str:
    rows = [
        [name, *(_quantiles(results.spread(name, measure).known) for measure in ("bundles_moved", "range_end"))]
        for name in (AVG, GAIN)
    ]
    table = Table(["", "moves", "range of the last ten minutes"], rows).markdown()
    return f"{table}\n\nMedian, least and largest of seeds {seeds(results)}, of commit `{results.commit}`."


def _multiples(results: Mapping[str, FamilyResults], name: str, to: str) -> list[str]:
    return [f"{ratio(results, name, measure, plus, to=to):.2f} x" for measure, plus in _MEASURES.items()]


def _hotter(results: Mapping[str, FamilyResults], name: str, than: str) -> str:
    points = [of.mean(name)["hottest_p99"] - of.mean(than)["hottest_p99"] for of in results.values()]
    return f"{fmean(points):+.1f}"


def _quantiles(figures: Sequence[float]) -> str:
    return f"{median(figures):.1f} ({min(figures):.1f} to {max(figures):.1f})"


def _origin(results: Mapping[str, FamilyResults]) -> str:
    commits = " and ".join(f"`{commit}`" for commit in sorted({family.commit for family in results.values()}))
    drawn = sorted({seed for family in results.values() for seed in family.seeds})
    return f"{f'Seeds {drawn[0]} to {drawn[-1]}' if drawn[1:] else f'Seed {drawn[0]}'}, of commit {commits}."
