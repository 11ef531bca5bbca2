"""Draw the pictures of README.md and docs/ as SVG, each for a light and a dark page; `--check` only compares.

The house is drawn from the layers in pyproject.toml and the packages' docstrings.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from scripts.drawing import FOLDER, PALETTES, Drawing, Palette
from scripts.gain_idea import gain_idea
from scripts.house import house

if TYPE_CHECKING:
    from pathlib import Path

TASKS = {
    "collect": ("asks every broker,", "decides nothing", "input/"),
    "validate": ("judges the data,", "leaves brokers out", "validation.json"),
    "decide": ("score, pair, count", "hits, pick bundles", "plan/"),
    "record": ("commits counters", "exactly once", ""),
    "gate": ("open or closed,", "with a reason", ""),
    "split": ("cuts bundles that", "are too large", "unload/"),
    "unload": ("moves bundles and", "verifies each", "unload/"),
    "report": ("what landed where,", "history, alerts", "outcome.json"),
}
"""Of one run: what each does, and what it writes."""

HELPERS = {
    "collect": ("People", "plans by hand, drains", 1),
    "validate": ("Great Expectations", "suites of reason codes", 1),
    "decide": ("Spark", "local or a cluster", 1),
    "record": ("State store of Airflow", "hit counters, last plan, history of splits and unloads", 4),
    "report": ("Receivers", "chat, mail, pager", 1),
}
"""What tasks use: by the first one, and for how many."""


def how_it_works(colours: Palette) -> str:
    """Return the picture of one run: its tasks, and what they speak to."""
    drawing = Drawing(1122, 410, colours, "One run: tasks of the DAG, Spark, state, brokers")
    drawing.text(24, 30, "Each interval: one run of the DAG of a cluster", size=15, bold=True)
    wide, gap, top = 124, 12, 150
    left = {name: 24 + number * (wide + gap) for number, name in enumerate(TASKS)}
    middle = {name: x + wide / 2 for name, x in left.items()}
    for name, (first, second, file) in TASKS.items():
        drawing.box(left[name], top, wide, 88, colour=colours.accent)
        drawing.text(middle[name], top + 22, name, size=15, bold=True, middle=True, colour=colours.accent)
        drawing.text(middle[name], top + 42, first, size=11, middle=True)
        drawing.text(middle[name], top + 57, second, size=11, middle=True)
        drawing.text(middle[name], top + 78, file, size=11, middle=True, mono=True, colour=colours.dim)
        if name != "report":
            drawing.arrow((left[name] + wide, top + 44), (left[name] + wide + gap, top + 44))
    for name, (words, more, tasks) in HELPERS.items():
        width = tasks * wide + (tasks - 1) * gap
        drawing.box(left[name], 56, width, 52)
        drawing.text(left[name] + width / 2, 77, words, size=11, bold=True, middle=True)
        drawing.text(left[name] + width / 2, 95, more, size=10, middle=True, colour=colours.dim)
    for name in ("validate", "decide", "record", "split", "unload", "report"):
        drawing.arrow((middle[name], top), (middle[name], 109))
    for name in ("collect", "gate"):
        drawing.arrow((middle[name], 108), (middle[name], top - 1))
    files = "every run leaves a folder of files under the storage root: each task writes its part"
    drawing.text((middle["collect"] + middle["unload"]) / 2, 262, files, size=11.5, middle=True, colour=colours.dim)

    drawing.box(24, 308, 1076, 84)
    drawing.text(562, 344, "Pulsar cluster", size=15, bold=True, middle=True)
    drawing.text(562, 366, "admin REST API; the brokers need no change", middle=True, colour=colours.dim)
    drawing.arrow((middle["collect"], 308), (middle["collect"], 239))
    drawing.text(middle["collect"] + 10, 290, "load reports, settings, policies", size=11.5, colour=colours.dim)
    drawing.arrow((middle["split"], 238), (middle["split"], 307))
    drawing.text(middle["split"] - 10 - 108, 282, "split, read the", size=11.5, colour=colours.dim)
    drawing.text(middle["split"] - 10 - 108, 297, "bounds back", size=11.5, colour=colours.dim)
    drawing.arrow((middle["unload"], 238), (middle["unload"], 307))
    drawing.text(middle["unload"] + 10, 282, "unload to the planned", size=11.5, colour=colours.dim)
    drawing.text(middle["unload"] + 10, 297, "broker, ask for the owner", size=11.5, colour=colours.dim)
    _bars(drawing, 52, (52, 44, 30, 27, 22, 18, 12, 3), "before")
    _bars(drawing, 884, (27, 26, 27, 25, 26, 26, 25, 26), "after")
    return drawing.svg()


def _bars(drawing: Drawing, x: float, heights: tuple[int, ...], name: str) -> None:
    """Draw the load of brokers, hottest first; heights only show the idea."""
    colours, base = drawing.colours, 378
    for number, height in enumerate(heights):
        colour = colours.hot if height > 40 else colours.good if height > 15 else colours.accent
        drawing.box(x + 14 * number, base - height, 10, height, colour=colour, fill=colour)
    drawing.text(x + 14 * len(heights) + 6, base, name, size=11.5, colour=colours.dim)


PICTURES = {"how-it-works": how_it_works, "house": house, "gain-idea": gain_idea}
"""By the name of the file."""


def drawn() -> dict[Path, str]:
    """Return every picture by its file."""
    return {
        FOLDER / f"{name}-{mode}.svg": draw(colours)
        for name, draw in PICTURES.items()
        for mode, colours in PALETTES.items()
    }


if __name__ == "__main__":
    for file, svg in drawn().items():
        if "--check" not in sys.argv[1:]:
            file.write_text(svg, encoding="utf-8")
        elif not file.exists() or file.read_text(encoding="utf-8") != svg:
            sys.exit(f"{file.name} is stale; run python -m scripts.pictures")
