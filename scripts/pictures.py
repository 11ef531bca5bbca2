"""Draw the pictures of README.md and docs/ as SVG, each for a light and a dark page; `--check` only compares.

The house is drawn from the layers in pyproject.toml and the packages' docstrings, the terminal from docs/runs.md.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
import tomllib
from html import escape
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "pictures"
SANS = "-apple-system, 'Segoe UI', Helvetica, Arial, 'DejaVu Sans', sans-serif"
MONO = "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


class Palette(NamedTuple):
    """Colours of a picture on a light or a dark page."""

    page: str
    box: str
    line: str
    text: str
    dim: str
    accent: str
    hot: str
    good: str


PALETTES = {
    "light": Palette("#ffffff", "#f3f6fa", "#a9b4c2", "#1b2733", "#586676", "#0b5cad", "#b3470b", "#1a7340"),
    "dark": Palette("#0d1117", "#18212c", "#4a5868", "#e4ebf2", "#a0adbb", "#6cb6ff", "#f0a06a", "#6fd391"),
}


class Drawing:
    """One SVG under way; lengths are pixels, the origin is the upper left corner."""

    def __init__(self, width: int, height: int, colours: Palette, title: str) -> None:
        self.colours = colours
        self._size = width, height
        self._parts = [f"<title>{escape(title)}</title>", self._rectangle(0, 0, width, height, colours.page, "none")]

    def svg(self) -> str:
        """Return the document."""
        width, height = self._size
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">'
        tip = f'<path d="M0,0 L8,4 L0,8 z" fill="{self.colours.dim}"/>'
        marker = f'<defs><marker id="tip" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">{tip}'
        return "\n".join([head, f"{marker}</marker></defs>", *self._parts, "</svg>", ""])

    def box(self, x: float, y: float, width: float, height: float, *, colour: str = "", fill: str = "") -> None:
        """Draw a rectangle with round corners."""
        self._parts.append(self._rectangle(x, y, width, height, fill or self.colours.box, colour or self.colours.line))

    @staticmethod
    def _rectangle(x: float, y: float, width: float, height: float, fill: str, line: str) -> str:
        place = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
        return f'<rect {place} rx="{min(6, width / 5, height / 5):g}" fill="{fill}" stroke="{line}"/>'

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        size: float = 12,
        colour: str = "",
        bold: bool = False,
        middle: bool = False,
        mono: bool = False,
        length: float = 0,
    ) -> None:
        """Write a line; `y` is its base line, `length` the width that any font is made to fill."""
        given = f'x="{x:g}" y="{y:g}" font-size="{size:g}" fill="{colour or self.colours.text}"'
        given += f' font-family="{MONO if mono else SANS}"'
        given += ' font-weight="600"' * bold + ' text-anchor="middle"' * middle
        given += f' textLength="{length:g}" lengthAdjust="spacingAndGlyphs"' if length else ""
        self._parts.append(f'<text {given} xml:space="preserve">{escape(words, quote=False)}</text>')

    def arrow(self, *points: tuple[float, float]) -> None:
        """Draw a line through the points, with a tip at its end."""
        path = " L".join(f"{x:g},{y:g}" for x, y in points)
        line = f'fill="none" stroke="{self.colours.dim}" stroke-width="1.4"'
        self._parts.append(f'<path d="M{path}" {line} marker-end="url(#tip)"/>')


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
    files = "every run leaves a folder of files below the storage root: each task writes its part"
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


def terminal(colours: Palette) -> str:
    """Return the picture of `make run` in a terminal: the first block of docs/runs.md."""
    found = re.search(r"^```text\n(.*?)^```$", (ROOT / "docs" / "runs.md").read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None, "docs/runs.md has no terminal"
    lines = ["$ make run", *found[1].splitlines()]
    char, row = 6.9, 20
    width = round(max(map(len, lines)) * char) + 40
    drawing = Drawing(width, len(lines) * row + 58, colours, "make run in a terminal")
    drawing.box(1, 1, width - 2, len(lines) * row + 56)
    for number, colour in enumerate((colours.hot, colours.dim, colours.good)):
        drawing.box(18 + 18 * number, 14, 10, 10, colour=colour, fill=colour)
    for number, line in enumerate(lines):
        y = 56 + number * row
        colour = colours.dim if line.startswith("--") else colours.text
        verdict = re.search(r"fired: .*verified|balanced: .*do|waiting", line)
        parts = [(0, line, colour)]
        if verdict is not None:
            first, last = verdict.span()
            shown = {"f": colours.hot, "b": colours.good, "w": colours.dim}[line[first]]
            parts = [(0, line[:first], colour), (first, verdict[0], shown), (last, line[last:], colours.dim)]
        for start, words, fill in parts:
            drawing.text(
                20 + start * char, y, words, size=11.5, mono=True, colour=fill, length=round(len(words) * char, 1)
            )
    return drawing.svg()


def layers() -> list[list[str]]:
    """Return the rooms of the domain by layer, the upper ones first, as import-linter checks them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (found,) = (each["layers"] for each in contracts if each.get("containers") == ["pulsar_rebalancer"])
    return [re.split(r"\s*[|:]\s*", layer) for layer in found]


