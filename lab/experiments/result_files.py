"""Files of results: JSON with one line for each row, so that a difference is easy to see."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

Kind = TypeVar("Kind")


def document(head: Mapping[str, Any], rows: Iterable[Any], name: str = "runs") -> str:
    """Return the text of a file: the fields of the head, then the rows under their name."""
    lines = ",\n".join(map(json.dumps, rows))
    return f'{json.dumps(head)[:-1]}, "{name}": [\n{lines}\n]}}\n'


def save(file: Path, text: str) -> None:
    """Write a file, all or nothing, and the folders that are missing."""
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(file)


def load(file: Path, version: int | None = None) -> dict[str, Any]:
    """Return the content of a file.

    Args:
        version: number that the file must have; None for a format without versions.

    Raises:
        ValueError: the file has another version.
    """
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    if content.get("version") != version:
        raise ValueError(f"{file}: version {content.get('version')}, this program reads {version}; run it again")
    return content


def load_each(folder: Path, read: Callable[[Path], Kind]) -> dict[str, Kind]:
    """Return what each file of a folder holds, by the file's name without its ending."""
    return {file.stem: read(file) for file in sorted(folder.glob("*.json"))}
