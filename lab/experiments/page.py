"""Tables and pictures of the committed results of the experiments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scripts.drawing import FOLDER, PALETTES, ROOT
from scripts.markdown import picture

from lab.experiments.plots import range_over_time
from lab.experiments.problems import PROBLEMS
from lab.experiments.results import read_all
from lab.experiments.scenario import load_all
from lab.experiments.tables import of_measures, of_problems, of_scenario, seeds

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from lab.experiments.results import Results
    from lab.experiments.scenario import Scenario

COMMITTED = ROOT / "lab" / "experiments" / "results"
DRAWN = ("lab/experiments/results", "lab/families/results", "lab/gain/results", "docs")
"""Folders that may differ from the commit that results name."""

SHOWN = (
    "AvgShedder",
    "ThresholdShedder + LeastResourceUsageWithWeight",
    "UniformLoadShedder + LeastLongTermMessageRate",
    "OverloadShedder + LeastLongTermMessageRate",
    "TransferShedder",
)
"""Variants in the picture: one for each shedder."""

OVER_TIME = ("jitter", "one_broker_added", "hundred_hot_hundred_new")
PICTURE = "experiments-range"


def blocks() -> dict[str, str]:
    """Return what docs/evidence.md shows of the committed results, by the marks around it."""
    drawn = picture(
        PICTURE,
        "Range of the brokers' scores over time in three scenarios, with each shedder and without shedding.",
    )
    results = read_all(COMMITTED, load_all())
    rules = "\n".join(f"* **{problem.title}**: {problem.rule}" for problem in PROBLEMS)
    return {"problems": "\n\n".join([drawn, of_problems(results, (*SHOWN, "GainShedder")).markdown(), rules])}


def pictures() -> dict[Path, str]:
    """Return the pictures that are drawn from the committed results."""
    scenarios = load_all()
    shown = list(read_all(COMMITTED, OVER_TIME).values())
    return {
        FOLDER / f"{PICTURE}-{mode}.svg": range_over_time(shown, SHOWN, scenarios, colours)
        for mode, colours in PALETTES.items()
    }


def report(results: Mapping[str, Results], scenarios: Mapping[str, Scenario]) -> str:
    """Return the tables of any results, as Markdown."""
    parts = [
        of_problems(results).markdown(),
        "Each value is the median over the seeds, with the smallest and the largest. A seed whose bundles never "
        "settled counts as the longest; if that is half of the seeds or more, the median is *never*. Variants with "
        "the same values share a row.",
        of_measures().markdown(),
    ]
    for name, scenario_results in results.items():
        scenario = scenarios[name]
        parts += [
            f"## {scenario.title}",
            f"`{name}`, seeds {seeds(scenario_results)}, commit `{scenario_results.commit}`. {scenario.about}",
            of_scenario(scenario_results).markdown(),
        ]
        if scenario.published:
            parts.append("Published: " + "; ".join(f"{who}: {what}" for who, what in scenario.published.items()) + ".")
    return "\n\n".join(parts) + "\n"
