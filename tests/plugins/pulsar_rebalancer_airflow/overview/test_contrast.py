"""WCAG 2.2 AA contrast of the page's colours in both themes. axe-core does not check the shapes of a chart."""

import re
from pathlib import Path

import pytest

import pulsar_rebalancer_airflow.overview

STATIC = Path(pulsar_rebalancer_airflow.overview.__file__).parent / "static"
STYLE = (STATIC / "page.css").read_text()
THEMES = ("light", "dark")
SHAPES = ("calm-bar", "low-bar", "high-bar")


def _colours(theme: str) -> dict[str, str]:
    pairs = re.findall(r"--([\w-]+): light-dark\((#[0-9a-f]+), (#[0-9a-f]+)\);", STYLE)
    return {name: (light, dark)[THEMES.index(theme)] for name, light, dark in pairs}


def _luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(digit * 2 for digit in colour[1:])
    parts = (int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4))
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(one: str, other: str) -> float:
    darker, lighter = sorted((_luminance(one), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("theme", THEMES)
def test_bars_differ_from_the_ground(theme: str) -> None:
    colours = _colours(theme)
    found = {name: _contrast(colours[name], colours["ground"]) for name in SHAPES}
    assert {name: ratio for name, ratio in found.items() if ratio < 3} == {}
