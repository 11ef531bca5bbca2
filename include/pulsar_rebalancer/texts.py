"""Make texts from outside storable where they come in, and fit for one line where they are shown."""

from __future__ import annotations

import json
import unicodedata
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

LONGEST_MESSAGE = 2000
"""Characters of an error's message."""

_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\ufeff") | {chr(c) for c in range(0xFE00, 0xFE10)}
"""Characters that count as printable and show nothing."""


def one_line(text: str, most: int = LONGEST_MESSAGE) -> str:
    """Return the text free of control, zero-width, direction and surrogate characters, cut to so many characters.

    What has a width becomes a blank, what has none goes.
    """
    if not text.isprintable() or not _BLANK.isdisjoint(text):
        text = "".join(map(_shown, text))
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _shown(character: str) -> str:
    if character in _BLANK or unicodedata.category(character) == "Cf":
        return ""
    return character if character.isprintable() else " "


def storable(text: str) -> str:
    """Return the text with a question mark for every lone surrogate, which JSON may hold and UTF-8 may not."""
    return text.encode("utf-8", "replace").decode()


def parse_json(data: bytes, fix: Callable[[str], str] = storable) -> Any:
    """Return the JSON document; lone surrogates in it are question marks.

    Args:
        data: in UTF-8.
        fix: what is applied to texts that were written with escapes; the others hold what the bytes say.

    Raises:
        ValueError: it is no JSON, or nested too deep.
    """
    try:
        found = _loads(data)
        return _fixed(found, fix) if b"\\" in data else found
    except RecursionError:
        raise ValueError("nested too deep") from None


def _loads(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)  # a third of the time
    except (msgspec.DecodeError, RecursionError):
        return json.loads(data.decode())  # NaN, infinities and lone surrogates are known to Python's parser alone


def _fixed(value: Any, fix: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return fix(value)
    if isinstance(value, list):
        return [_fixed(item, fix) for item in value]
    if isinstance(value, dict):
        return {fix(key): _fixed(item, fix) for key, item in value.items()}
    return value
