"""The picture of the results as SVG, for a light or a dark page: the range over time."""

from __future__ import annotations

import io
import math
import re
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from lab.experiments.tables import short
from lab.experiments.variants import baseline_of
from pulsar_rebalancer.texts import number_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from scripts.drawing import Palette

    from lab.experiments.results import Band, Results
    from lab.experiments.scenario import Scenario

_POINT = 0.75
"""Length of a pixel of the picture in points: 96 pixels are an inch of 72 points."""

_UNLOADING = 0.2
"""Height of the bars at the bottom of a field when all seeds unload, as a share of the field."""


def range_over_time(
    results: Sequence[Results], variants: Sequence[str], scenarios: Mapping[str, Scenario], colours: Palette
) -> str:
    """Return the range over time, median and band over the seeds: a row for each scenario, a column for each variant.

    Each field also has the range with the same placement and no shedding, and which share of the seeds unloads.
    """
    with mpl.rc_context(page_style(colours)):
        figure, fields = fields_in_rows(
            len(results), len(variants), (147, 118), top=82, gaps=(0.08, 0.5), sharex="row", sharey="row"
        )
        for of_scenario, in_row in zip(results, fields, strict=True):
            for variant, field in zip(variants, in_row, strict=True):
                _draw_band(field, of_scenario, variant, colours)
            in_row[0].set_ylim(bottom=0)
            _name(in_row[0], scenarios, of_scenario, results)
        for variant, field in zip(variants, fields[0], strict=True):
            field.annotate(short(variant), (0.5, 1), (0, 24), "axes fraction", "offset points", ha="center")
        explain(figure, _explained(colours), "minutes", "range of the scores, points", columns=4)
        return svg(figure)


def _name(field: Axes, scenarios: Mapping[str, Scenario], drawn: Results, others: Sequence[Results]) -> None:
    """Name a field by its scenario, with the number of its seeds where another field has more."""
    title, seeds = scenarios[drawn.scenario].title.partition(":")[0], len(drawn.seeds)
    if seeds < max(len(other.seeds) for other in others):
        title += f" ({number_of(seeds, 'seed')})"
    field.set_title(title, loc="left", fontweight="bold", pad=5)


def explain(figure: Figure, marks: Sequence[Artist], across: str, up: str, columns: int) -> None:
    """Add a legend above all fields, and name their axes."""
    width, height = figure.get_size_inches() * 96
    figure.legend(handles=marks, loc="upper left", bbox_to_anchor=(44 / width, 1), ncols=columns)
    figure.supxlabel(across, y=6 / height, va="bottom", fontsize="medium")
    figure.supylabel(up, x=4 / width, ha="left", fontsize="medium")


def _draw_band(field: Axes, results: Results, variant: str, colours: Palette) -> None:
    band, without = results.bands[variant], results.bands[baseline_of(variant)]
    minutes = _minutes(band)
    field.plot(minutes, without.median, color=colours.dim, linestyle="dashed")
    field.fill_between(minutes, band.least, band.largest, color=colours.accent, alpha=0.3, linewidth=0)
    field.plot(minutes, band.median, color=colours.accent, linewidth=1.4)
    # One line with a gap after each bar: a path for each bar would make a large file.
    bars = [(at, share * _UNLOADING) for at, share in zip(minutes, band.unloading, strict=True) if share]
    field.plot(
        [x for at, _ in bars for x in (at, at, math.nan)],
        [y for _, height in bars for y in (0, height, math.nan)],
        color=colours.hot,
        transform=field.get_xaxis_transform(),
    )
    field.set_xlim(0, minutes[-1])


def _explained(colours: Palette) -> list[Line2D | Patch]:
    return [
        Line2D([], [], color=colours.accent, linewidth=1.4, label="median of the seeds"),
        Patch(color=colours.accent, alpha=0.3, linewidth=0, label="least to largest"),
        Line2D([], [], color=colours.dim, linestyle="dashed", label="same placement, no shedding"),
        Patch(color=colours.hot, linewidth=0, label="share of the seeds that unload"),
    ]


def _minutes(band: Band) -> list[int]:
    return [band.step * number for number in range(len(band.median))]


def fields_in_rows(
    rows: int, columns: int, size: tuple[int, int], *, top: int, gaps: tuple[float, float], **shared: str
) -> tuple[Figure, Any]:
    """Return a figure and its fields, one array for each row.

    Args:
        size: width and height of a field with the gap after it, pixels.
        top: height of the legend above all fields, pixels.
        gaps: between columns and between rows, as a share of a field.
        shared: axes that fields share (`sharex`, `sharey`).
    """
    left, right, bottom = 52, 12, 42
    width, height = left + right + size[0] * columns, top + bottom + size[1] * rows
    figure = Figure(figsize=(width / 96, height / 96))
    spaces = {"left": left / width, "right": 1 - right / width, "wspace": gaps[0]}
    spaces |= {"top": 1 - top / height, "bottom": bottom / height, "hspace": gaps[1]}
    return figure, figure.subplots(rows, columns, squeeze=False, gridspec_kw=spaces, **shared)  # type: ignore[call-overload]


def page_style(colours: Palette) -> dict[str, Any]:
    """Return the settings of matplotlib for a picture on a light or a dark page."""
    return {
        "font.size": 11 * _POINT,
        "axes.titlesize": "medium",
        "axes.facecolor": colours.page,
        "axes.edgecolor": colours.line,
        "axes.labelcolor": colours.text,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.color": colours.box,
        "figure.facecolor": colours.page,
        "legend.frameon": False,
        "legend.borderaxespad": 0.3,
        "legend.handletextpad": 0.5,
        "legend.columnspacing": 1.4,
        "lines.linewidth": 1,
        "text.color": colours.text,
        "text.parse_math": False,
        "xtick.color": colours.line,
        "xtick.labelcolor": colours.dim,
        "ytick.color": colours.line,
        "ytick.labelcolor": colours.dim,
        "svg.fonttype": "none",
        # The same figures give the same file.
        "svg.hashsalt": "experiments",
    }


def svg(figure: Figure) -> str:
    """Return a figure as SVG, the same for the same figures."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = re.sub(r"<metadata>.*?</metadata>", "", buffer.getvalue(), flags=re.DOTALL)
    # A tenth of a point is enough, and does not depend on how a machine rounds.
    return re.sub(r"\d+\.\d{3,}", lambda number: f"{float(number[0]):.1f}", text)
