"""The report on a cluster's daily upkeep, or on a dry run of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pydantic import JsonValue

LISTED = 20
"""Maximum number of kept entries listed in the log."""


class Step(NamedTuple):
    """One upkeep step; a dry run only reports it.

    Attributes:
        action: `compact` (which also deletes the run folders), `remove runs`, `remove history`, `remove state files`
            or `remove replays`.
        what: the day, the replay, or the kind of files.
        runs: number of deleted run folders.
        files, size: number of deleted files, and their total size in bytes.
    """

    action: str
    what: str
    runs: int
    files: int
    size: int


@dataclass
class Report:
    """All upkeep steps; a dry run only reports them.

    Attributes:
        left: old entries that were not deleted, each with the reason.
        problems: problems that a person should look into. The files involved were not deleted.
    """

    dry_run: bool
    steps: list[Step] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def document(self) -> dict[str, JsonValue]:
        """Return the report as JSON values: totals, steps, and up to a hundred kept entries."""
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
        """Return the report as a plain-text table for the log."""
        lines = [f"{'would' if self.dry_run else 'did':<22}{'what':<14}{'runs':>8}{'files':>10}{'bytes':>18}"]
        lines += [f"{s.action:<22}{s.what:<14}{s.runs:>8}{s.files:>10}{s.size:>18,}" for s in self.steps]
        total = self.document()
        lines.append(f"{'total':<36}{sum(s.runs for s in self.steps):>8}{total['files']:>10}{total['bytes']:>18,}")
        lines += [f"left: {name}: {why}" for name, why in sorted(self.left.items())[:LISTED]]
        if len(self.left) > LISTED:
            lines.append(f"left: {len(self.left) - LISTED} more")
        return "\n".join([*lines, *(f"PROBLEM: {problem}" for problem in self.problems)])
