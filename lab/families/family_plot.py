"""The picture of families as SVG, for a light or a dark page: moves per day against the mean range."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from lab.experiments.plots import explain, fields_in_rows, page_style, svg
from lab.families.contestants import GAIN, NOTHING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from scripts.drawing import Palette

    from lab.families.family_results import FamilyResults

_COLUMNS = 5
_SHAPES = "o^vsDPph"


def moves_against_range(results: Mapping[str, FamilyResults], titles: Mapping[str, str], colours: Palette) -> str:
    """Return moves per day against the mean range: a field for each family, a mark for each contestant.

    A mark is the mean over the seeds; its lines go from the least to the largest.
    """
    marks = _marks([*next(iter(results.values())).runs], colours)
    rows = -(-len(results) // _COLUMNS)
    with mpl.rc_context(page_style(colours)):
        figure, grid = fields_in_rows(rows, _COLUMNS, (190, 175), top=92, gaps=(0.22, 0.36))
        fields = grid.ravel().tolist()
        largest = max(max(family.of_seeds(name, "moves_per_day")) for family in results.values() for name in marks)
        for (name, family), field in zip(results.items(), fields, strict=False):
            for contestant, mark in marks.items():
                _draw(field, family, contestant, mark)
            field.set_title(titles[name], loc="left", fontweight="bold", pad=5)
            field.set_ylim(bottom=0)
            _powers_of_ten(field, largest)
        for unused in fields[len(results) :]:
            unused.set_visible(False)
        handles = [Line2D([], [], linestyle="none", label=name, **mark) for name, mark in marks.items()]
        explain(figure, handles, "bundles moved per day", "mean range of the scores, points", columns=4)
        return svg(figure)


def _marks(names: Sequence[str], colours: Palette) -> dict[str, dict[str, Any]]:
    """Return the marks: AvgShedder and GainShedder filled, the others as outlines."""
    marks: dict[str, dict[str, Any]] = {}
    for number, name in enumerate(names):
        avg = name.startswith("AvgShedder")
        colour, marker = colours.accent if avg else colours.good, _SHAPES[number % len(_SHAPES)]
        if name == NOTHING:
            colour, marker = colours.text, "_"
        if name == GAIN:
            marker = "*"
        filled = avg or name == GAIN
        marks[name] = {
            "color": colour,
            "marker": marker,
            "markersize": 6,
            "markerfacecolor": colour if filled else "none",
        }
    return marks


def _draw(field: Axes, family: FamilyResults, contestant: str, mark: dict[str, Any]) -> None:
    moves, ranges = (family.of_seeds(contestant, measure) for measure in ("moves_per_day", "range_mean"))
    x, y = sum(moves) / len(moves), sum(ranges) / len(ranges)
    field.plot([min(moves), max(moves)], [y, y], color=mark["color"], linewidth=0.6)
    field.plot([x, x], [min(ranges), max(ranges)], color=mark["color"], linewidth=0.6)
    field.plot([x], [y], linestyle="none", clip_on=False, zorder=3, **mark)


def _powers_of_ten(field: Axes, largest: float) -> None:
    field.set_xscale("symlog", linthresh=1)
    ticks = [0.0, 1.0]
    while ticks[-1] < largest:
        ticks.append(10 * ticks[-1])
    field.set_xlim(-0.3, 1.3 * largest)
    field.xaxis.set_major_locator(FixedLocator(ticks))
    field.xaxis.set_minor_locator(NullLocator())
    field.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
