"""README.md, SECURITY.md, CONTRIBUTING.md and docs/ as a reader copies from them."""

import re
import shlex
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    *(ROOT / name for name in ("README.md", "SECURITY.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
)
_FENCE = re.compile(r"^ *```(?P<language>\w*)\n(?P<body>.*?)^ *```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`\n]+)`")
_PROGRAMS = (
    *("make", "python", "pip", "airflow", "pulsar-rebalancer", "docker", "deploy/make_env", "spark-submit", "uv"),
    *("kubectl", ".venv/bin/pytest", ".venv/bin/python"),
)


class Block(NamedTuple):
    """A fenced block, or a command in running text as one."""

    page: str
    language: str
    body: str


def blocks() -> list[Block]:
    return [
        Block(page.name, found["language"], found["body"])
        for page in PAGES
        for found in _FENCE.finditer(page.read_text(encoding="utf-8"))
    ]


def prose() -> str:
    return "\n".join(_FENCE.sub("", page.read_text(encoding="utf-8")) for page in PAGES)


def spans() -> set[str]:
    return set(_SPAN.findall(prose()))


def commands() -> set[str]:
    """Every command, in shell blocks and in running text, as one line without its comment."""
    found = {span for span in spans() if span.split()[0] in _PROGRAMS and " " in span}
    return found.union(*(commands_in_blocks(page.name) for page in PAGES))


def commands_in_blocks(page: str) -> list[str]:
    return [line for block in blocks() if (block.page, block.language) == (page, "sh") for line in _split(block.body)]


def terminal() -> list[str]:
    return next(block.body.splitlines() for block in blocks() if (block.page, block.language) == ("runs.md", "text"))


def shape(line: str) -> str:
    """A line of the terminal without what differs from run to run."""
    return re.sub(r"\S*\d\S*|(?<=password: )\S+", "#", " ".join(line.split()))


def _split(body: str) -> list[str]:
    """The commands of a shell block; a quoted text may run over several lines."""
    found, waiting = [], ""
    for line in body.splitlines():
        waiting = f"{waiting} {line.strip()}".strip()
        try:
            words = shlex.split(waiting, comments=True)
        except ValueError:  # a quotation goes on
            continue
        if words and not waiting.endswith("\\"):
            found.append(re.sub(r"\s+#.*$", "", waiting))
            waiting = ""
    assert not waiting, f"an open quotation in {body!r}"
    return found
