"""Committed trials of measurements that take hours, and the pages that show them."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from datetime import datetime  # noqa: TC003 - pydantic reads it
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydantic import TypeAdapter

from benchmarks.conditions import machine
from benchmarks.page import renewed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from tests.pulsar.load import TopicReport


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Where and when a trial was made, and its messages.

    Attributes:
        settings: numbers that determine the load and the length.
        errors: messages that a producer gave up.
        received: messages that the consumers have seen, each counted once.
    """

    at: datetime
    commit: str
    machine: str
    settings: dict[str, Any]
    sent: int
    acked: int
    received: int
    errors: int


Kind = TypeVar("Kind", bound=Trial)


@dataclass(frozen=True)
class Trials(Generic[Kind]):
    """The file of all trials of a measurement, in the order in which they were made, and the page with their table.

    Attributes:
        part: name of the page's markers.
        table: writes the table as Markdown.
    """

    kind: type[Kind]
    file: Path
    document: Path
    part: str
    table: Callable[[list[Kind]], str]

    def read(self) -> list[Kind]:
        """Return the committed trials."""
        rows = json.loads(self.file.read_bytes()) if self.file.exists() else []
        return [TypeAdapter(self.kind).validate_python(row) for row in rows]

    def write(self, trials: list[Kind]) -> None:
        """Replace the committed trials, and renew the page."""
        lines = (TypeAdapter(self.kind).dump_json(trial).decode() for trial in trials)
        self.file.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")
        self.document.write_text(self.page(trials), encoding="utf-8")

    def page(self, trials: list[Kind]) -> str:
        """Return the document with these trials."""
        text = self.document.read_text(encoding="utf-8")
        return renewed(text, self.part, "\n\n".join([self.table(trials), *conditions(trials)]))


def conditions(trials: Sequence[Trial]) -> list[str]:
    """Return where and when it was measured; nothing without trials."""
    if not trials:
        return []
    commits = " and ".join(f"`{commit}`" for commit in dict.fromkeys(trial.commit for trial in trials))
    machines = "; ".join(dict.fromkeys(trial.machine for trial in trials))
    return [f"Measured at commit {commits} on {machines}; {max(trial.at for trial in trials):%Y-%m-%d}."]


def lost(trials: Iterable[Trial]) -> int:
    """Return the number of messages that a broker acknowledged and no consumer has seen."""
    return sum(trial.acked - trial.received for trial in trials)


def facts(at: datetime, sources: str, reports: Mapping[str, TopicReport]) -> dict[str, Any]:
    """Return what every trial has but its settings: where and when it was made, and the messages of all topics."""
    names = ("sent", "acked", "received", "errors")
    messages = {name: sum(getattr(report, name) for report in reports.values()) for name in names}
    return {"at": at, "commit": sources, "machine": machine(), **messages}


def options_of(program: str, text: str) -> argparse.ArgumentParser:
    """Return the parser of a program's options; its docstring is the help."""
    summary, _, rest = text.partition("\n")
    return argparse.ArgumentParser(prog=f"python -m {program}", description=summary.partition(":")[0], epilog=rest)


def verdict(goal: str, met: bool) -> str:
    """Return a goal, and whether it is met."""
    return f"{goal}: {'met' if met else '**missed**'}"
