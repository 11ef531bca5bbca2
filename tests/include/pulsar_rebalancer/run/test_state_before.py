import pytest

from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.run.snapshot import StateBefore
from pulsar_rebalancer.storage.path import StoragePath


@pytest.mark.parametrize("name", ["decision", "moves", "control", "drains"])
def test_a_state_without_one_of_its_documents_is_damaged(tmp_path, name):
    run = StoragePath(str(tmp_path))
    StateBefore().write(run)
    file = run / StateBefore.FILE
    assert StateBefore.read(run) == StateBefore()
    file.write_json({key: value for key, value in file.read_json().items() if key != name})

    with pytest.raises(SnapshotError, match=r"does not contain the state of a cluster \[file_damaged\]"):
        StateBefore.read(run)
