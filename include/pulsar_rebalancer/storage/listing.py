"""List and delete the contents of a cluster's folders. Symbolic links are listed but never followed."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.fs as pafs

from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.storage.path import failures_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pulsar_rebalancer.storage.path import StoragePath


class Kind(StrEnum):
    """The kind of an entry in a folder."""

    FILE = "file"
    FOLDER = "folder"
    OTHER = "other"  # a symbolic link, a socket, a device: never followed, never deleted


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry below a folder.

    Attributes:
        path: path relative to the listed folder, with `/` as separator.
        size: size in bytes; 0 if the entry is not a file.
        changed_at: time of the last change; None if unknown, as for most folders in object stores.
    """

    path: str
    kind: Kind
    size: int = 0
    changed_at: datetime | None = None


def entries(folder: StoragePath) -> list[Entry]:
    """Return a folder's direct entries, sorted by name; empty if the folder does not exist or is a link."""
    return _listed(folder, deep=False)


def walk(folder: StoragePath) -> list[Entry]:
    """Return all entries below a folder, folders before their contents; links are listed but not followed."""
    return _listed(folder, deep=True)


def _listed(folder: StoragePath, *, deep: bool) -> list[Entry]:
    file_system, path = folder.open()
    with failures_of(folder.uri, "listed"):
        if isinstance(file_system, pafs.LocalFileSystem):
            return list(_local(Path(path), "", deep=deep))
        infos = file_system.get_file_info(pafs.FileSelector(path, allow_not_found=True, recursive=deep))
    kinds = {pafs.FileType.File: Kind.FILE, pafs.FileType.Directory: Kind.FOLDER}
    listed = [
        Entry(info.path[len(path) :].strip("/"), kinds.get(info.type, Kind.OTHER), info.size or 0, info.mtime)
        for info in infos
    ]
    return sorted(listed, key=lambda entry: entry.path)


def _local(top: Path, prefix: str, *, deep: bool) -> Iterator[Entry]:
    # Others may delete entries during the listing; this is not an error.
    try:
        if not stat.S_ISDIR(top.lstat().st_mode):
            return
        with os.scandir(top) as scanned:
            children = sorted(scanned, key=lambda child: child.name)
    except FileNotFoundError:
        return
    for child in children:
        path = f"{prefix}{child.name}"
        try:
            status = child.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue
        changed_at = datetime.fromtimestamp(status.st_mtime, UTC)
        if stat.S_ISDIR(status.st_mode):
            yield Entry(path, Kind.FOLDER, 0, changed_at)
            if deep:
                yield from _local(Path(child.path), f"{path}/", deep=True)
        elif stat.S_ISREG(status.st_mode):
            yield Entry(path, Kind.FILE, status.st_size, changed_at)
        else:
            yield Entry(path, Kind.OTHER)


def below(name: str, content: Iterable[Entry]) -> list[Entry]:
    """Return the entries for a folder and everything below it. Paths are relative to the folder's parent."""
    return [Entry(name, Kind.FOLDER), *(replace(entry, path=f"{name}/{entry.path}") for entry in content)]


def remove(base: StoragePath, folder: StoragePath, content: Sequence[Entry], *, whole: bool) -> None:
    """Delete entries from a folder, then the folder itself if it is empty.

    Missing entries are ignored, so a second attempt can complete an interrupted first attempt.

    Args:
        base: the cluster's folder; nothing outside this folder is deleted.
        folder: the folder to delete from, below `base`.
        content: entries to delete, from `walk` or `entries`; entries that are neither files nor folders are kept.
        whole: True if `content` is everything in the folder. An object store can then delete the folder in just a few
            requests.

    Raises:
        SnapshotError: `file_damaged` if a path is outside the cluster's folder, or `storage_failed`.
    """
    file_system, path = folder.open()
    with failures_of(folder.uri, "emptied"):
        if isinstance(file_system, pafs.LocalFileSystem):
            _remove_local(Path(base.open()[1]), Path(path), content)
        elif whole:
            with suppress(FileNotFoundError):
                file_system.delete_dir(path)
        else:
            for entry in content:
                if entry.kind is Kind.FILE:
                    with suppress(FileNotFoundError):
                        file_system.delete_file(f"{path}/{entry.path}")


def _remove_local(base: Path, folder: Path, content: Sequence[Entry]) -> None:
    files = [folder / entry.path for entry in content if entry.kind is Kind.FILE]
    folders = [folder, *(folder / entry.path for entry in content if entry.kind is Kind.FOLDER)]
    _check_inside(base.resolve(), {file.parent for file in files} | set(folders))
    for file in files:
        file.unlink(missing_ok=True)
    for emptied in sorted(folders, key=lambda path: len(path.parts), reverse=True):
        with suppress(OSError):  # it holds something that is not ours, or no longer exists
            emptied.rmdir()


def _check_inside(base: Path, folders: Iterable[Path]) -> None:
    for folder in folders:
        real = folder.resolve()
        if not real.is_relative_to(base) or real == base:
            raise SnapshotError(
                Reason.FILE_DAMAGED, f"{folder} leads to {real}, outside {base}: nothing was deleted there"
            )
