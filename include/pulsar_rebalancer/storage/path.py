"""Paths under the storage root, to which every Airflow worker and Spark executor needs access.

The root is a local folder, a shared volume or an object store (`s3://…`, `gs://…`).
"""

from __future__ import annotations

import json
import os
import secrets
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.texts import require_storable

ROWS_PER_GROUP = 100_000
"""Rows per row group in a Parquet file; Spark tasks can each read different row groups."""


@dataclass(frozen=True)
class StoragePath:
    """The address of a file or folder: a local path or object-store URI, without a trailing slash.

    Methods that access storage raise SnapshotError `storage_failed`.
    """

    uri: str

    def __truediv__(self, name: str) -> StoragePath:
        return StoragePath(f"{self.uri}/{name}")

    @property
    def name(self) -> str:
        return self.uri.rsplit("/", 1)[-1]

    def sibling(self, name: str) -> StoragePath:
        return StoragePath(f"{self.uri.rsplit('/', 1)[0]}/{name}")

    @property
    def spark_uri(self) -> str:
        """The path in the form that Spark expects: Hadoop's S3 client uses the scheme `s3a`."""
        return "s3a" + self.uri.removeprefix("s3") if self.uri.startswith("s3://") else self.uri

    def filesystem_and_path(self) -> tuple[pafs.FileSystem, str]:
        if "://" in self.uri:
            file_system, path = pafs.FileSystem.from_uri(self.uri.replace("s3a://", "s3://", 1))
            return file_system, path
        return pafs.LocalFileSystem(), str(Path(self.uri).absolute())

    def exists(self) -> bool:
        file_system, path = self.filesystem_and_path()
        with convert_io_errors(self.uri, "accessed"):
            return file_system.get_file_info(path).type != pafs.FileType.NotFound

    def entry_names(self) -> list[str]:
        file_system, path = self.filesystem_and_path()
        with convert_io_errors(self.uri, "listed"):
            infos = file_system.get_file_info(pafs.FileSelector(path, allow_not_found=True))
        return sorted(info.base_name for info in infos)

    def delete(self) -> None:
        file_system, path = self.filesystem_and_path()
        with convert_io_errors(self.uri, "deleted"):
            kind = file_system.get_file_info(path).type
            if kind == pafs.FileType.Directory:
                file_system.delete_dir(path)
            elif kind == pafs.FileType.File:
                file_system.delete_file(path)

    def write_bytes(self, data: bytes) -> None:
        """Write a file atomically; on failure, an existing file is unchanged.

        On a local disk, only the file's owner may read it.
        """
        file_system, path = self.filesystem_and_path()
        with convert_io_errors(self.uri, "written"):
            if isinstance(file_system, pafs.LocalFileSystem):
                _write_local(Path(path), data)
                return
            with file_system.open_output_stream(path) as out:
                out.write(data)

    def read_bytes(self) -> bytes:
        file_system, path = self.filesystem_and_path()
        with convert_io_errors(self.uri, "read"), file_system.open_input_stream(path) as source:
            return bytes(source.read())

    def write_json(self, document: Any) -> None:
        self.write_bytes(json.dumps(document, sort_keys=True, indent=1, allow_nan=False, default=str).encode())

    def read_json(self) -> Any:
        """Return the JSON document in the file; NaN, infinities and lone surrogates are rejected.

        Raises SnapshotError `file_missing`, `file_damaged` or `storage_failed`.
        """
        return json_document(self.read_bytes(), self.uri)

    def write_table(self, table: pa.Table) -> None:
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd", row_group_size=ROWS_PER_GROUP)
        self.write_bytes(sink.getvalue().to_pybytes())

    def read_table(self, columns: list[str] | None = None) -> pa.Table:
        """Return the table in a Parquet file, or in a folder of Parquet files that Spark wrote.

        Raises SnapshotError `file_missing`, `file_damaged` or `storage_failed`.
        """
        with convert_io_errors(self.uri, "read"), convert_damage_errors(self.uri):
            # Spark may mark a column as never null in one part and not in another.
            table = pa.concat_tables((part.read(columns) for part in self._parquet_files()), promote_options="default")
            table.validate(full=True)
        return table

    def read_batches(self, columns: list[str] | None = None) -> Iterator[pa.Table]:
        with convert_io_errors(self.uri, "read"), convert_damage_errors(self.uri):
            for part in self._parquet_files():
                for batch in part.iter_batches(columns=columns):
                    yield pa.Table.from_batches([batch])

    def _parquet_files(self) -> Iterator[pq.ParquetFile]:
        file_system, path = self.filesystem_and_path()
        is_folder = file_system.get_file_info(path).type == pafs.FileType.Directory
        parts = [f"{path}/{name}" for name in self.entry_names() if name[0] not in "._"] if is_folder else [path]
        for part in parts:
            # Not `pq.read_table`, which imports pandas.
            with pq.ParquetFile(part, filesystem=file_system) as source:
                yield source


def json_document(data: bytes | str, label: str) -> Any:
    try:
        document = json.loads(data)
        require_storable(document)
    except (ValueError, RecursionError):
        raise SnapshotError(Reason.FILE_DAMAGED, f"{label} is not a JSON document") from None
    return document


