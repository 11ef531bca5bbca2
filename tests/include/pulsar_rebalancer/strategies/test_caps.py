import pytest

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.bundle_columns import BundleSample
from pulsar_rebalancer.run.plan import MAX_BUNDLES_PER_WAVE, MAX_WAVES
from pulsar_rebalancer.run.tables import BrokerSample, Measure
from pulsar_rebalancer.strategies import caps
from pulsar_rebalancer.strategies.sample import CandidateMove

HOT, COLD = "hot:1", "cold:1"
OLD = [BrokerSample("old:1", version="4.0.9")]


def move(rank, bundle, source=HOT, destination=COLD, *, pair=0, taken=True):
    held = BundleSample(source, f"{bundle}_0x1", msg_throughput=10.0)
    reason = Reason.TAKEN if taken else Reason.NO_TRAFFIC
    return CandidateMove.new(held, pair=pair, rank=rank, measure=Measure.RATE, reason=reason, destination=destination)


SWAP = [
    move(0, "t/a/0x0"),
    move(1, "t/a/0x2"),
    move(2, "t/b/0x3", COLD, HOT),
    move(3, "t/b/0x4", COLD, HOT),
    move(4, "t/a/0x5", taken=False),
]


@pytest.mark.parametrize(
    ("settings", "taken", "reason"),
    [
        ({}, [0, 1, 2, 3], None),
        ({"max_bundles_per_run": 4}, [0, 1, 2, 3], None),
        ({"max_bundles_per_run": 3}, [0], "cap_run"),
        ({"max_bundles_per_broker": 3}, [0], "cap_broker"),
        ({"max_bundles_per_broker": 4}, [0, 1, 2, 3], None),
        ({"max_bundles_per_namespace": 2}, [0, 1, 2, 3], None),
        ({"max_bundles_per_namespace": 1}, [0], "cap_namespace"),
        ({"max_bytes_per_run": 40}, [0, 1, 2, 3], None),
        ({"max_bytes_per_run": 39}, [0], "cap_bytes"),
    ],
)
def test_a_cap_never_splits_a_swap(settings, taken, reason):
    moves = caps.apply_caps(SWAP, Settings(**settings), {}, OLD)
    assert [each.rank for each in moves if each.is_taken] == taken
    assert {each.reason for each in moves[1:4]} == {reason or "taken"}
    assert all((each.wave is not None) == each.is_taken for each in moves)


def test_traffic_that_is_not_a_number_is_over_every_cap():
    moves = [move(0, "t/a/0x0")._replace(msg_throughput=float("nan")), move(1, "t/b/0x0")]
    found = caps.apply_caps(moves, Settings(max_bytes_per_run=40), {}, OLD)
    assert [each.reason for each in found] == ["cap_bytes", "taken"]


def test_a_swap_waits_whose_one_way_finds_no_wave():
    moves = [move(rank, f"t/n{rank}/0x0", pair=-1) for rank in range(MAX_WAVES)]
    moves += [move(0, "t/a/0x0"), move(1, "t/b/0x3", COLD, HOT)]
    assert [each.reason for each in caps.apply_caps(moves, Settings(), {}, OLD)[-2:]] == ["cap_waves"] * 2


def test_a_swap_beyond_the_run_cap_is_not_overtaken_by_a_later_move():
    later = [move(0, "t/c/0x6", "c:1", "d:1", pair=1)]
    moves = caps.apply_caps([*SWAP, *later], Settings(max_bundles_per_run=3), {}, OLD)
    assert [each.reason for each in moves if each.pair == 1] == ["cap_run"]


def test_the_gate_is_asked_again_after_so_many_bundles_and_a_swap_stays_in_one_wave():
    many = [move(rank, f"t/n{rank}/0x0", pair=-1) for rank in range(MAX_BUNDLES_PER_WAVE - 2)]
    last = move(9, "t/z/0x0", pair=1)
    moves = caps.apply_caps([*many, *SWAP, last], Settings(), {}, [])
    assert [each.wave for each in moves if each.is_taken] == [0] * (MAX_BUNDLES_PER_WAVE + 2) + [1]


@pytest.mark.parametrize(
    ("groups", "settings", "reasons"),
    [
        # It moves already.
        ({"t/a": "g"}, {}, ["taken", *["anti_affinity"] * 3]),
        # Two of it would move in the swap alone.
        ({"t/b": "g"}, {}, ["taken", *["anti_affinity"] * 3]),
        # The first is capped: the others were placed as if it had moved.
        ({"t/a": "g"}, {"max_bundles_per_run": 0}, ["cap_run", *["anti_affinity"] * 3]),
    ],
)
def test_groups_give_one_bundle_a_run_and_swaps_stay_whole(groups, settings, reasons):
    moves = caps.apply_caps(SWAP, Settings().model_copy(update=settings), groups, OLD)
    assert [each.reason for each in moves] == [*reasons, "no_traffic"]
