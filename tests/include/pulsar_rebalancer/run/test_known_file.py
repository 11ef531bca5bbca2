from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.run.tables import MEANS, find_state_table, table
from pulsar_rebalancer.storage.path import StoragePath

NAME = "means-1-0badf00d.parquet"
ROWS = table([{"cluster": "east", "bundle": "t/n/0x00000000_0xffffffff", "samples": 1}], MEANS)


def other_type() -> pa.Table:
    return ROWS.set_column(2, "samples", pa.array(["one"]))


def stored() -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(ROWS, sink)
    return sink.getvalue().to_pybytes()


WRONG: dict[str, Callable[[StoragePath], None]] = {
    "missing": lambda file: None,
    "an empty file": lambda file: file.write_bytes(b""),
    "an empty folder": lambda file: Path(file.uri).mkdir(parents=True),
    "cut short": lambda file: file.write_bytes(stored()[:-9]),
    "a damaged page": lambda file: file.write_bytes(b"PAR1" + bytes(60) + stored()[64:]),
    "another type": lambda file: file.write_table(other_type()),
    "another column": lambda file: file.write_table(ROWS.rename_columns([*MEANS.names[:-1], "other"])),
    "a column less": lambda file: file.write_table(ROWS.drop_columns(["samples"])),
}


@pytest.mark.parametrize("client_gap", WRONG.values(), ids=WRONG)
def test_a_table_that_cannot_be_used_counts_as_none(tmp_path, caplog, client_gap):
    folder = StoragePath(str(tmp_path / "state"))
    client_gap(folder / NAME)
    assert find_state_table(folder, NAME, MEANS) is None
    (warning,) = caplog.messages
    assert f"state/{NAME}" in warning


def test_known_file_is_used_if_sound(tmp_path, caplog):
    folder = StoragePath(str(tmp_path))
    (folder / NAME).write_table(ROWS)
    assert find_state_table(folder, NAME, MEANS) == folder / NAME
    assert find_state_table(folder, "", MEANS) is None
    assert not caplog.messages


def test_a_storage_that_refuses_does_not_make_anybody_forget(tmp_path, monkeypatch):
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(StoragePath, "_parquet_files", refuse)
    with pytest.raises(SnapshotError, match="storage_failed"):
        find_state_table(StoragePath(str(tmp_path)), NAME, MEANS)
