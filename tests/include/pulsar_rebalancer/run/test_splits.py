"""The table of splits: part of the plan's identity, read in the order in which it is carried out."""

import pyarrow as pa
import pytest

from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.run.plan import plan_hash
from pulsar_rebalancer.run.splits import parts_of, read_splits, taken_rows, write_splits
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


def test_a_plan_without_splits_has_no_table_and_the_hash_of_one_that_knows_none(run):
    assert write_splits(run, []) == []
    assert not (run / "plan" / "splits.parquet").exists()
    assert read_splits(run) == []
    assert plan_hash([], [], {}, []) == plan_hash([], [], {})


def test_splits_come_by_rank_without_those_that_were_passed_over(run):
    left = row("t/n/0x00000000_0x00000009", rank=1, taken=False, reason="cap_splits", positions=None, shares=None)
    written = write_splits(run, [row("t/n/0x10_0x20", rank=2), left, row("t/n/0x30_0x40", condition=None)])
    assert written == taken_rows(run)
    first, second = read_splits(run)
    assert (first.bundle, second.bundle) == ("t/n/0x30_0x40", "t/n/0x10_0x20")
    assert (first.condition, second.condition) == ("", "msg_rate")


@pytest.mark.parametrize(
    "change", [{"positions": [6]}, {"shares": [0.5, 0.5]}, {"unload": False}, {"bundle": "t/n/0x1_0x9"}, {"rank": 1}]
)
def test_what_is_split_and_how_is_part_of_the_hash(change):
    assert plan_hash([], [], {}, [row(WHOLE)]) != plan_hash([], [], {}, [row(WHOLE) | change])


@pytest.mark.parametrize(
    "values", [{"x": [1]}, {"taken": [True]}, {name: [None] for name in SPLITS.names} | {"taken": [True]}]
)
def test_splits_with_other_columns_or_without_values_are_damaged(run, values):
    (run / "plan" / "splits.parquet").write_table(pa.table(values))
    with pytest.raises(SnapshotError) as refused:
        read_splits(run)
    assert refused.value.reason == "file_damaged"


def test_parts_are_named_as_pulsar_names_them():
    assert parts_of(WHOLE, [0x7FFFFFFF]) == [
        "acme/orders/0x00000000_0x7fffffff",
        "acme/orders/0x7fffffff_0xffffffff",
    ]
    assert parts_of("a/b/0x00000000_0x10000000", []) == ["a/b/0x00000000_0x10000000"]
