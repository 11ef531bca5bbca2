"""docs/families.md, its pictures and its reference page, drawn from the committed results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scripts.drawing import FOLDER as PICTURES
from scripts.drawing import PALETTES, ROOT
from scripts.markdown import between, picture

from lab.experiments.tables import of_measures
from lab.families import family_plot, family_tables
from lab.families.choosing import GRID_FAMILIES, LOSING, RULE
from lab.families.family import load_all
from lab.families.family_results import read_all

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from lab.families.family import Family
    from lab.families.family_results import FamilyResults

RESULTS = ROOT / "lab" / "families" / "results"
DOCUMENT = ROOT / "docs" / "families.md"
REFERENCE = ROOT / "docs" / "reference" / "families.md"
PICTURE = "experiments-families"


def written() -> dict[Path, str]:
    """Return every document and picture of the families, with its text."""
    families, training, grid = load_all(), read_all(RESULTS / "training"), read_all(RESULTS / "grid")
    held_out = read_all(RESULTS / "held_out")
    text = DOCUMENT.read_text(encoding="utf-8")
    for marks, content in (
        ("results", _results(training)),
        ("families", _families(families, training)),
        ("grid", f"{RULE}\n\nThe families are {', '.join(GRID_FAMILIES)}.\n\n{family_tables.of_grid(grid).markdown()}"),
        ("controls", f"{LOSING}\n\n{family_tables.of_controls(training)}"),
    ):
        text = between(marks, content, text)
    titles = {name: family.title for name, family in families.items()}
    return {
        DOCUMENT: text,
        REFERENCE: "\n\n".join(_reference({**training, **held_out}, families)) + "\n",
        **{
            PICTURES / f"{PICTURE}-{mode}.svg": family_plot.moves_against_range(training, titles, colours)
            for mode, colours in PALETTES.items()
        },
    }


def _results(training: Mapping[str, FamilyResults]) -> str:
    commits = " and ".join(f"`{commit}`" for commit in sorted({family.commit for family in training.values()}))
    seeds = sorted({seed for family in training.values() for seed in family.seeds})
    return "\n\n".join(
        [
            picture(
                PICTURE,
                "Bundles moved per day against the mean range, a field for each training family, a mark for each "
                "strategy; docs/reference/families.md has the figures.",
            ),
            "Means over the training families. Moves, disturbed load and range are multiples of AvgShedder's with "
            "the author's minima, moves and disturbed load after adding 1; the rest are means as they are.",
            family_tables.overall(training).markdown(),
            f"Drawn from `lab/families/results`, seeds {', '.join(map(str, seeds))}, of commit {commits}. "
            "[Every family and measure](reference/families.md).",
        ]
    )


def _families(families: Mapping[str, Family], training: Mapping[str, FamilyResults]) -> str:
    lines = [
        f"* **{family.title}** (`{name}`{'' if name in training else ', held out' * (family.kind == 'held-out')}): "
        f"{family.about}"
        for name, family in families.items()
    ]
    return "\n".join(lines)


def _reference(results: Mapping[str, FamilyResults], families: Mapping[str, Family]) -> list[str]:
    parts = [
        "# Figures of the families",
        "Written by `make experiments DRAW=1` from `lab/families/results`; [families.md](../families.md) "
        "says how they are made. Each figure is the mean over the seeds, with the smallest and the largest.",
        of_measures(family_tables.MEASURES).markdown(),
        "## Moves per day and mean range by family",
        family_tables.by_family(results, families).markdown(),
    ]
    for name, family in results.items():
        seeds = ", ".join(map(str, family.seeds))
        parts += [
            f"## {families[name].title}",
            f"`{name}`, seeds {seeds}, commit `{family.commit}`. {families[name].about}",
            family_tables.of_family(family).markdown(),
        ]
    return parts