def about(package: Path) -> str:
    """Return the first sentence of a package or module."""
    file = package / "__init__.py" if package.is_dir() else package.with_suffix(".py")
    docstring = ast.get_docstring(ast.parse(file.read_text())) or ""
    return re.split(r"[.?](?:\s|$)", docstring)[0]


def house(colours: Palette) -> str:
    """Return the picture of the rooms and layers; whoever stands above may import from below."""
    domain, airflow = ROOT / "include" / "pulsar_rebalancer", ROOT / "plugins" / "pulsar_rebalancer_airflow"
    upper = [folder.name for folder in sorted(airflow.iterdir()) if (folder / "__init__.py").exists()]
    half = (len(upper) + 1) // 2
    sides = [(airflow, upper[:half], 576.0), (airflow, upper[half:], 576.0)]
    rows = [(domain, rooms, 908.0) for rooms in layers()]
    side_high, high = (40 + sum(12 + _height(*row) for row in part) for part in (sides, rows))
    top = 98 + side_high + 20
    drawing = Drawing(980, round(top + high + 70), colours, "The house: rooms and layers")
    drawing.text(24, 28, "The house: imports go downwards only", size=15, bold=True)

    drawing.box(24, 44, 600, 34)
    drawing.text(38, 66, "dags/", mono=True, bold=True)
    drawing.text(96, 66, "three lines: the DAGs of every cluster in the clusters file", colour=colours.dim)
    drawing.arrow((324, 78), (324, 97))

    drawing.box(24, 98, 600, side_high, colour=colours.accent)
    drawing.text(38, 120, "plugins/pulsar_rebalancer_airflow", mono=True, bold=True, colour=colours.accent)
    drawing.text(306, 120, "all that touches Airflow", colour=colours.dim)
    _rooms(drawing, sides, 132)
    drawing.arrow((324, top - 20), (324, top - 1))

    drawing.box(640, 98, 316, side_high, colour=colours.accent)
    drawing.text(654, 120, "spark_apps/pulsar_rebalancer_spark", mono=True, bold=True, colour=colours.accent)
    for number, words in enumerate(SPARK_SIDE):
        drawing.text(654, 148 + 20 * number, words, colour=colours.dim)
    drawing.arrow((798, top - 20), (798, top - 1))

    drawing.box(24, top, 932, high, colour=colours.accent)
    drawing.text(38, top + 22, "include/pulsar_rebalancer", mono=True, bold=True, colour=colours.accent)
    alone = "the domain, plain Python; a room imports from the layers below it"
    drawing.text(246, top + 22, alone, colour=colours.dim)
    _rooms(drawing, rows, top + 34)

    drawing.text(38, top + high + 28, "include/pulsar_simulator", mono=True, bold=True, colour=colours.accent)
    apart = "a package of its own: simulated brokers over HTTP, which know nothing of the product"
    drawing.text(240, top + high + 28, apart, colour=colours.dim)
    drawing.text(38, top + high + 50, "experiments/", mono=True, bold=True)
    above = "no part of the wheel: strategies compared in simulated clusters; it imports the two packages above"
    drawing.text(240, top + high + 50, above, colour=colours.dim)
    return drawing.svg()


def _lines(parent: Path, rooms: list[str], whole: float) -> list[list[str]]:
    chars = int(((whole + 10) / len(rooms) - 26) / 5.7)
    return [textwrap.wrap(about(parent / room), chars, max_lines=4, placeholder=" …") for room in rooms]


def _height(parent: Path, rooms: list[str], whole: float) -> int:
    return 28 + 13 * max(map(len, _lines(parent, rooms, whole)))


def _rooms(drawing: Drawing, rows: list[tuple[Path, list[str], float]], y: float) -> None:
    """Draw rows of rooms side by side, one row below the other."""
    for parent, rooms, whole in rows:
        wide, high = (whole + 10) / len(rooms), _height(parent, rooms, whole)
        for number, (room, lines) in enumerate(zip(rooms, _lines(parent, rooms, whole), strict=True)):
            left = 36 + number * wide
            drawing.box(left, y, wide - 10, high, fill=drawing.colours.page)
            drawing.text(left + 10, y + 18, room, mono=True, bold=True)
            for line, words in enumerate(lines):
                drawing.text(left + 10, y + 33 + 13 * line, words, size=10.5, colour=drawing.colours.dim)
        y += high + 12


SPARK_SIDE = (
    "files in, files out: knows no Airflow, no Pulsar;",
    "means of bundles as column expressions,",
    "AvgShedder over columns, others as specified",
    "in include/; this side and the Airflow side",
    "never import each other;",
    "replays of recorded load run here as well",
)

PICTURES = {"how-it-works": how_it_works, "terminal": terminal, "house": house}
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
            sys.exit(f"{file.name} is stale; run python scripts/pictures.py")
