import pytest

from pulsar_rebalancer.decide.split_planning import split_advice
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.bundle_columns import BundleSample
from pulsar_rebalancer.run.snapshot import Snapshot
from pulsar_rebalancer.run.tables import BUNDLES, Measure, table
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer.strategies.sample import CandidateMove, Decision

LARGE, SMALL = "acme/orders/0x00000000_0x40000000", "acme/orders/0x40000000_0x80000000"


def move(bundle: str, rank: int, traffic: float, reason: str = "over_remaining", pair: int = 0) -> CandidateMove:
    held = BundleSample(f"b:{pair}", bundle, msg_rate=traffic)
    return CandidateMove.new(held, pair=pair, rank=rank, measure=Measure.RATE, reason=Reason(reason))


@pytest.mark.parametrize(
    ("reason", "topics", "target", "told"),
    [
        (Reason.NO_FITTING_BUNDLE, 2, 400.0, "after a split into 2 parts, a part can move."),
        (Reason.NO_FITTING_BUNDLE, 2, 200.0, "after a split into 4 parts, a part can move."),
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

    found = split_advice(Snapshot(folder), [stuck, taken], moves, {"b:0": 1000.0, "b:1": 1000.0})

    sentence = f"{LARGE} carries 61 % of b:0's traffic, too much for one move; {told}"
    assert found == (() if told is None else (sentence,))
