"""Upkeep of run files: compact past days, and delete files that are older than the settings allow.

It spares today's runs, unfinished runs younger than a day, what the state needs, and others' files.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple, Self

from pydantic import JsonValue

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.run.compacted_tables import TABLE_KINDS, compacted_runs
from pulsar_rebalancer.run.compaction import DayFolder, RunFolder, compact, days_before, foreign_names_in_runs
from pulsar_rebalancer.run.plan import read_plan_state
from pulsar_rebalancer.state import DecisionState
from pulsar_rebalancer.storage.documents import (
    CLIENT_GAPS_FILE,
    LOAD_DATA_FILE,
    ClusterStorage,
    day_of,
    last_committed_run,
    time_of,
)
from pulsar_rebalancer.storage.path import Entry, EntryKind, StoragePath, delete_entries, entries, entries_below, walk

_STATE_FILE = re.compile(r"(?:means|costs)-\d{1,18}-[0-9a-f]{8}\.parquet")
_EXPORT_FILE = re.compile(r"export-(\d{8}T\d{6}Z)\.json")
_CHANGE_FILE = re.compile(r"change-[0-9A-Za-z_.-]+\.json")
_DRAFT_FILE = re.compile(r"\.[A-Za-z0-9=_.-]+\.(?:json|parquet)\.[0-9a-f]{8}")

_GRACE_PERIOD = timedelta(days=1)
"""Minimum age of files to delete: *decide* writes files before *record* commits the state that refers to them."""

_MAX_TIME = datetime.max.replace(tzinfo=UTC)


class NeededData(NamedTuple):
    """The runs and files that must be kept because a cluster's state needs them.

    Attributes:
        plan_names: names of runs whose plans are in the stored state, were committed last, or may still be carried out.
        file_names: names of files in the state folder that the stored state or the last committed plan refers to.
    """

    plan_names: frozenset[str]
    file_names: frozenset[str]

    @classmethod
    def read(cls, storage: ClusterStorage, stored: DecisionState, plan_ids: Collection[str], now: datetime) -> Self:
        """Return what must be kept. Raises SnapshotError if the last committed plan cannot be read."""
        last = last_committed_run(storage, now)
        # A person may restore this plan's state.
        state = read_plan_state(last) if last else stored
        return cls(frozenset({*plan_ids, stored.plan_id, state.plan_id}), stored.file_names | state.file_names)


def delete_unneeded_state_files(folder: StoragePath, needed_files: Collection[str]) -> None:
    for name in folder.entry_names():
        if _STATE_FILE.fullmatch(name) and name not in needed_files:
            (folder / name).delete()


def is_draft(entry: Entry) -> bool:
    return entry.kind is EntryKind.FILE and _DRAFT_FILE.fullmatch(entry.path) is not None


def unneeded_files(
    folder: StoragePath, needed_files: Collection[str], now: datetime, retention_days: int
) -> tuple[dict[str, list[Entry]], list[str]]:
    """Return the deletable entries in a state folder, by kind, and the names of files from other programs.

    The kinds are `means`, `exports` and `drafts`. Never deleted: records of changes, published load data and
    the costs of moves.

    Args:
        needed_files: `NeededData.file_names`.
        retention_days: age in days at which exports are deleted; 0 to keep them forever.
    """
    old: dict[str, list[Entry]] = defaultdict(list)
    foreign = []
    for entry in entries(folder):
        kind = _kind_of_entry(entry)
        if kind is None:
            foreign.append(entry.path)
        elif kind == "exports":
            if retention_days and _written_at(entry) < now - timedelta(days=retention_days):
                old[kind].append(entry)
        elif kind == "means" and entry.path in needed_files:
            continue
        elif kind not in ("changes", "kept"):
            content = _entries_to_delete(folder, entry)
            times = [part.changed_at for part in content if part.changed_at]
            if times and max(times) < now - _GRACE_PERIOD:
                old[kind] += content
    return dict(old), foreign


def _kind_of_entry(entry: Entry) -> str | None:
    if entry.kind is EntryKind.OTHER:
        return None
    if _STATE_FILE.fullmatch(entry.path):
        return "means"  # Spark may write a folder
    if entry.kind is EntryKind.FOLDER:
        return None
    if is_draft(entry):
        return "drafts"
    if entry.path in (LOAD_DATA_FILE, CLIENT_GAPS_FILE):
        return "kept"
    named = {"exports": _EXPORT_FILE, "changes": _CHANGE_FILE}
    return next((kind for kind, pattern in named.items() if pattern.fullmatch(entry.path)), None)


def _entries_to_delete(folder: StoragePath, entry: Entry) -> list[Entry]:
    path = entry.path
    return [entry] if entry.kind is EntryKind.FILE else [entry, *entries_below(path, walk(folder / path))[1:]]


def _written_at(entry: Entry) -> datetime:
    match = _EXPORT_FILE.fullmatch(entry.path)
    try:
        return datetime.strptime(match[1], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC) if match else _MAX_TIME
    except ValueError:
        return _MAX_TIME


MAX_LISTED = 20
"""Maximum number of kept entries listed in the log."""


class UpkeepStep(NamedTuple):
    """One upkeep step; a dry run only reports it.

    Attributes:
        action: `compact` (which also deletes the run folders), `remove runs`, `remove history`,
            `remove state files` or `remove replays`.
        what: the day, the replay, or the kind of files.
        runs, files, size: number of deleted run folders and files, and the files' size in bytes.
    """

    action: str
    what: str
    runs: int
    files: int
    size: int


@dataclass
class UpkeepReport:
    dry_run: bool
    steps: list[UpkeepStep] = field(default_factory=list)
    why_left: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def json_document(self) -> dict[str, JsonValue]:
        return {
            "dry_run": self.dry_run,
            "files": sum(step.files for step in self.steps),
            "bytes": sum(step.size for step in self.steps),
            "steps": [step._asdict() for step in self.steps],
            "left": dict(sorted(self.why_left.items())[:100]),
            "left_count": len(self.why_left),
            "problems": [*self.problems],
        }

    def text_table(self) -> str:
        lines = [f"{'would' if self.dry_run else 'did':<22}{'what':<14}{'runs':>8}{'files':>10}{'bytes':>18}"]
        lines += [f"{s.action:<22}{s.what:<14}{s.runs:>8}{s.files:>10}{s.size:>18,}" for s in self.steps]
        total = self.json_document()
        lines.append(f"{'total':<36}{sum(s.runs for s in self.steps):>8}{total['files']:>10}{total['bytes']:>18,}")
        lines += [f"kept: {name}: {why}" for name, why in sorted(self.why_left.items())[:MAX_LISTED]]
        if len(self.why_left) > MAX_LISTED:
            lines.append(f"kept: {len(self.why_left) - MAX_LISTED} more")
        return "\n".join([*lines, *(f"PROBLEM: {problem}" for problem in self.problems)])


_ONE_DAY = timedelta(days=1)
_NOT_OURS_TEXT = "not written by the rebalancer"


def maintain_storage(
    storage: ClusterStorage, settings: Settings, needs: NeededData, now: datetime, *, dry_run: bool
) -> UpkeepReport:
    upkeep = _Upkeep(storage, settings, needs, now.astimezone(UTC), UpkeepReport(dry_run))
    upkeep.compact_and_delete_runs()
    upkeep.delete_expired_history()
    upkeep.delete_old_state_files()
    upkeep.delete_expired_replays()
    return upkeep.report


def is_expired(day: date, now: datetime, keep_days: int) -> bool:
    """Return whether a day is more than `keep_days` days before today (UTC). If `keep_days` is 0, nothing expires."""
    return keep_days > 0 and (now.date() - day).days > keep_days


@dataclass
class _Upkeep:
    storage: ClusterStorage
    settings: Settings
    needed_data: NeededData
    now: datetime
    report: UpkeepReport

    # runs

    def compact_and_delete_runs(self) -> None:
        for name in foreign_names_in_runs(self.storage):
            self._note_kept(self.storage.runs / name, _NOT_OURS_TEXT)
        for day in days_before(self.storage, self.now.date()):
            for name in day.foreign_names:
                self._note_kept(day.folder / name, _NOT_OURS_TEXT)
            runs = [run for run in day.runs if self._may_delete(run)]
            unwanted = is_expired(day.date, self.now, self.settings.history_days)
            left = runs if unwanted else self._compact_day(day, runs)
            if is_expired(day.date, self.now, self.settings.retention_days):
                self._remove_runs("remove runs", day, left)
            if not self.report.dry_run:
                delete_entries(self.storage.base, day.folder, [], is_whole=False)  # only deletes an empty folder

    def _may_delete(self, run: RunFolder) -> bool:
        if run.name in self.needed_data.plan_names:
            self._note_kept(run.folder, "the state still refers to the run's plan")
            return False
        if not run.has_ended and run.sampled_at > self.now - _ONE_DAY:
            self._note_kept(run.folder, "the run has no outcome yet")
            return False
        return True

    def _compact_day(self, day: DayFolder, runs: Sequence[RunFolder]) -> list[RunFolder]:
        try:
            done = compacted_runs(self.storage, day.date)
            waiting = [run for run in runs if run.name not in done]
            unreadable = compact(self.storage, day.date, waiting, dry_run=self.report.dry_run)
            if self.report.dry_run:
                done |= {run.name for run in waiting} - unreadable.keys()
            else:
                done = compacted_runs(self.storage, day.date)
        except SnapshotError as error:
            self.report.problems.append(f"{day.date}: {error}")
            return []
        for name, why in unreadable.items():
            self._note_kept(day.folder / name, why)
        self._remove_runs("compact", day, [run for run in runs if run.name in done])
        return [run for run in runs if run.name not in done]

    def _remove_runs(self, action: str, day: DayFolder, runs: Sequence[RunFolder]) -> None:
        if not runs:
            return
        self._add_step(action, day.date.isoformat(), len(runs), [entry for run in runs for entry in run.own_entries])
        for run in runs:
            for name in run.foreign_names:
                self._note_kept(run.folder / name, _NOT_OURS_TEXT)
        if self.report.dry_run:
            return
        whole_day = len(runs) == len(day.runs) and not day.foreign_names and not any(run.foreign_names for run in runs)
        if whole_day:
            content = [entry for run in runs for entry in entries_below(run.name, run.own_entries)]
            delete_entries(self.storage.base, day.folder, content, is_whole=True)
        else:
            for run in runs:
                delete_entries(self.storage.base, run.folder, run.own_entries, is_whole=not run.foreign_names)

    # history

    def delete_expired_history(self) -> None:
        gone: dict[str, list[tuple[StoragePath, Entry]]] = defaultdict(list)
        top = self.storage.base / "history"
        kinds = {entry.path for entry in entries(top) if entry.kind is EntryKind.FOLDER}
        for kind in reversed(TABLE_KINDS):  # `runs` first: all runs that it lists must be complete
            if kind not in kinds:
                continue
            folder = top / kind
            for entry in entries(folder):
                day = day_of(entry.path.removesuffix(".parquet"))
                if entry.kind is EntryKind.FILE and day is not None:
                    if is_expired(day, self.now, self.settings.history_days):
                        gone[day.isoformat()].append((folder, entry))
                elif is_draft(entry):
                    if entry.changed_at is not None and entry.changed_at < self.now - _ONE_DAY:
                        gone["drafts"].append((folder, entry))
                else:
                    self._note_kept(folder / entry.path, _NOT_OURS_TEXT)
        for what, files in sorted(gone.items()):
            self._add_step("remove history", what, 0, (entry for _, entry in files))
            for folder, entry in files if not self.report.dry_run else ():
                delete_entries(self.storage.base, folder, [entry], is_whole=False)

    # state

    def delete_old_state_files(self) -> None:
        folder = self.storage.state
        old, foreign = unneeded_files(folder, self.needed_data.file_names, self.now, self.settings.retention_days)
        for name in foreign:
            self._note_kept(folder / name, _NOT_OURS_TEXT)
        for what, content in old.items():
            self._remove("remove state files", what, folder, content, is_whole=False)

    # replays

    def delete_expired_replays(self) -> None:
        for entry in entries(self.storage.replays):
            at = time_of(entry.path)
            if entry.kind is not EntryKind.FOLDER or at is None:
                self._note_kept(self.storage.replays / entry.path, _NOT_OURS_TEXT)
            elif is_expired(at.date(), self.now, self.settings.retention_days):
                folder = self.storage.replays / entry.path
                self._remove("remove replays", entry.path, folder, walk(folder), is_whole=True)

    # report

    def _remove(self, action: str, item: str, folder: StoragePath, content: Sequence[Entry], *, is_whole: bool) -> None:
        self._add_step(action, item, 0, content)
        if not self.report.dry_run:
            delete_entries(self.storage.base, folder, content, is_whole=is_whole)

    def _add_step(self, action: str, item: str, run_count: int, content: Iterable[Entry]) -> None:
        sizes = [entry.size for entry in content if entry.kind is EntryKind.FILE]
        self.report.steps.append(UpkeepStep(action, item, run_count, len(sizes), sum(sizes)))

    def _note_kept(self, folder: StoragePath, reason_text: str) -> None:
        self.report.why_left[folder.uri.removeprefix(f"{self.storage.base.uri}/")] = reason_text
