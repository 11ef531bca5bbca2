"""The picture of GainShedder's idea: what a move takes off the squared heights, now and on the hour's average."""

from __future__ import annotations

from typing import NamedTuple

from scripts.drawing import Drawing, Palette

_MIN_GAIN, _LARGE = 30, 8
_POINT = 3.2
"""Pixels."""


class _Case(NamedTuple):
    """A move: heights of source and destination, and the bundle's points, each now and on the hour's average."""

    title: str
    hot: tuple[int, int]
    cold: tuple[int, int]
    bundle: tuple[int, int]


_CASES = (
    _Case("A bundle of 16 points", (23, 23), (-18, -18), (16, 16)),
    _Case("During a burst: a steady bundle of 10", (13, 1), (-7, 0), (10, 10)),
    _Case("During a burst: the burst, 10 now and 1 later", (13, 1), (-7, 0), (10, 1)),
)


def gain_idea(colours: Palette) -> str:
    """Return the picture."""
    drawing = Drawing(1122, 372, colours, "What a move gains, and what it costs")
    drawing.text(24, 30, "A move gains what it takes off the squared heights of its two brokers", size=15, bold=True)
    for number, case in enumerate(_CASES):
        _draw(drawing, 24 + 366 * number, case)
    return drawing.svg()


def _draw(drawing: Drawing, left: int, case: _Case) -> None:
    colours, gains = drawing.colours, []
    drawing.box(left, 48, 342, 306)
    drawing.text(left + 14, 72, case.title, size=12, bold=True)
    for part, when in enumerate(("now", "on the hour's average")):
        x, mean = left + 14 + 164 * part, 190
        before = case.hot[part], case.cold[part]
        after = before[0] - case.bundle[part], before[1] + case.bundle[part]
        gains.append(sum(height**2 for height in before) - sum(height**2 for height in after))
        drawing.text(x, 96, when, size=11, colour=colours.dim)
        drawing.box(x, mean, 150, 0.6, colour=colours.dim)
        for at, heights, colour in ((0, before, colours.hot), (76, after, colours.good)):
            for place, height in enumerate(heights):
                tall = max(abs(height) * _POINT, 1)
                middle = x + at + 14 + 32 * place
                drawing.box(middle - 10, mean - tall if height > 0 else mean, 20, tall, colour=colour, fill=colour)
                drawing.text(middle, mean + (16 if height > 0 else -6), f"{height:+d}", size=10.5, middle=True)
            drawing.text(x + at + 30, 274, ("before", "after")[at > 0], size=10.5, middle=True, colour=colours.dim)
        drawing.text(x, 298, f"takes off {gains[-1]:+d}", size=11.5, mono=True)
    gain, price = sum(gains) / 2, _MIN_GAIN * (1 + sum(case.bundle) / 2 / _LARGE)
    words = "moves" if gain >= price else "stays"
    colour = colours.good if gain >= price else colours.hot
    drawing.text(left + 14, 334, f"gain {gain:.0f}, price {price:.0f}: it {words}", size=13, bold=True, colour=colour)
