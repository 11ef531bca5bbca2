"""Where the summary says that a split would help."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pulsar_rebalancer.decide.splits.split_planning import helpful
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.bundle_columns import BundleSample
from pulsar_rebalancer.run.snapshot import Snapshot
from pulsar_rebalancer.run.tables import BUNDLES, Measure, table
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer.strategies.sample import CandidateMove, Decision

LARGE, SMALL = "acme/orders/0x00000000_0x40000000", "acme/orders/0x40000000_0x80000000"


def move(bundle: str, rank: int, traffic: float, reason: str = "over_remaining", pair: int = 0) -> CandidateMove:
    held = BundleSample(f"b:{pair}", bundle, msg_rate=traffic)
    return CandidateMove.of(held, pair=pair, rank=rank, measure=Measure.RATE, reason=Reason(reason))


@pytest.mark.parametrize(
    ("reason", "topics", "target", "told"),
    [
        (Reason.NO_FITTING_BUNDLE, 2, 400.0, "split in two it could be moved"),
        (Reason.NO_FITTING_BUNDLE, 2, 200.0, "split in 4 a part of it could be moved"),
        (Reason.NO_FITTING_BUNDLE, 1, 400.0, None),  # nothing to part
        (Reason.FIRED, 2, 400.0, None),
    ],
)
def test_a_bundle_that_is_too_large_to_move_is_named(tmp_path, reason, topics, target, told):
    folder = StoragePath(str(tmp_path))
    held = [(LARGE, topics), (SMALL, 2)]
    bundles = [{"cluster": "c", "broker": "b:0", "bundle": name, "topics": count} for name, count in held]
    (folder / "input" / "bundles.parquet").write_table(table(bundles, BUNDLES))
    moves = [move("a/b/kept", 0, 900.0, "system_namespace"), move(LARGE, 1, 610.0), move(SMALL, 2, 410.0)]
    moves.append(move("a/b/other", 0, 900.0, pair=1))  # of a pair that took others
    stuck = Decision("b:0", reason, pair=0, fired=True, measure=Measure.RATE, target=target)
    taken = Decision("b:1", Reason.FIRED, pair=1, fired=True, measure=Measure.RATE, target=target)

    found = helpful(Snapshot(folder), [stuck, taken], moves, {"b:0": 1000.0, "b:1": 1000.0})

    sentence = f"no_fitting_bundle: {LARGE} carries 61 % of b:0's traffic; {told}"
    assert found == (() if told is None else (sentence,))


@pytest.mark.parametrize(
    ("gap", "told"),
    [(62.0, "split in two it could be moved"), (30.0, "split in 5 a part of it could be moved"), (122.0, None)],
)
def test_a_bundle_that_would_overshoot_is_named_if_it_carries_more_than_half_of_the_gap(tmp_path, gap, told):
    folder = StoragePath(str(tmp_path))
    rows = pa.Table.from_pylist([{"bundle": name, "topics": 2} for name in (LARGE, SMALL)], schema=BUNDLES)
    (folder / "input" / "bundles.parquet").write_table(rows)
    # By name, not by traffic.
    moves = [move(SMALL, 0, 300.0, "would_overshoot"), move(LARGE, 1, 610.0, "would_overshoot")]
    stuck = Decision("b:0", Reason.NO_GAIN, pair=0, source_score=100.0, gap=gap, fired=True, target=0.0)

    found = helpful(Snapshot(folder), [stuck], moves, {"b:0": 1000.0})

    sentence = f"no_gain: {LARGE} carries 61 % of b:0's traffic; {told}"
    assert found == (() if told is None else (sentence,))
