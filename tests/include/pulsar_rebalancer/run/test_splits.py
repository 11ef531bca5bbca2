import pyarrow as pa
import pytest

from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.run.plan import plan_hash, read_splits
from pulsar_rebalancer.run.tables import SPLITS
from pulsar_rebalancer.storage.path import StoragePath

WHOLE = "acme/orders/0x00000000_0xffffffff"


def row(bundle, rank=0, **changes):
    found = {"cluster": "c", "broker": "b:1", "bundle": bundle, "rank": rank, "condition": "msg_rate"}
    found |= {"algorithm": "range_equally_divide", "positions": [5], "shares": [0.25, 0.75], "unload": True}
    return found | {"taken": True, "reason": "to_be_split"} | changes


@pytest.fixture
def run(tmp_path):
    return StoragePath(str(tmp_path / "run"))


@pytest.mark.parametrize(
    "change", [{"positions": [6]}, {"shares": [0.5, 0.5]}, {"unload": False}, {"bundle": "t/n/0x1_0x9"}, {"rank": 1}]
)
def test_splits_are_part_of_the_hash(change):
    assert plan_hash([], [], {}, [row(WHOLE)]) != plan_hash([], [], {}, [row(WHOLE) | change])


@pytest.mark.parametrize(
    "values", [{"x": [1]}, {"taken": [True]}, {name: [None] for name in SPLITS.names} | {"taken": [True]}]
)
def test_splits_with_other_columns_or_without_values_are_damaged(run, values):
    (run / "plan" / "splits.parquet").write_table(pa.table(values))
    with pytest.raises(SnapshotError) as refused:
        read_splits(run)
    assert refused.value.reason == "file_damaged"
