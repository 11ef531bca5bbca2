import stat

import pyarrow as pa
import pytest
from tests.full_disk import full_disk

from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.reasons import Trait
from pulsar_rebalancer.run.tables import CLUSTER, table
from pulsar_rebalancer.storage.path import StoragePath


@pytest.fixture
def folder(tmp_path):
    return StoragePath(str(tmp_path))


def test_files_are_for_their_owner_alone(folder, tmp_path):
    (folder / "a" / "b" / "c.json").write_json({"x": 1})
    path = tmp_path / "a" / "b" / "c.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert {stat.S_IMODE(made.stat().st_mode) for made in (path.parent, path.parent.parent)} == {0o700}
    assert (folder / "a" / "b").entry_names() == ["c.json"]


def test_a_document_that_cannot_be_written_leaves_the_old_one(folder):
    (folder / "a.json").write_json({"x": 1})
    with pytest.raises(ValueError, match="not JSON compliant"):
        (folder / "a.json").write_json({"x": float("nan")})
    assert (folder / "a.json").read_json() == {"x": 1}
    assert folder.entry_names() == ["a.json"]


def test_missing_and_damaged_files_have_a_reason(folder):
    with pytest.raises(SnapshotError) as missing:
        (folder / "none.json").read_json()
    (folder / "bad.json").write_bytes(b"{")
    with pytest.raises(SnapshotError) as damaged:
        (folder / "bad.json").read_json()
    (folder / "bad.parquet").write_bytes(b"PAR1")
    with pytest.raises(SnapshotError) as no_table:
        (folder / "bad.parquet").read_table()
    assert [e.value.reason for e in (missing, damaged, no_table)] == ["file_missing", "file_damaged", "file_damaged"]


def test_deleting_what_is_not_there_is_no_error(folder):
    (folder / "none").delete()
    (folder / "d" / "f").write_bytes(b"")
    (folder / "d").delete()
    assert not (folder / "d").exists()


def test_parts_that_differ_in_what_is_never_null_are_one_table(folder):
    for part, nullable in (("a", False), ("b", True)):
        schema = pa.schema([pa.field("n", pa.int64(), nullable=nullable)])
        (folder / "table" / part).write_table(pa.table({"n": [1]}, schema=schema))
    assert (folder / "table").read_table().to_pylist() == [{"n": 1}, {"n": 1}]


def test_spark_knows_s3_by_another_name():
    assert StoragePath("s3://bucket/x").spark_uri == "s3a://bucket/x"
    assert StoragePath("/data/x").spark_uri == "/data/x"


def test_rows_that_do_not_fit_are_refused():
    with pytest.raises(SnapshotError) as refused:
        table([{"brokers_listed": "many"}], CLUSTER)
    assert refused.value.reason == "file_damaged"


def nested(depth):
    return b"[" * depth + b"]" * depth


@pytest.mark.parametrize(
    "content",
    [nested(100_000), b'{"x": NaN}', b'{"x": -Infinity}', b'{"x": 1e999}', b'{"x": "\\ud800"}', b'"\xff"', b"9" * 5000],
)
def test_json_that_is_no_plain_document_is_damaged(folder, content):
    (folder / "bad.json").write_bytes(content)

    with pytest.raises(SnapshotError, match="not a JSON document") as damaged:
        (folder / "bad.json").read_json()

    assert damaged.value.reason == "file_damaged"


def test_a_write_that_fails_for_a_full_disk_leaves_no_draft_and_the_old_file(folder):
    (folder / "a.json").write_json({"x": 1})

    with full_disk(), pytest.raises(SnapshotError, match="cannot be written: File too large") as failed:
        (folder / "a.json").write_json({"x": "much " * 2000})

    assert failed.value.reason == "storage_failed"
    assert failed.value.reason.has(Trait.PASSING)
    assert folder.entry_names() == ["a.json"]
    assert (folder / "a.json").read_json() == {"x": 1}
    (folder / "a.json").write_json({"x": 2})
