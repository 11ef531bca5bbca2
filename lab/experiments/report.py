"""One HTML page with every table and a picture per scenario; it loads nothing."""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING

from scripts.drawing import PALETTES

from lab.experiments.plots import range_over_time
from lab.experiments.problems import PROBLEMS
from lab.experiments.tables import Table, alike, of_measures, of_problems, of_scenario, seeds
from lab.experiments.variants import BASELINE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lab.experiments.results import Results
    from lab.experiments.scenario import Scenario

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 78rem; padding: 0 1rem; color: #1b1f24; }
table { border-collapse: collapse; font-size: 13px; } th, td { border: 1px solid #cfd6dd; padding: .25rem .5rem; }
td { text-align: right; } td:first-child { text-align: left; } th { background: #f2f5f7; }
.wide { overflow-x: auto; } .quiet { color: #57606a; } svg { max-width: 100%; height: auto; }
"""


def html(results: Mapping[str, Results], scenarios: Mapping[str, Scenario]) -> str:
    """Return the page."""
    rules = "".join(f"<li><b>{escape(problem.title)}</b>: {escape(problem.rule)}</li>" for problem in PROBLEMS)
    parts = [
        "<h1>Shedders in the simulated cluster</h1>",
        "<p>Each figure is the median over the seeds, with the least and the largest; a seed that never settles counts "
        "as the longest. Variants with the same figures share a row and a field. docs/experiments.md says how the "
        "scenarios are set up.</p>",
        f"<h2>The five problems</h2>{_table(of_problems(results))}<ul>{rules}</ul>",
        f"<h2>Measures</h2>{_table(of_measures())}",
    ]
    for name, of_name in results.items():
        scenario = scenarios[name]
        published = "".join(
            f"<li>{escape(who)}: {escape(what)}</li>" for who, what in sorted(scenario.published.items())
        )
        parts += [
            f"<h2>{escape(scenario.title)}</h2><p>{escape(scenario.about)}</p>",
            f"<p class=quiet>{escape(name)}, {scenario.minutes} minutes, seeds {seeds(of_name)}, sources "
            f"{escape(of_name.commit)}</p>",
            _table(of_scenario(of_name)),
            f"<p>Published:</p><ul>{published}</ul>" if published else "",
            plot(of_name, scenarios),
        ]
    head = f"<!doctype html><html lang=en><meta charset=utf-8><title>Experiments</title><style>{_STYLE}</style>"
    return f"{head}<body>{''.join(parts)}</body></html>\n"


def plot(results: Results, scenarios: Mapping[str, Scenario]) -> str:
    """Return the range over time as an SVG element, a field for each variant that differs."""
    variants = [same[0] for same in alike({name: str(band) for name, band in results.bands.items()})]
    document = range_over_time(
        [results], [name for name in variants if not name.startswith(BASELINE)], scenarios, PALETTES["light"]
    )
    # Inside HTML it needs no namespaces.
    return re.sub(r' xmlns(:\w+)?="[^"]*"', "", document[document.index("<svg") :])


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in table.head)
    rows = "".join("<tr>" + "".join(f"<td>{_cell(cell)}</td>" for cell in row) + "</tr>" for row in table.rows)
    return f"<div class=wide><table><tr>{head}</tr>{rows}</table></div>"


def _cell(text: str) -> str:
    return escape(text).replace("\n", "<br>")
