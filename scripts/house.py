"""The picture of the house: rooms and layers, from pyproject.toml and the docstrings of the packages."""

from __future__ import annotations

import ast
import re
import textwrap
import tomllib
from typing import TYPE_CHECKING

from scripts.drawing import ROOT, Drawing, Palette

if TYPE_CHECKING:
    from pathlib import Path

SPARK_SIDE = (
    "files in, files out: knows no Airflow, no Pulsar;",
    "means of bundles as column expressions,",
    "AvgShedder over columns, others as specified",
    "in include/; this side and the Airflow side",
    "never import each other;",
    "replays of recorded load run here as well",
)


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
    """Return the picture of the rooms and layers; a room may import the layers below it."""
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
    caption = "the domain, plain Python; a room imports from the layers below it"
    drawing.text(246, top + 22, caption, colour=colours.dim)
    _rooms(drawing, rows, top + 34)

    drawing.text(38, top + high + 28, "include/pulsar_simulator", mono=True, bold=True, colour=colours.accent)
    apart = "a package of its own: simulated brokers over HTTP, which know nothing of the product"
    drawing.text(240, top + high + 28, apart, colour=colours.dim)
    drawing.text(38, top + high + 50, "lab/", mono=True, bold=True)
    above = "no part of the wheel: strategies compared in simulated clusters, and what a run costs"
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
