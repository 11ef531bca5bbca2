"""An SVG under way, and the colours of a light and a dark page."""

from __future__ import annotations

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
    ) -> None:
        """Write a line; `y` is its base line."""
        given = f'x="{x:g}" y="{y:g}" font-size="{size:g}" fill="{colour or self.colours.text}"'
        given += f' font-family="{MONO if mono else SANS}"'
        given += ' font-weight="600"' * bold + ' text-anchor="middle"' * middle
        self._parts.append(f'<text {given} xml:space="preserve">{escape(words, quote=False)}</text>')

    def arrow(self, *points: tuple[float, float]) -> None:
        """Draw a line through the points, with a tip at its end."""
        path = " L".join(f"{x:g},{y:g}" for x, y in points)
        line = f'fill="none" stroke="{self.colours.dim}" stroke-width="1.4"'
        self._parts.append(f'<path d="M{path}" {line} marker-end="url(#tip)"/>')
