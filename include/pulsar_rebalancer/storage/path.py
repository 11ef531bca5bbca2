"""Where runs and state lie: one root that every Airflow worker and every Spark executor sees.

A local folder, a shared volume or an object store (`s3://…`, `gs://…`), through Arrow's file systems.
"""

from __future__ import annotations

import json
import os
import secrets
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator


ROWS_READ_TOGETHER = 100_000
"""Rows of a Parquet file that several readers of it share among them, such as Spark's tasks."""


@dataclass(frozen=True)
class StoragePath:
    """The address of a file or folder below the storage root.

    Attributes:
        uri: local path or object-store URI, without a trailing slash.
    """

    uri: str

    def __truediv__(self, name: str) -> StoragePath:
        """Return the folder or file `name` below this one."""
        return StoragePath(f"{self.uri}/{name}")

    @property
    def name(self) -> str:
        """Last part of the path."""
        return self.uri.rsplit("/", 1)[-1]

    def beside(self, name: str) -> StoragePath:
        """Return the folder or file `name` in the same folder as this one."""
        return StoragePath(f"{self.uri.rsplit('/', 1)[0]}/{name}")

    @property
    def for_spark(self) -> str:
        """The address under which Spark knows the folder: Hadoop's S3 client is called `s3a`."""
        return "s3a" + self.uri.removeprefix("s3") if self.uri.startswith("s3://") else self.uri

    def open(self) -> tuple[pafs.FileSystem, str]:
        """Arrow's file system and the path inside it."""
        if "://" in self.uri:
            file_system, path = pafs.FileSystem.from_uri(self.uri.replace("s3a://", "s3://", 1))
            return file_system, path
        return pafs.LocalFileSystem(), str(Path(self.uri).absolute())

    def exists(self) -> bool:
        """Return whether there is a file or folder at this address.

        Raises:
            SnapshotError: `storage_failed`.
        """
        file_system, path = self.open()
        with failures_of(self.uri, "looked at"):
            return file_system.get_file_info(path).type != pafs.FileType.NotFound

    def names(self) -> list[str]:
        """Return sorted names of what lies directly below; empty when the folder does not exist.

        Raises:
            SnapshotError: `storage_failed`.
        """
        file_system, path = self.open()
        with failures_of(self.uri, "listed"):
            found = file_system.get_file_info(pafs.FileSelector(path, allow_not_found=True))
        return sorted(info.base_name for info in found)

    def delete(self) -> None:
        """Remove the file or folder; nothing happens when it is not there.

        Raises:
            SnapshotError: `storage_failed`.
        """
        file_system, path = self.open()
        with failures_of(self.uri, "deleted"):
            kind = file_system.get_file_info(path).type
            if kind == pafs.FileType.Directory:
                file_system.delete_dir(path)
            elif kind == pafs.FileType.File:
                file_system.delete_file(path)

    def write_bytes(self, data: bytes) -> None:
        """Write a file whole or not at all; on a local disk for its owner only.

        Raises:
            SnapshotError: `storage_failed`; what was there before stays.
        """
        file_system, path = self.open()
        with failures_of(self.uri, "written"):
            if isinstance(file_system, pafs.LocalFileSystem):
                _write_local(Path(path), data)
                return
            with file_system.open_output_stream(path) as out:
                out.write(data)

    def read_bytes(self) -> bytes:
        """Return the content of a file.

        Raises:
            SnapshotError: `file_missing` or `storage_failed`.
        """
        file_system, path = self.open()
        with failures_of(self.uri, "read"), file_system.open_input_stream(path) as source:
            return bytes(source.read())

    def write_json(self, document: Any) -> None:
        """Write a JSON document, keys sorted, whole or not at all.

        Raises:
            SnapshotError: `storage_failed`.
        """
        self.write_bytes(json.dumps(document, sort_keys=True, indent=1, allow_nan=False, default=str).encode())

    def read_json(self) -> Any:
        """Return a JSON document of finite numbers and whole characters.

        Raises:
            SnapshotError: `file_missing`, `file_damaged` or `storage_failed`.
        """
        return json_document(self.read_bytes(), self.uri)

    def write_table(self, table: pa.Table) -> None:
        """Write one Parquet file, whole or not at all.

        Raises:
            SnapshotError: `storage_failed`.
        """
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd", row_group_size=ROWS_READ_TOGETHER)
        self.write_bytes(sink.getvalue().to_pybytes())

    def read_table(self, columns: list[str] | None = None) -> pa.Table:
        """Return a Parquet file, or a folder of them as Spark writes it.

        Raises:
            SnapshotError: `file_missing`, `file_damaged` or `storage_failed`.
        """
        file_system, path = self.open()
        with failures_of(self.uri, "read"), damage_of(self.uri):
            is_folder = file_system.get_file_info(path).type == pafs.FileType.Directory
            parts = [f"{path}/{name}" for name in self.names() if name[0] not in "._"] if is_folder else [path]
            # Not `pq.read_table`, which imports pandas.
            read = [_read_part(file_system, part, columns) for part in parts]
            # Spark says of some columns that they are never null, which the other parts need not.
            found = pa.concat_tables(read, promote_options="default")
            found.validate(full=True)
        return found


def _read_part(file_system: pafs.FileSystem, path: str, columns: list[str] | None) -> pa.Table:
    with pq.ParquetFile(path, filesystem=file_system) as part:
        return part.read(columns)


def json_document(data: bytes | str, where: str) -> Any:
    """Return a JSON document of finite numbers and whole characters.

    Raises:
        SnapshotError: `file_damaged`.
    """
    try:
        document = json.loads(data)
        json.dumps(document, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise SnapshotError(Reason.FILE_DAMAGED, f"{where} is no JSON document") from None
    return document


@contextmanager
def failures_of(uri: str, done: str) -> Iterator[None]:
    """Give errors of the file system a reason.

    Args:
        uri: what is being accessed.
        done: how, for the message.

    Raises:
        SnapshotError: `file_missing` when it is not there, else `storage_failed`.
    """
    try:
        yield
    except OSError as error:
        if isinstance(error, FileNotFoundError | IsADirectoryError):
            raise SnapshotError(Reason.FILE_MISSING, f"{uri} does not exist as a file") from None
        # The text of a file system may hold whatever an address held.
        why = os.strerror(error.errno) if error.errno else type(error).__name__
        raise SnapshotError(Reason.STORAGE_FAILED, f"{uri} cannot be {done}: {why}") from None


@contextmanager
def damage_of(uri: str) -> Iterator[None]:
    """Give what Arrow says of a file's content a reason.

    Raises:
        SnapshotError: `file_damaged`.
    """
    try:
        yield
    except (pa.ArrowException, ValueError, OSError) as error:
        # What Parquet says of its content is an OSError without a number.
        if isinstance(error, FileNotFoundError) or getattr(error, "errno", None):
            raise
        raise SnapshotError(Reason.FILE_DAMAGED, f"{uri} cannot be read ({type(error).__name__})") from None


def make_private(folder: Path) -> None:
    """Make a local folder and those above it that are missing, for their owner only whatever the umask is."""
    for missing in reversed([path for path in (folder, *folder.parents) if not path.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)


def _write_local(path: Path, data: bytes) -> None:
    make_private(path.parent)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink()  # on a full disk the next write would find no room either
        raise
