import stat
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.snapshot import BUNDLES, CLUSTER, read, table, write
from pulsar_rebalancer.storage import ClusterStorage, Folder


@pytest.fixture
def folder(tmp_path):
    return Folder(str(tmp_path))


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


def test_a_run_folder_is_named_by_time_and_chance_alone():
    storage = ClusterStorage("/data/", "east")
    now = datetime(2026, 11, 21, 23, 59, 59, 5, tzinfo=UTC)
    first, second = storage.new_run(now), storage.new_run(now)
    assert first.uri.startswith("/data/east/runs/date=2026-11-21/20261121T235959.000005Z-")
    assert first != second


def test_spark_knows_s3_by_another_name():
    assert Folder("s3://bucket/x").for_spark == "s3a://bucket/x"
    assert Folder("/data/x").for_spark == "/data/x"


def test_tables_keep_their_schema_and_units(folder):
    row = {"cluster": "c", "bundle": "t/n/0x0_0x1", "msg_rate_in": 1.5}
    write(folder, {"bundles": table([row], BUNDLES)})
    found = read(folder, "bundles")
    assert found.schema == BUNDLES
    assert found.to_pylist()[0]["msg_rate_in"] == 1.5
    assert BUNDLES.field("msg_rate_in").metadata[b"unit"] == b"msg/s"


def test_a_table_with_other_columns_is_refused(folder):
    (folder / "input" / "cluster.parquet").write_table(pa.table({"x": [1]}))
    with pytest.raises(SnapshotError) as refused:
        read(folder, "cluster")
    assert refused.value.reason == "file_version"


def test_rows_that_do_not_fit_are_refused():
    with pytest.raises(SnapshotError) as refused:
        table([{"brokers_listed": "many"}], CLUSTER)
    assert refused.value.reason == "file_damaged"
