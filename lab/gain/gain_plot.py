"""The picture of one burst under two strategies as SVG, for a light or a dark page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from lab.experiments.plots import explain, fields_in_rows, page_style, svg

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scripts.drawing import Palette

    from lab.gain.single_cases import CaseRun

FIRST, LAST = 70, 130
"""Minutes that are shown."""


def one_burst(runs: Sequence[CaseRun], burst: tuple[int, int], colours: Palette) -> str:
    """Return the hottest and the coldest broker over time, a field for each run; bars are bundles that move.

    Args:
        burst: first minute of the burst, and the first one after it.
    """
    with mpl.rc_context(page_style(colours)):
        figure, (fields,) = fields_in_rows(1, len(runs), (400, 198), top=60, gaps=(0.08, 0), sharey="row")
        minutes = range(FIRST, LAST)
        for run, field in zip(runs, fields, strict=True):
            field.axvspan(*burst, color=colours.box, zorder=0)
            field.fill_between(
                minutes, run.coldest[FIRST:LAST], run.hottest[FIRST:LAST], color=colours.accent, alpha=0.3, linewidth=0
            )
            moved = [(minute, run.moved[minute]) for minute in minutes if run.moved[minute]]
            field.bar([at for at, _ in moved], [count for _, count in moved], color=colours.hot, width=0.8)
            total = sum(run.moved[FIRST:LAST])
            field.set_title(f"{run.contestant}: {total} bundles moved", loc="left", fontweight="bold", pad=5)
            field.set_xlim(FIRST, LAST - 1)
            field.set_ylim(0, 100)
        marks = [
            Patch(color=colours.accent, alpha=0.3, linewidth=0, label="from the coldest to the hottest broker"),
            Patch(color=colours.hot, linewidth=0, label="bundles that move"),
            Patch(color=colours.box, linewidth=0, label="burst"),
        ]
        explain(figure, [*marks, Line2D([], [], linestyle="none")], "minutes", "score, percent", columns=4)
        return svg(figure)
