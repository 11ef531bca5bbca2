"""The picture of GainShedder's idea: what a move takes off the squared heights to expect."""

from __future__ import annotations

from typing import NamedTuple

from scripts.drawing import Drawing, Palette

_MIN_GAIN, _LARGE = 45, 8
_POINT = 3.2
"""Pixels."""


class _Case(NamedTuple):
    """Points of source, destination and bundle, now and over the hour, and the share of the difference that lasts."""

    title: str
    now: tuple[int, int, int]
    hour: tuple[int, int, int]
    lasts: float


_CASES = (
    _Case("A steady bundle of 16 points", (23, -18, 16), (23, -18, 16), 0.5),
    _Case("A burst of 10, of which 20 % lasts", (13, -7, 10), (1, 0, 1), 0.2),
    _Case("The same, if 90 % lasts", (13, -7, 10), (1, 0, 1), 0.9),
)


def gain_idea(colours: Palette) -> str:
    """Return the picture."""
    drawing = Drawing(1122, 350, colours, "What a move gains, and what it costs")
    drawing.text(24, 30, "A move gains what it takes off the squared heights to expect", size=15, bold=True)
    for number, case in enumerate(_CASES):
        _draw(drawing, 24 + 366 * number, case)
    return drawing.svg()


def _draw(drawing: Drawing, left: int, case: _Case) -> None:
    colours, mean = drawing.colours, 180
    drawing.box(left, 48, 342, 284)
    drawing.text(left + 14, 72, case.title, size=12, bold=True)
    hot, cold, load = (hour + case.lasts * (now - hour) for now, hour in zip(case.now, case.hour, strict=True))
    before, after = (hot, cold), (hot - load, cold + load)
    shown = ("now", case.now[:2], colours.dim), ("to expect", before, colours.hot), ("if moved", after, colours.good)
    for part, (when, heights, colour) in enumerate(shown):
        x = left + 14 + 109 * part
        drawing.box(x, mean, 96, 0.6, colour=colours.dim)
        for place, height in enumerate(heights):
            tall, middle = max(abs(height) * _POINT, 1), x + 28 + 40 * place
            drawing.box(middle - 10, mean - tall if height > 0 else mean, 20, tall, colour=colour, fill=colour)
            drawing.text(middle, mean + (16 if height > 0 else -6), f"{height:+.0f}", size=10.5, middle=True)
        drawing.text(x + 48, 270, when, size=11, middle=True, colour=colours.dim)
    gain = sum(height**2 for height in before) - sum(height**2 for height in after)
    price = _MIN_GAIN * (1 + load / _LARGE)
    words, colour = ("moves", colours.good) if gain >= price else ("stays", colours.hot)
    drawing.text(left + 14, 312, f"gain {gain:.0f}, price {price:.0f}: it {words}", size=13, bold=True, colour=colour)
