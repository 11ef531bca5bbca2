"""Draw tables and pictures of docs/evidence.md from the committed results: `python -m lab.evidence`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scripts.drawing import ROOT
from scripts.markdown import between

from lab.experiments import page
from lab.families import family_page
from lab.gain import gain_page

if TYPE_CHECKING:
    from pathlib import Path

DOCUMENT = ROOT / "docs" / "evidence.md"
PARTS = (page, family_page, gain_page)


def written() -> dict[Path, str]:
    """Return the document and its pictures, with their texts."""
    text = DOCUMENT.read_text(encoding="utf-8")
    pictures: dict[Path, str] = {}
    for part in PARTS:
        for marks, content in part.blocks().items():
            text = between(marks, content, text)
        pictures |= part.pictures()
    return {DOCUMENT: text, **pictures}


def draw() -> None:
    """Write the document and its pictures."""
    for file, text in written().items():
        file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    draw()
