"""Match names against patterns that people or policies specify, in linear time (RE2, part of Arrow).

Every pattern must match a whole name.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

LONGEST_NAME = 300
"""Maximum length of a name that is matched against a policy's patterns."""

_LONGEST = 1000
_MOST_REPEATS = 100
"""Maximum product of the bounds of all `{n,m}` in a pattern, because RE2 expands every repetition."""

_MEMBER = r"(?:[^\\\[\]^&\-]|\\[!-/:-@\[-`{-~])"
_TOKEN = rf"""
    [^\\\[\](){{}}*+?]                              # a character, any character, the begin, the end, an alternative
  | \\(?:[dDwWsSbB]|[!-/:-@\[-`{{-~])               # a class of ASCII characters, a quoted character
  | \[\^?-?(?:\\[dDwWsS]|{_MEMBER}(?:-{_MEMBER})?)+-?\]  # Java reads `[a[b]]` as a union, `[a&&b]` as an intersection
  | \((?:\?:|\?i\)(?![*+?{{])|(?!\?))               # a group; ignore case
  | \)
  | (?:[*+?]|\{{[0-9]+(?:,[0-9]*)?\}})\??           # a repeat
"""
_SAME_IN_JAVA = re.compile(rf"(?>{_TOKEN})*+", re.VERBOSE)
"""Matches patterns with syntax that means the same in Java and RE2. RE2 rejects invalid patterns, such as `a**`."""

_BOUNDS = re.compile(r"\{([0-9]+)(?:,([0-9]*))?\}")
_NAME = re.compile(rf"[!-~]{{1,{LONGEST_NAME}}}")


def of_glob(pattern: str) -> str:
    """Convert a name pattern to a regular expression: `*` matches any text, `?` any single character."""
    return "".join({"*": ".*", "?": "."}.get(letter, re.escape(letter)) for letter in pattern)


def is_as_in_java(pattern: str) -> bool:
    """Return whether a Java regular expression gives the same results in RE2.

    Look-around, back-references, possessive quantifiers and Java's own character classes are not supported.
    """
    if len(pattern) > _LONGEST or _SAME_IN_JAVA.fullmatch(pattern) is None:
        return False
    if "(?i" in pattern and not pattern.isascii():
        return False  # RE2 also ignores the case of other letters
    repeats = 1
    for lower, upper in _BOUNDS.findall(pattern):
        repeats *= max(int(lower[:9]), int(upper[:9] or 0), 1)
    if repeats > _MOST_REPEATS:
        return False
    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except pa.ArrowInvalid:
        return False
    return True


def is_name(text: str) -> bool:
    """Return whether a string could be the name of a namespace or host: visible ASCII only, and not too long."""
    return _NAME.fullmatch(text) is not None


def matching(pattern: str, names: Any) -> Any:
    """Return, for each name in an array, whether a regular expression matches the whole name; null for a null name."""
    return pc.match_substring_regex(names, rf"\A(?:{pattern})\z")


@lru_cache(maxsize=1 << 16)
def matches(pattern: str, name: str) -> bool:
    """Return whether a regular expression matches the whole name; for many names, `matching` is faster."""
    return bool(matching(pattern, pa.scalar(name)).as_py())
