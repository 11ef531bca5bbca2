"""Results of parts, kept as files, and which of them may be on one page."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime

from pydantic import TypeAdapter, ValidationError

from lab.benchmarks.conditions import DIRTY, commit, machine
from lab.benchmarks.measure import ROOT, BenchmarkError, Comparison

PARTS = ("interval", "decide", "steps", "unload", "collect", "validate", "browser", "replay")
FOLDER = ROOT / ".benchmarks"


@dataclass(frozen=True)
class Result:
    """The result of measuring a part.

    Attributes:
        commit: commit of the sources; ends in `-dirty` if they had uncommitted changes.
        machine: processor, memory, system and versions.
        load: load of the machine before the part.
    """

    part: str
    commit: str
    machine: str
    load: float
    at: datetime
    repetitions: int
    comparisons: list[Comparison]

    def keep(self) -> None:
        """Replace the part's earlier result."""
        FOLDER.mkdir(exist_ok=True)
        (FOLDER / f"{self.part}.json").write_bytes(_JSON.dump_json(self, indent=1))


_JSON = TypeAdapter(Result)


def kept() -> dict[str, Result]:
    """Return results by part; a file of an earlier format counts as not measured."""
    results = {}
    for part in PARTS:
        try:
            results[part] = _JSON.validate_json((FOLDER / f"{part}.json").read_bytes())
        except (FileNotFoundError, ValidationError):
            continue
    return results


def of_one_run() -> list[Result]:
    """Return the results of all parts, measured at one commit on one machine.

    Raises:
        BenchmarkError: they differ; the message says how, and which command measures the part again.
    """
    results = kept()
    reasons = [f"not measured: {part}" for part in PARTS if part not in results]
    reasons += [f"measured with uncommitted changes: {each.part}" for each in results.values() if DIRTY in each.commit]
    for what in ("commit", "machine"):
        parts = defaultdict(list)
        for result in results.values():
            parts[getattr(result, what)].append(result.part)
        if len(parts) > 1:
            by_value = "; ".join(f"{value}: {', '.join(names)}" for value, names in parts.items())
            reasons.append(f"measured on different {what}s: {by_value}")
    if reasons:
        here = (commit().removesuffix(DIRTY), machine())
        again = [part for part in PARTS if part not in results or (results[part].commit, results[part].machine) != here]
        parts_again = "" if len(again) == len(PARTS) else f' PART="{" ".join(again)}"'
        reasons.append(f"commit or stash all changes, then run make benchmark{parts_again}")
        raise BenchmarkError("\n  ".join(["docs/performance.md stays as it is:", *reasons]))
    return list(results.values())
