from datetime import timedelta
from pathlib import Path

import pytest
from tests.airflow_runs import make_run
from tests.include.pulsar_rebalancer.run_folders import NOW, YESTERDAY, stored_run

from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.isolation import Policies
from pulsar_rebalancer.run.compacted_tables import table_file
from pulsar_rebalancer.run.compaction import compact, days_before
from pulsar_rebalancer.run.plan import Summary
from pulsar_rebalancer.run.request import RunRequest, Validation
from pulsar_rebalancer.run.snapshot import Snapshot
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer.storage.path import StoragePath


@pytest.fixture
def storage(tmp_path: Path) -> ClusterStorage:
    return ClusterStorage(str(tmp_path), "east")


def of_version(file: StoragePath, version: str) -> None:
    file.write_table(file.read_table().replace_schema_metadata({"version": version}))


@pytest.mark.parametrize(
    ("path", "read"),
    [
        ("input/settings.json", RunRequest.read),
        ("input/policies.json", Policies.read),
        ("validation.json", Validation.read),
        ("plan/summary.json", Summary.read),
    ],
)
@pytest.mark.parametrize("changes", [{"version": 2}, {"version": None}, {"of_another_release": 1}])
def test_documents(storage, path, read, changes):
    run = make_run(storage)
    Policies().write(run)
    read(run)
    (run / path).write_json((run / path).read_json() | changes)

    with pytest.raises(SnapshotError, match=rf"{path}.*\[file_damaged\]"):
        read(run)


@pytest.mark.parametrize("version", ["0", "2"])
def test_tables_of_a_run(storage, version):
    run = stored_run(storage, NOW)
    assert Snapshot(run).read_table("brokers").num_rows == 2
    of_version(run / "input" / "brokers.parquet", version)

    with pytest.raises(SnapshotError, match=rf"version {version}; this release reads version 1 \[file_damaged\]"):
        Snapshot(run).read_table("brokers")


@pytest.mark.parametrize("kind", ["runs", "decisions"])
def test_the_history_of_a_day_is_left_alone(storage, kind):
    stored_run(storage, NOW - timedelta(days=1))
    (day,) = days_before(storage, NOW.date())
    assert compact(storage, YESTERDAY, day.runs) == {}
    of_version(table_file(storage, kind, YESTERDAY), "2")
    before = table_file(storage, kind, YESTERDAY).read_bytes()

    with pytest.raises(SnapshotError, match=r"version 2; this release reads version 1 \[file_damaged\]"):
        compact(storage, YESTERDAY, day.runs)
    assert table_file(storage, kind, YESTERDAY).read_bytes() == before
