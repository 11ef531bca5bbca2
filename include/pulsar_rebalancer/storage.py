"""Where runs and state lie: one root that every Airflow worker and every Spark executor sees.

A local folder, a shared volume or an object store (`s3://…`, `gs://…`), through Arrow's file systems.
"""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from pulsar_rebalancer.errors import SnapshotError


@dataclass(frozen=True)
class Folder:
    """A folder below the storage root.

    Attributes:
        uri: local path or object-store URI, without a trailing slash.
    """

    uri: str

    def __truediv__(self, name: str) -> Folder:
        """The folder or file `name` below this one."""
        return Folder(f"{self.uri}/{name}")

    @property
    def name(self) -> str:
        """Last part of the path."""
        return self.uri.rsplit("/", 1)[-1]

    def beside(self, name: str) -> Folder:
        """The folder or file `name` in the same folder as this one."""
        return Folder(f"{self.uri.rsplit('/', 1)[0]}/{name}")

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
        """Whether there is a file or folder at this address."""
        file_system, path = self.open()
        return file_system.get_file_info(path).type != pafs.FileType.NotFound

    def names(self) -> list[str]:
        """Sorted names of what lies directly below; empty when the folder does not exist."""
        file_system, path = self.open()
        found = file_system.get_file_info(pafs.FileSelector(path, allow_not_found=True))
        return sorted(info.base_name for info in found)

    def delete(self) -> None:
        """Remove the file or folder; nothing happens when it is not there."""
        file_system, path = self.open()
        kind = file_system.get_file_info(path).type
        if kind == pafs.FileType.Directory:
            file_system.delete_dir(path)
        elif kind == pafs.FileType.File:
            file_system.delete_file(path)

    def write_bytes(self, data: bytes) -> None:
        """Write a file whole or not at all; on a local disk for its owner only."""
        file_system, path = self.open()
        if isinstance(file_system, pafs.LocalFileSystem):
            _write_local(Path(path), data)
            return
        with file_system.open_output_stream(path) as out:
            out.write(data)

    def read_bytes(self) -> bytes:
        """The content of a file.

        Raises:
            SnapshotError: `file_missing` when it cannot be read.
        """
        file_system, path = self.open()
        try:
            with file_system.open_input_stream(path) as source:
                return bytes(source.read())
        except OSError as error:
            raise SnapshotError("file_missing", f"{self.uri} cannot be read ({type(error).__name__})") from None

    def write_json(self, document: Any) -> None:
        """Write a JSON document, keys sorted, whole or not at all."""
        self.write_bytes(json.dumps(document, sort_keys=True, indent=1, allow_nan=False, default=str).encode())

    def read_json(self) -> Any:
        """A JSON document.

        Raises:
            SnapshotError: `file_missing` or `file_damaged`.
        """
        try:
            return json.loads(self.read_bytes())
        except ValueError:
            raise SnapshotError("file_damaged", f"{self.uri} is no JSON document") from None

    def write_table(self, table: pa.Table) -> None:
        """Write one Parquet file, whole or not at all."""
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd")
        self.write_bytes(sink.getvalue().to_pybytes())

    def read_table(self, columns: list[str] | None = None) -> pa.Table:
        """A Parquet file, or a folder of them as Spark writes it.

        Raises:
            SnapshotError: `file_missing` or `file_damaged`.
        """
        file_system, path = self.open()
        try:
            return pq.read_table(path, filesystem=file_system, columns=columns)
        except FileNotFoundError:
            raise SnapshotError("file_missing", f"{self.uri} does not exist") from None
        except (OSError, pa.ArrowInvalid) as error:
            raise SnapshotError("file_damaged", f"{self.uri} cannot be read ({type(error).__name__})") from None


def make_private(folder: Path) -> None:
    """Make a local folder and those above it that are missing, for their owner only whatever the umask is."""
    for missing in reversed([path for path in (folder, *folder.parents) if not path.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)


def _write_local(path: Path, data: bytes) -> None:
    make_private(path.parent)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
    draft.replace(path)


@dataclass(frozen=True)
class ClusterStorage:
    """The folders of one cluster below the root."""

    root: str
    cluster: str

    @property
    def base(self) -> Folder:
        """`<root>/<cluster>`."""
        return Folder(f"{self.root.rstrip('/')}/{self.cluster}")

    @property
    def runs(self) -> Folder:
        """`<root>/<cluster>/runs`."""
        return self.base / "runs"

    @property
    def state(self) -> Folder:
        """`<root>/<cluster>/state`: copies of the committed decision state, and the means of bundles."""
        return self.base / "state"

    def new_run(self, now: datetime) -> Folder:
        """A folder for one attempt: its name holds the time and eight random hex digits, nothing a user typed."""
        at = now.astimezone(UTC)
        return self.runs / f"date={at:%Y-%m-%d}" / f"{at:%Y%m%dT%H%M%S.%fZ}-{secrets.token_hex(4)}"