@contextmanager
def convert_io_errors(uri: str, action: str) -> Iterator[None]:
    """Convert file system errors to SnapshotError `file_missing` or `storage_failed`.

    `action` is a participle for the message "cannot be …", such as "listed".
    """
    try:
        yield
    except OSError as error:
        if isinstance(error, FileNotFoundError | IsADirectoryError):
            raise SnapshotError(Reason.FILE_MISSING, f"{uri} does not exist, or is not a file") from None
        # The error's own text may quote secrets from an address.
        why = os.strerror(error.errno) if error.errno else type(error).__name__
        raise SnapshotError(Reason.STORAGE_FAILED, f"{uri} cannot be {action}: {why}") from None


@contextmanager
def convert_damage_errors(uri: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, ValueError, OSError) as error:
        # Parquet reports damaged content as an OSError without a number.
        if isinstance(error, FileNotFoundError) or getattr(error, "errno", None):
            raise
        raise SnapshotError(Reason.FILE_DAMAGED, f"{uri} cannot be read ({type(error).__name__})") from None


def make_private_folder(folder: Path) -> None:
    """Create a local folder and its parents, accessible only to the owner regardless of the umask."""
    for missing in reversed([path for path in (folder, *folder.parents) if not path.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)


def _write_local(path: Path, data: bytes) -> None:
    make_private_folder(path.parent)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink()  # on a full disk it would leave no room for the next write
        raise


class EntryKind(StrEnum):
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
    kind: EntryKind
    size: int = 0
    changed_at: datetime | None = None


def entries(folder: StoragePath) -> list[Entry]:
    """Return a folder's direct entries, sorted by name; empty if the folder does not exist or is a link."""
    return _list_entries(folder, recursive=False)


def walk(folder: StoragePath) -> list[Entry]:
    """Return all entries below a folder, folders before their contents; links are listed but not followed."""
    return _list_entries(folder, recursive=True)


def _list_entries(folder: StoragePath, *, recursive: bool) -> list[Entry]:
    file_system, path = folder.filesystem_and_path()
    with convert_io_errors(folder.uri, "listed"):
        if isinstance(file_system, pafs.LocalFileSystem):
            return list(_local_entries(Path(path), "", recursive=recursive))
        infos = file_system.get_file_info(pafs.FileSelector(path, allow_not_found=True, recursive=recursive))
    kinds = {pafs.FileType.File: EntryKind.FILE, pafs.FileType.Directory: EntryKind.FOLDER}
    listed = [
        Entry(info.path[len(path) :].strip("/"), kinds.get(info.type, EntryKind.OTHER), info.size or 0, info.mtime)
        for info in infos
    ]
    return sorted(listed, key=lambda entry: entry.path)


def _local_entries(folder: Path, prefix: str, *, recursive: bool) -> Iterator[Entry]:
    # Others may delete entries during the listing; this is not an error.
    try:
        if not stat.S_ISDIR(folder.lstat().st_mode):
            return
        with os.scandir(folder) as scanned:
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
            yield Entry(path, EntryKind.FOLDER, 0, changed_at)
            if recursive:
                yield from _local_entries(Path(child.path), f"{path}/", recursive=True)
        elif stat.S_ISREG(status.st_mode):
            yield Entry(path, EntryKind.FILE, status.st_size, changed_at)
        else:
            yield Entry(path, EntryKind.OTHER)


def entries_below(name: str, content: Iterable[Entry]) -> list[Entry]:
    """Return the entries for a folder and all below it, with paths relative to the folder's parent."""
    return [Entry(name, EntryKind.FOLDER), *(replace(entry, path=f"{name}/{entry.path}") for entry in content)]


def delete_entries(root: StoragePath, folder: StoragePath, content: Sequence[Entry], *, is_whole: bool) -> None:
    """Delete entries from a folder, then the folder itself if it is empty.

    Missing entries are ignored, so a second attempt can complete an interrupted first one. Raises
    SnapshotError `storage_failed`, or `file_damaged` if a path is outside the cluster's folder.

    Args:
        root: the cluster's folder; nothing outside this folder is deleted.
        content: entries to delete; those that are neither files nor folders are kept.
        is_whole: True if `content` is everything in the folder; an object store then needs few requests.
    """
    file_system, path = folder.filesystem_and_path()
    with convert_io_errors(folder.uri, "emptied"):
        if isinstance(file_system, pafs.LocalFileSystem):
            _remove_local(Path(root.filesystem_and_path()[1]), Path(path), content)
        elif is_whole:
            with suppress(FileNotFoundError):
                file_system.delete_dir(path)
        else:
            for entry in content:
                if entry.kind is EntryKind.FILE:
                    with suppress(FileNotFoundError):
                        file_system.delete_file(f"{path}/{entry.path}")


def _remove_local(root: Path, folder: Path, content: Sequence[Entry]) -> None:
    files = [folder / entry.path for entry in content if entry.kind is EntryKind.FILE]
    folders = [folder, *(folder / entry.path for entry in content if entry.kind is EntryKind.FOLDER)]
    _check_inside(root.resolve(), {file.parent for file in files} | set(folders))
    for file in files:
        file.unlink(missing_ok=True)
    for emptied in sorted(folders, key=lambda path: len(path.parts), reverse=True):
        with suppress(OSError):  # it holds something that is not ours, or no longer exists
            emptied.rmdir()


def _check_inside(root: Path, folders: Iterable[Path]) -> None:
    for folder in folders:
        real = folder.resolve()
        if not real.is_relative_to(root) or real == root:
            raise SnapshotError(
                Reason.FILE_DAMAGED, f"{folder} is a link to {real}, outside {root}: nothing was deleted there"
            )
