"""The documents and pictures that are drawn from the committed results."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from scripts.drawing import FOLDER, PALETTES, ROOT
from scripts.markdown import between, picture

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
DOCUMENT = ROOT / "docs" / "experiments.md"
REFERENCE = ROOT / "docs" / "reference" / "experiments.md"
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


def written() -> dict[Path, str]:
    """Return every document and picture that is drawn from the committed results, with its text."""
    scenarios = load_all()
    results = read_all(COMMITTED, scenarios)
    text = between("results", "\n\n".join(_first_screen(results, scenarios)), DOCUMENT.read_text(encoding="utf-8"))
    return {
        DOCUMENT: text,
        REFERENCE: "\n\n".join(_reference(results, scenarios)) + "\n",
        **{
            FOLDER / f"{PICTURE}-{mode}.svg": range_over_time(
                [results[name] for name in OVER_TIME], SHOWN, scenarios, colours
            )
            for mode, colours in PALETTES.items()
        },
    }


def report(results: Mapping[str, Results], scenarios: Mapping[str, Scenario]) -> str:
    """Return the tables of any results, as Markdown."""
    return "\n\n".join([of_problems(results).markdown(), *_reference(results, scenarios)]) + "\n"


def draw(files: Mapping[Path, str]) -> None:
    """Write documents and pictures."""
    for file, text in files.items():
        file.write_text(text, encoding="utf-8")


def _first_screen(results: Mapping[str, Results], scenarios: Mapping[str, Scenario]) -> list[str]:
    return [
        picture(
            PICTURE,
            "The range of the brokers' scores over time in three scenarios, a column for each shedder: median and "
            "band over the seeds, next to the same placement without shedding; docs/reference/experiments.md has the "
            "figures.",
        ),
        of_problems(results).markdown(),
        _origin(results, scenarios),
        "\n".join(f"* **{problem.title}**: {problem.rule}" for problem in PROBLEMS),
    ]


def _origin(results: Mapping[str, Results], scenarios: Mapping[str, Scenario]) -> str:
    """Return which commits and seeds the results are of, and what is missing."""
    commits = _usual({name: f"`{scenario.commit}`" for name, scenario in results.items()})
    drawn = _usual({name: seeds(scenario) for name, scenario in results.items()})
    missing = [name for name in scenarios if name not in results]
    said = f"Drawn from the results in `lab/experiments/results`, of commit {commits}. Seeds {drawn}."
    return said + (f" Not run yet: {_names(missing)}." if missing else "")


def _usual(of_each: Mapping[str, str]) -> str:
    """Return what most scenarios have, then what others have, with their names."""
    most, *others = (value for value, _ in Counter(of_each.values()).most_common())
    groups = {other: [name for name, value in of_each.items() if value == other] for other in others}
    return most + "".join(f"; {_names(names)}: {other}" for other, names in groups.items())


def _names(scenarios: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in scenarios)


def _reference(results: Mapping[str, Results], scenarios: Mapping[str, Scenario]) -> list[str]:
    parts = [
        "# Figures of the experiments",
        "Written by `make experiments DRAW=1` from `lab/experiments/results`; [experiments.md](../experiments.md) "
        "says how they are made. Each figure is the median over the seeds, with the smallest and the largest. A seed "
        "whose bundles never settled counts as the longest; if that is half of the seeds or more, the median is "
        "*never*. Variants with the same figures share a row.",
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
    return parts
