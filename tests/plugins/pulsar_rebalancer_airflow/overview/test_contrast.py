"""WCAG 2.2 AA contrast of the page's colours in both themes. axe-core does not check the shapes of a chart."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import pulsar_rebalancer_airflow.overview

STATIC = Path(pulsar_rebalancer_airflow.overview.__file__).parent / "static"
STYLE = (STATIC / "page.css").read_text()
THEMES = {
    "light": r":root \{(.*?)\}",
    "dark": r':root\[data-theme="dark"\] \{(.*?)\}',
    "dark by the system": r":root:not\(\[data-theme\]\) \{(.*?)\}",
}
TEXTS = ("text", "soft", "good", "busy", "warn", "bad", "idle")
SHAPES = ("calm-bar", "low-bar", "high-bar", "cpu", "memory", "direct", "in", "out")


def _colours(theme: str) -> dict[str, str]:
    block = re.search(THEMES[theme], STYLE, re.DOTALL)
    assert block
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]+);", block[1]))


def _luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(digit * 2 for digit in colour[1:])
    parts = (int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4))
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(one: str, other: str) -> float:
    darker, lighter = sorted((_luminance(one), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("theme", THEMES)
def test_text_is_readable_on_ground_and_panel(theme: str) -> None:
    colours = _colours(theme)
    found = {(name, on): _contrast(colours[name], colours[on]) for name in TEXTS for on in ("ground", "panel")}
    assert {pair: ratio for pair, ratio in found.items() if ratio < 4.5} == {}


@pytest.mark.parametrize("theme", THEMES)
def test_bars_and_stripes_differ_from_the_ground(theme: str) -> None:
    colours = _colours(theme)
    found = {name: _contrast(colours[name], colours["ground"]) for name in SHAPES}
    assert {name: ratio for name, ratio in found.items() if ratio < 3} == {}


def test_stripes_are_outlined_in_the_ground_colour() -> None:
    """A stripe need not differ from its bar: the outline between them differs from both."""
    rule = re.search(r"^\.resource \{(.*?)\}", STYLE, re.MULTILINE)
    assert rule
    assert "stroke: var(--ground)" in rule[1]
    assert "paint-order: stroke" in rule[1]
    assert "opacity" not in rule[1]


def test_the_edge_of_a_field_differs_from_the_ground() -> None:
    """`--soft` has the contrast of text; `--line`, which separates parts, has not."""
    rules = re.findall(r"(?:^|[}] )dialog (?:input, dialog select|textarea) \{(.*?)\}", STYLE, re.MULTILINE)
    assert len(rules) == 2
    assert all("border: 1px solid var(--soft)" in rule for rule in rules)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_icon_is_seen_on_any_ground(theme: str) -> None:
    """Airflow's entries are light or dark, and of another colour when they are selected."""
    icon = (STATIC / f"icon-{theme}.svg").read_text()
    plate = re.search(r'<rect width="24" height="24" [^>]*fill="(#\w+)"', icon)
    lines = re.search(r'<svg [^>]*viewBox="0 0 24 24" [^>]*stroke="(#\w+)"', icon)
    assert plate
    assert lines
    assert _contrast(plate[1], lines[1]) >= 4.5
