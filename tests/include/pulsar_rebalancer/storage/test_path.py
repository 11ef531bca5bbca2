import base64
import stat
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.full_disk import full_disk

from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.reasons import Trait
from pulsar_rebalancer.run.snapshot import Snapshot
from pulsar_rebalancer.run.tables import BUNDLES, CLUSTER, table, write
from pulsar_rebalancer.storage.layout import ClusterStorage
from pulsar_rebalancer.storage.path import StoragePath


@pytest.fixture
def folder(tmp_path):
    return StoragePath(str(tmp_path))


def test_files_are_for_their_owner_alone(folder, tmp_path):
    (folder / "a" / "b" / "c.json").write_json({"x": 1})
    path = tmp_path / "a" / "b" / "c.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert {stat.S_IMODE(made.stat().st_mode) for made in (path.parent, path.parent.parent)} == {0o700}
    assert (folder / "a" / "b").names() == ["c.json"]


def test_a_document_that_cannot_be_written_leaves_the_old_one(folder):
    (folder / "a.json").write_json({"x": 1})
    with pytest.raises(ValueError, match="not JSON compliant"):
        (folder / "a.json").write_json({"x": float("nan")})
    assert (folder / "a.json").read_json() == {"x": 1}
    assert folder.names() == ["a.json"]


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


def test_a_run_folder_is_named_by_time_and_chance_alone():
    storage = ClusterStorage("/data/", "east")
    now = datetime(2026, 11, 21, 23, 59, 59, 5, tzinfo=UTC)
    first, second = storage.new_run(now), storage.new_run(now)
    assert first.uri.startswith("/data/east/runs/date=2026-11-21/20261121T235959.000005Z-")
    assert first != second


def test_spark_knows_s3_by_another_name():
    assert StoragePath("s3://bucket/x").for_spark == "s3a://bucket/x"
    assert StoragePath("/data/x").for_spark == "/data/x"


def test_tables_keep_their_schema_and_units(folder):
    write(folder, {"bundles": table([{"cluster": "c", "bundle": "t/n/0x0_0x1", "msg_rate_in": 1.5}], BUNDLES)})
    found = Snapshot(folder).table("bundles")
    assert found.schema == BUNDLES
    assert found.to_pylist()[0]["msg_rate_in"] == 1.5
    assert BUNDLES.field("msg_rate_in").metadata == {b"unit": b"msg/s"}


def test_a_table_with_other_columns_is_refused(folder):
    (folder / "input" / "cluster.parquet").write_table(pa.table({"x": [1]}))
    with pytest.raises(SnapshotError) as refused:
        Snapshot(folder).table("cluster")
    assert refused.value.reason == "file_version"


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


def test_parquet_that_arrow_refuses_in_whatever_class_is_damaged(folder):
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"x": pa.array([1], pa.int8())}), sink)
    data = sink.getvalue().to_pybytes()
    schema = (pq.read_metadata(pa.BufferReader(data)).metadata or {})[b"ARROW:schema"]
    raw = base64.b64decode(schema)
    raised, reasons = set(), set()
    for at in range(len(raw)):
        other = data.replace(schema, base64.b64encode(raw[:at] + b"\x18" + raw[at + 1 :]))
        (folder / "bad.parquet").write_bytes(other)
        try:
            (folder / "bad.parquet").read_table()
        except SnapshotError as error:
            reasons.add(error.reason)
        try:
            pq.read_table(pa.BufferReader(other))
        except (pa.ArrowException, OSError) as error:
            raised.add(type(error))

    assert len(raised) > 2, "classes that have no base but Exception in common"
    assert reasons == {"file_damaged"}


def test_text_that_is_no_unicode_is_damaged(folder):
    text = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")])
    (folder / "bad.parquet").write_table(pa.table({"x": text}))

    with pytest.raises(SnapshotError) as damaged:
        (folder / "bad.parquet").read_table()

    assert damaged.value.reason == "file_damaged"


def test_a_write_that_fails_for_a_full_disk_leaves_no_draft_and_the_old_file(folder):
    (folder / "a.json").write_json({"x": 1})

    with full_disk(), pytest.raises(SnapshotError, match="cannot be written: File too large") as failed:
        (folder / "a.json").write_json({"x": "much " * 2000})

    assert failed.value.reason == "storage_failed"
    assert failed.value.reason.has(Trait.PASSING)
    assert folder.names() == ["a.json"]
    assert (folder / "a.json").read_json() == {"x": 1}
    (folder / "a.json").write_json({"x": 2})


def test_what_the_system_refuses_to_read_has_a_reason(folder, tmp_path):
    (tmp_path / "loop").symlink_to("loop")

    with pytest.raises(SnapshotError, match="loop cannot be read: Too many levels of symbolic links") as refused:
        (folder / "loop").read_bytes()

    assert refused.value.reason == "storage_failed"


def test_what_the_system_refuses_to_write_or_list_has_a_reason(folder):
    (folder / "file").write_bytes(b"")

    for access in ((folder / "file" / "below" / "x").write_bytes, lambda _: (folder / "file").names()):
        with pytest.raises(SnapshotError) as refused:
            access(b"")
        assert refused.value.reason == "storage_failed"
