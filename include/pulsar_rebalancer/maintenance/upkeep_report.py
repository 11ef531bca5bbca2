"""What daily upkeep did to a cluster's files, or would do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pydantic import JsonValue

LISTED = 20
"""How many things that were left the log names one by one."""


class Step(NamedTuple):
    """One thing that was done, or would be.

    Attributes:
        action: `compact` (and remove the folders), `remove runs`, `remove history` or `remove state files`.
        what: a day, or the kind of state files.
        runs: run folders that go.
        files, size: files that go, and their bytes.
    """

    action: str
    what: str
    runs: int
    files: int
    size: int


@dataclass
class Report:
    """What upkeep did, or would do.

    Attributes:
        left: what is old and stays, with the reason.
        problems: what a person has to look at; nothing of it was deleted.
    """

    dry_run: bool
    steps: list[Step] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def document(self) -> dict[str, JsonValue]:
        """Return the report in JSON's types: totals, steps, and at most a hundred of what was left."""
        return {
            "dry_run": self.dry_run,
            "files": sum(step.files for step in self.steps),
            "bytes": sum(step.size for step in self.steps),
            "steps": [step._asdict() for step in self.steps],
            "left": dict(sorted(self.left.items())[:100]),
            "left_count": len(self.left),
            "problems": [*self.problems],
        }

    def table(self) -> str:
        """Return the report as a table for the log."""
        lines = [f"{'would' if self.dry_run else 'did':<22}{'what':<14}{'runs':>8}{'files':>10}{'bytes':>18}"]
        lines += [f"{s.action:<22}{s.what:<14}{s.runs:>8}{s.files:>10}{s.size:>18,}" for s in self.steps]
        total = self.document()
        lines.append(f"{'total':<36}{sum(s.runs for s in self.steps):>8}{total['files']:>10}{total['bytes']:>18,}")
        lines += [f"left: {name}: {why}" for name, why in sorted(self.left.items())[:LISTED]]
        if len(self.left) > LISTED:
            lines.append(f"left: {len(self.left) - LISTED} more")
        return "\n".join([*lines, *(f"PROBLEM: {problem}" for problem in self.problems)])
