"""Parts of pages that programs write: what is between two markers, pictures, tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def between(marks: str, content: str, text: str) -> str:
    """Return the text with other content between its marks."""
    begin, end = f"<!-- {marks} -->\n", f"<!-- /{marks} -->"
    before, _, rest = text.partition(begin)
    return f"{before}{begin}\n{content}\n\n{end}{rest.partition(end)[2]}"


def picture(name: str, words: str) -> str:
    """Return a picture of `docs/pictures` for light and dark pages, with words for those who do not see it."""
    return (
        f'<picture>\n  <source media="(prefers-color-scheme: dark)" srcset="pictures/{name}-dark.svg">\n'
        f'  <img src="pictures/{name}-light.svg" alt="{words}">\n</picture>'
    )


def table(lines: Iterable[Sequence[str]]) -> str:
    """Return a table; the second line is `---` in each column."""
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
