"""Upkeep of run files: compact past days, and delete files that are older than the settings allow.

Upkeep never changes today's runs, unfinished runs younger than a day, runs whose plan is in the state, files that the
state refers to, or files from other programs.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, timedelta
from typing import TYPE_CHECKING

from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.maintenance.compaction import compact
from pulsar_rebalancer.maintenance.inventory import days_before, names_of_others
from pulsar_rebalancer.maintenance.state_files import is_draft, unneeded_files
from pulsar_rebalancer.maintenance.upkeep_report import Report, Step
from pulsar_rebalancer.run.compacted_tables import KINDS, complete_runs
from pulsar_rebalancer.storage.layout import day_of, time_of
from pulsar_rebalancer.storage.listing import Entry, Kind, below, entries, remove, walk

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import date, datetime

    from pulsar_rebalancer.config.settings import Settings
    from pulsar_rebalancer.maintenance.inventory import Day, RunFolder
    from pulsar_rebalancer.maintenance.state_files import Needed
    from pulsar_rebalancer.storage.layout import ClusterStorage
    from pulsar_rebalancer.storage.path import StoragePath

_DAY = timedelta(days=1)
_NOT_OURS = "not the rebalancer's"


def maintain(storage: ClusterStorage, settings: Settings, needed: Needed, now: datetime, *, dry_run: bool) -> Report:
    """Compact and delete the files that have reached their age limit, and return a report.

    If a call is interrupted, the next call completes the work.

    Args:
        settings: `compact_after_days`, `retention_days` and `history_days` are used.
        dry_run: True to report only and change nothing.
    """
    upkeep = _Upkeep(storage, settings, needed, now.astimezone(UTC), Report(dry_run))
    upkeep.runs()
    upkeep.history()
    upkeep.state()
    upkeep.replays()
    return upkeep.report


def expired(day: date, now: datetime, days: int) -> bool:
    """Return whether a day is more than `days` days before today (UTC). If `days` is 0, nothing expires."""
    return days > 0 and (now.date() - day).days > days


@dataclass
class _Upkeep:
    storage: ClusterStorage
    settings: Settings
    needed: Needed
    now: datetime
    report: Report

    # runs

    def runs(self) -> None:
        for name in names_of_others(self.storage):
            self._leave(self.storage.runs / name, _NOT_OURS)
        for day in days_before(self.storage, self.now.date()):
            for name in day.foreign:
                self._leave(day.folder / name, _NOT_OURS)
            runs = [run for run in day.runs if self._may_go(run)]
            left = self._compact(day, runs) if self._compacts(day.date) else runs
            if expired(day.date, self.now, self.settings.retention_days):
                self._remove_runs("remove runs", day, left)
            if not self.report.dry_run:
                remove(self.storage.base, day.folder, [], whole=False)  # only deletes an empty folder

    def _may_go(self, run: RunFolder) -> bool:
        if run.name in self.needed.plans:
            self._leave(run.folder, "the state holds its plan")
            return False
        if not run.ended and run.at > self.now - _DAY:
            self._leave(run.folder, "it has no outcome yet")
            return False
        return True

    def _compacts(self, day: date) -> bool:
        settings = self.settings
        due = 0 < settings.compact_after_days <= (self.now.date() - day).days
        return due and not expired(day, self.now, settings.history_days)

    def _compact(self, day: Day, runs: Sequence[RunFolder]) -> list[RunFolder]:
        """Compact a day; return the runs that cannot be compacted. These runs are deleted only when they expire."""
        try:
            done = complete_runs(self.storage, day.date)
            waiting = [run for run in runs if run.name not in done]
            unreadable = compact(self.storage, day.date, waiting, dry_run=self.report.dry_run)
            if self.report.dry_run:
                done |= {run.name for run in waiting} - unreadable.keys()
            else:
                done = complete_runs(self.storage, day.date)
        except SnapshotError as error:
            self.report.problems.append(f"{day.date}: {error}")
            return []
        for name, why in unreadable.items():
            self._leave(day.folder / name, why)
        self._remove_runs("compact", day, [run for run in runs if run.name in done])
        return [run for run in runs if run.name not in done]

    def _remove_runs(self, action: str, day: Day, runs: Sequence[RunFolder]) -> None:
        if not runs:
            return
        self._note(action, day.date.isoformat(), len(runs), [entry for run in runs for entry in run.ours])
        for run in runs:
            for name in run.foreign:
                self._leave(run.folder / name, _NOT_OURS)
        if self.report.dry_run:
            return
        whole_day = len(runs) == len(day.runs) and not day.foreign and not any(run.foreign for run in runs)
        if whole_day:
            content = [entry for run in runs for entry in below(run.name, run.ours)]
            remove(self.storage.base, day.folder, content, whole=True)
        else:
            for run in runs:
                remove(self.storage.base, run.folder, run.ours, whole=not run.foreign)

    # history

    def history(self) -> None:
        gone: dict[str, list[tuple[StoragePath, Entry]]] = defaultdict(list)
        top = self.storage.base / "history"
        kinds = {entry.path for entry in entries(top) if entry.kind is Kind.FOLDER}
        for kind in reversed(KINDS):  # `runs` first: all runs that it lists must be complete
            if kind not in kinds:
                continue
            folder = top / kind
            for entry in entries(folder):
                day = day_of(entry.path.removesuffix(".parquet"))
                if entry.kind is Kind.FILE and day is not None:
                    if expired(day, self.now, self.settings.history_days):
                        gone[day.isoformat()].append((folder, entry))
                elif is_draft(entry):
                    if entry.changed_at is not None and entry.changed_at < self.now - _DAY:
                        gone["drafts"].append((folder, entry))
                else:
                    self._leave(folder / entry.path, _NOT_OURS)
        for what, files in sorted(gone.items()):
            self._note("remove history", what, 0, (entry for _, entry in files))
            for folder, entry in files if not self.report.dry_run else ():
                remove(self.storage.base, folder, [entry], whole=False)

    # state

    def state(self) -> None:
        folder = self.storage.state
        old, foreign = unneeded_files(folder, self.needed.files, self.now, self.settings.retention_days)
        for name in foreign:
            self._leave(folder / name, _NOT_OURS)
        for what, content in old.items():
            self._remove("remove state files", what, folder, content, whole=False)

    # replays

    def replays(self) -> None:
        for entry in entries(self.storage.replays):
            at = time_of(entry.path)
            if entry.kind is not Kind.FOLDER or at is None:
                self._leave(self.storage.replays / entry.path, _NOT_OURS)
            elif expired(at.date(), self.now, self.settings.retention_days):
                folder = self.storage.replays / entry.path
                self._remove("remove replays", entry.path, folder, walk(folder), whole=True)

    # report

    def _remove(self, action: str, what: str, folder: StoragePath, content: Sequence[Entry], *, whole: bool) -> None:
        self._note(action, what, 0, content)
        if not self.report.dry_run:
            remove(self.storage.base, folder, content, whole=whole)

    def _note(self, action: str, what: str, runs: int, content: Iterable[Entry]) -> None:
        sizes = [entry.size for entry in content if entry.kind is Kind.FILE]
        self.report.steps.append(Step(action, what, runs, len(sizes), sum(sizes)))

    def _leave(self, folder: StoragePath, why: str) -> None:
        self.report.left[folder.uri.removeprefix(f"{self.storage.base.uri}/")] = why
