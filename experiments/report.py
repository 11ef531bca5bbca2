"""One HTML page with every table and a plot per scenario; it loads nothing."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.figure import Figure

from experiments.problems import PROBLEMS
from experiments.tables import Table, of_problems, of_scenario, seeds
from pulsar_rebalancer.replay.replay_report import svg

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.axes import Axes

    from experiments.results import Results
    from experiments.run import Run
    from experiments.scenario import Scenario

_COLUMNS = 4
_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 78rem; padding: 0 1rem; color: #1b1f24; }
table { border-collapse: collapse; font-size: 13px; } th, td { border: 1px solid #cfd6dd; padding: .25rem .5rem; }
td { text-align: right; } td:first-child { text-align: left; } th { background: #f2f5f7; }
.wide { overflow-x: auto; } .quiet { color: #57606a; } svg { max-width: 100%; height: auto; }
"""


def html(results: Mapping[str, Results], scenarios: Mapping[str, Scenario]) -> str:
    """Return the page."""
    variants = list(dict.fromkeys(name for each in results.values() for name in each.runs))
    rules = "".join(f"<li><b>{escape(problem.title)}</b>: {escape(problem.rule)}</li>" for problem in PROBLEMS)
    parts = [
        "<h1>Shedders in the simulated cluster</h1>",
        "<p>Each figure is the median over the seeds, with the least and the largest; a seed that never settles counts "
        "as the longest. docs/experiments.md says how the "
        "scenarios are set up and what a measure means. A plot shows the first seed: the band from the coldest to the "
        "hottest broker, whose height is the range, their mean, dotted their standard deviation, and at the bottom, in "
        "red, the minutes with unloads.</p>",
        "<p>docs/experiments.md also says where these figures differ from what was published, and why, and whether "
        "min_bundle_share pays: fewer moves at nearly the same range where sizes differ by orders of magnitude, little "
        "or harm elsewhere, so it is off.</p>",
        f"<h2>The five problems</h2>{_table(of_problems(results, variants))}<ul>{rules}</ul>",
    ]
    for name, each in results.items():
        scenario = scenarios[name]
        published = "".join(
            f"<li>{escape(who)}: {escape(what)}</li>" for who, what in sorted(scenario.published.items())
        )
        parts += [
            f"<h2>{escape(scenario.title)}</h2><p>{escape(scenario.about)}</p>",
            f"<p class=quiet>{escape(name)}, {scenario.minutes} minutes, seeds {seeds(each)}, sources "
            f"{escape(each.commit)}</p>",
            _table(of_scenario(each)),
            f"<p>Published:</p><ul>{published}</ul>" if published else "",
            plot(each),
        ]
    head = f"<!doctype html><html lang=en><meta charset=utf-8><title>Experiments</title><style>{_STYLE}</style>"
    return f"{head}<body>{''.join(parts)}</body></html>\n"


def plot(results: Results) -> str:
    """Return the scores over time as an SVG element, a field for each variant: least to largest, mean, unloads."""
    firsts = [runs[0] for runs in results.runs.values()]
    rows = -(-len(firsts) // _COLUMNS)
    with mpl.rc_context({"font.size": 8}):
        figure = Figure(figsize=(13, 2.3 * rows), layout="constrained")
        fields = figure.subplots(rows, _COLUMNS, sharex=True, sharey=True, squeeze=False).ravel().tolist()
        for field, run in zip(fields, firsts, strict=False):
            _draw(field, run)
        for unused in fields[len(firsts) :]:
            unused.set_visible(False)
        figure.supxlabel("minutes")
        figure.supylabel("score, percent")
        return svg(figure, results.scenario)


def _draw(field: Axes, run: Run) -> None:
    curve = run.curve
    field.fill_between(curve.minutes, curve.least, curve.largest, color="#9ec5e8", linewidth=0)
    field.plot(curve.minutes, curve.mean, color="#0b4f8a", linewidth=1)
    field.plot(curve.minutes, curve.deviation, color="#0b4f8a", linewidth=1, linestyle="dotted")
    for minute in curve.unloads[:500]:
        field.axvline(minute, color="#c0392b", linewidth=0.5, ymax=0.08)
    field.set_title(run.variant.partition(" + ")[0], fontsize=8)


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in table.head)
    rows = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in table.rows)
    return f"<div class=wide><table><tr>{head}</tr>{rows}</table></div>"
