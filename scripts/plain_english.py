"""Find phrases that a native engineer would not write, in texts of product, docs and page; `make lint` runs it.

Of Python files only comments and strings are read. Names are exempt: text in `backticks`, and `name:` at the start of a
line.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("dags", "deploy", "docs", "expectations", "include", "plugins", "scripts", "spark_apps")
PLACES = ("*.md", "Makefile", *FOLDERS, "lab/*.py", "lab/*.toml")
SUFFIXES = {".css", ".html", ".js", ".json", ".md", ".py", ".sh", ".toml", ".yaml", ""}
TEXTS = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}

INSTEAD = {
    r"tell|tells|told|telling": "report, say or show",
    r"alone": "only",
    r"anew": "again",
    r"likewise": "also",
    r"besides?": "with or next to",
    r"so many": "the number of",
    r"whoever": "anyone who",
    r"stands?|stood|lies": "is",
    r"what (became|becomes) of": "the outcome of",
    r"as (\w+ as|far as) can be": "as … as possible",
    r"of late|lately": "recently",
    r"suffices?": "is enough",
    r"to and fro": "back and forth",
    r"again and again": "repeatedly",
}
"""What to write instead, by pattern."""

_GAP = r"""(?: |[ "']*\n[ #/*>"'f]*)"""
"""A space, or the end of a line and what starts the next one in a comment, a string or a quotation."""

_PHRASES = {
    re.compile(rf"\b(?:{pattern.replace(' ', _GAP)})\b", re.IGNORECASE): instead for pattern, instead in INSTEAD.items()
}
_NAME = re.compile(r"`[^`\n]*`|^[^\S\n]*\w+:", re.MULTILINE)


def phrases_in(text: str) -> list[tuple[int, str, str]]:
    """Return line number, phrase and replacement of each phrase in a text."""
    prose = _NAME.sub("", text)
    return sorted(
        (prose.count("\n", 0, match.start()) + 1, " ".join(re.findall(r"\w+", match.group())), instead)
        for phrase, instead in _PHRASES.items()
        for match in phrase.finditer(prose)
    )


def prose_of(file: Path) -> str:
    """Return the text of a file; of a Python file its comments and strings, each in its line."""
    if file.suffix != ".py":
        return file.read_text(encoding="utf-8")
    lines: dict[int, str] = {}
    with tokenize.open(file) as source:
        for token in tokenize.generate_tokens(source.readline):
            if token.type in TEXTS and not re.fullmatch(r"""[rbf]?["']\w*["']""", token.string):  # a key is a name
                for number, line in enumerate(token.string.split("\n"), start=token.start[0]):
                    lines[number] = f"{lines.get(number, '')} {line}"
    return "\n".join(lines.get(number, "") for number in range(1, max(lines, default=0) + 1))


def main() -> int:
    """Print every phrase with its place; 1 when there is one."""
    listed = subprocess.run(["git", "ls-files", *PLACES], cwd=ROOT, capture_output=True, text=True, check=True)
    files = [ROOT / name for name in listed.stdout.splitlines()]
    texts = [file for file in files if file.suffix in SUFFIXES and file != Path(__file__).resolve() and file.is_file()]
    findings = [(file.relative_to(ROOT), *phrase) for file in texts for phrase in phrases_in(prose_of(file))]
    for file, line, phrase, instead in findings:
        print(f"{file}:{line}: {phrase!r}: write {instead}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
