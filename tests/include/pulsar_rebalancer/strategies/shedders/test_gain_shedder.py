"""GainShedder: what moves is worth its price, in scenes worked out by hand.

A standard broker's score rises by one point for each 100 msg/s, so a bundle of 500 msg/s carries five points. Three
brokers, hot, mild and cold, unless a scene says otherwise; the mean of their scores is where bundles should lead.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.vectors.rows import broker, bundle, completed, sample

from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.tables import Measure
from pulsar_rebalancer.state.counting import Counting
from pulsar_rebalancer.state.learned import Learned, LearnedBroker
from pulsar_rebalancer.state.state_documents import HitCount
from pulsar_rebalancer.strategies.fitting import validate
from pulsar_rebalancer.strategies.kept import ShedderState
from pulsar_rebalancer.strategies.learning import Lesson, Sums
from pulsar_rebalancer.strategies.shedders import avg_shedder
from pulsar_rebalancer.strategies.shedders.gain_shedder import shed

if TYPE_CHECKING:
    from pulsar_rebalancer.strategies.sample import ClusterSample, SheddingResult

READY = {name: HitCount(1, 7) for name in ("hot", "mild", "cold")}
"""The next high hit fires."""


def scene(
    loads: dict[str, list[tuple[float, float]]],
    *,
    residuals: dict[str, float] | None = None,
    bundles: dict[str, Any] | None = None,
    brokers: dict[str, dict[str, Any]] | None = None,
    own: dict[str, float] | None = None,
    bottleneck: str = "cpu",
    **more: Any,
) -> ClusterSample:
    """A cluster of which everything is known.

    Args:
        loads: of each broker's bundles, now and on the hour's average, points.
        residuals: points that no bundle explains, by broker.
        bundles: further columns by name of the bundle, `<broker>-<number>`.
        brokers: further columns by name of the broker.
        own: settings of GainShedder.
    """
    residuals = residuals or {}
    held = [
        bundle(name, f"t/n/{name}-{n}", rate=100 * now, load_now=100 * now, load_later=100 * later)
        | ((bundles or {}).get(f"{name}-{n}") or {})
        for name, carried in loads.items()
        for n, (now, later) in enumerate(carried)
    ]
    cpu = {name: residuals.get(name, 0) + sum(now for now, _ in carried) for name, carried in loads.items()}
    sums = {
        name: Sums(now=100 * sum(now for now, _ in carried), later=100 * sum(later for _, later in carried))
        for name, carried in loads.items()
    }
    known = {name: LearnedBroker(50, residuals.get(name, 0), 0, 4) for name in loads}
    learned = Learned(50, 0.01, 0.0, 25.0, known, bottleneck)
    settings = validate({"strategy": "GainShedder", "strategy_settings": {"min_gain": 20} | (own or {})}, where="test")
    rows = [broker(name, usage, rate=100 * usage, **(brokers or {}).get(name, {})) for name, usage in cpu.items()]
    return replace(sample(rows, held, settings), lesson=Lesson(learned, sums), **more)


def shed_once(given: ClusterSample, hits: dict[str, HitCount] | None = None) -> SheddingResult:
    return shed(given, ShedderState(hits=READY if hits is None else hits))


def moved(result: SheddingResult) -> dict[str, str | None]:
    return {move.bundle.rpartition("/")[2]: move.destination for move in result.moves if move.taken}


def reasons(result: SheddingResult) -> dict[str, Reason]:
    return {move.bundle.rpartition("/")[2]: move.reason for move in result.moves}


def steady(*points: float) -> list[tuple[float, float]]:
    return [(each, each) for each in points]


USUAL = {"hot": steady(30, 16, 4, 1, 0.1, 0), "mild": steady(24), "cold": steady(10)}
"""Hot is 22.7 points above the mean of 28.4, cold 18.4 below."""


def test_the_best_bundle_moves_first_and_each_other_has_a_reason():
    # 16: 2 x 16 x 41.1 - 2 x 16^2 = 803, price 10 x (1 + 16/8); 30 gains only 666. Then 4 to mild, which
    # is the coldest now.
    result = shed_once(scene(USUAL))
    assert moved(result) == {"hot-1": "cold", "hot-2": "mild"}
    better = dict.fromkeys(("hot-0", "hot-3"), Reason.BETTER_BUNDLE)
    passed_over = better | {"hot-4": Reason.BELOW_GAIN, "hot-5": Reason.NO_TRAFFIC}
    assert {name: reason for name, reason in reasons(result).items() if reason is not Reason.TAKEN} == passed_over
    pair = result.decisions[0]
    assert pair.explanation == (
        "hot is 41.1 points above cold, 8 low and 2 high hits. t/n/hot-1 to cold brings the two from +23/-18 to +7/-2 "
        "now, from +23/-18 to +7/-2 on the hour's average: gain 803, price 30"
    )
    assert (pair.reason, pair.target) == (Reason.FIRED, 2000)
    # All three brokers were part of a move.
    assert dict(result.kept.hits) == {}


def test_a_pair_that_finds_nothing_keeps_its_hits():
    # Any move of 50 would only swap hot and cold.
    result = shed_once(scene(USUAL | {"hot": steady(50)}))
    pair = result.decisions[0]
    assert (moved(result), reasons(result)) == ({}, {"hot-0": Reason.WOULD_OVERSHOOT})
    assert (pair.reason, pair.high_hits) == (Reason.NO_GAIN, 2)
    assert "gain -1000, price 72" in (pair.explanation or "")
    assert result.kept.hits["hot"] == result.kept.hits["cold"] == HitCount(2, 8)


def test_a_small_gain_needs_an_urgent_pair_or_a_lower_price():
    # 1 gains 2 x 16 - 2 = 30 per hour's mean and now; 0.4 gains 12.5: less than 20 x 1.05, more than 10 x 1.05.
    few = {"hot": [*steady(0.4), (39.6, 39.6)], "mild": steady(32), "cold": steady(24)}
    low, high = {"hot": HitCount(0, 7)}, {"hot": HitCount(1, 7)}
    assert moved(shed_once(scene(few), low)) == {}
    assert moved(shed_once(scene(few, own={"min_gain": 10}), low)) == {"hot-0": "cold"}
    assert moved(shed_once(scene(few, own={"hot_threshold": 40}), high)) == {"hot-0": "cold"}
    assert moved(shed_once(scene(few, forced=True, force_threshold=10), {})) == {"hot-0": "cold"}


def test_a_hot_source_collects_high_hits_below_the_high_threshold():
    loads = {"hot": steady(*[9] * 9), "mild": steady(70), "cold": steady(60)}
    given = scene(loads)
    once = shed_once(given, {})
    assert once.decisions[0].reason is Reason.HITS_HOT
    assert moved(shed_once(given, dict(once.kept.hits))) == {"hot-0": "cold"}
    cooler = shed_once(scene(loads, own={"hot_threshold": 82}), {})
    assert (cooler.decisions[0].reason, cooler.kept.hits["hot"]) == (Reason.HITS_LOW, HitCount(0, 1))


def test_equal_brokers_share_in_filling_the_coldest():
    # Ten at 60 and one empty. AvgShedder would move 30 points off one of the ten.
    full = {f"b{n}": steady(*[6] * 10) for n in range(9)}
    result = shed_once(scene({"hot": steady(*[6] * 10), **full, "cold": []}))
    sources = [move.source for move in result.moves if move.taken]
    assert len(sources) == len(set(sources)) == 9
    # All of them fill the cold broker of one pair: none moves in return for another.
    assert "Taken: 9 bundles with 5,400 msg/s. Passed over" in (completed(result)[0].explanation or "")
    # The mean, 54.5, is no bound: half of the pair's difference gains most, even if hot falls to 30.
    large = scene({"hot": steady(30, *[6] * 5), **full, "cold": []})
    assert moved(shed_once(large))["hot-0"] == "cold"


def test_a_burst_moves_where_a_steady_bundle_would_have_to_come_back():
    # Hot is 13 above the mean now, 1 above on the hour's average. A steady 10 gains 200 now and loses 160 later.
    hot = [(15.0, 15.0), (10.0, 10.0), (10.0, 1.0), (10.0, 1.0)]
    result = shed_once(scene({"hot": hot, "mild": steady(25), "cold": steady(25)}))
    assert moved(result) == {"hot-2": "cold"}


def test_a_steady_bundle_stays_where_only_a_burst_is_too_much():
    # The burst of 20 would only swap the brokers; a steady 10 gains 200 now and loses 160 later.
    hot = [(15.0, 15.0), (10.0, 10.0), (20.0, 2.0)]
    assert moved(shed_once(scene({"hot": hot, "mild": steady(25), "cold": steady(25)}))) == {}


def test_only_brokers_whose_pair_fires_take_part():
    # One move levels hot and cold. Then b is 10 above c, enough for a move, but their pair has not fired.
    loads = {"hot": steady(30, 30), "b": steady(*[5] * 7), "c": steady(25), "cold": steady(0)}
    assert moved(shed_once(scene(loads))) == {"hot-0": "cold"}


def test_what_a_drain_brings_counts_at_its_destination():
    full = shed_once(scene(USUAL, arriving={"cold": {Measure.RATE: 3000.0}}))
    assert "cold" not in moved(full).values()


def test_where_the_network_is_the_bottleneck_traffic_is_bytes():
    given = scene(USUAL, bottleneck="bandwidth_out", bundles={"hot-1": {"msg_throughput": 1_600_000.0}})
    result = shed_once(given)
    # The loads are the same points, learned from kB/s.
    assert moved(result) == {"hot-1": "cold", "hot-2": "mild"}
    assert {move.measure for move in result.moves} == {Measure.THROUGHPUT}
    pair = completed(result)[0]
    assert (pair.measure, pair.target) == (Measure.THROUGHPUT, 1_600_000)
    assert "Taken: 2 bundles with 1.53 MiB/s" in (pair.explanation or "")
    # 30 points on their way to cold, as messages or as bytes.
    arriving = {"cold": {Measure.RATE: 0.0, Measure.THROUGHPUT: 3_000_000.0}}
    assert "cold" not in moved(shed_once(replace(given, arriving=arriving))).values()
    arriving = {"cold": {Measure.RATE: 0.0, Measure.THROUGHPUT: 100_000.0}}
    assert moved(shed_once(replace(given, arriving=arriving)))["hot-1"] == "cold"
    # Twice the network of the others, and half the height of a bundle.
    wide = {"cold": {"bandwidth_out_limit": 2e6, "cpu_limit": 100.0}} | {
        name: {"bandwidth_out_limit": 1e6} for name in ("hot", "mild")
    }
    loads = {"hot": steady(*[5] * 12), "mild": steady(30), "cold": steady(20)}
    assert len(moved(shed_once(scene(loads, bottleneck="bandwidth_out", brokers=wide)))) > len(
        moved(shed_once(scene(loads)))
    )


def test_where_memory_decides_it_says_so_and_acts_as_avg_shedder():
    given, hits = scene(USUAL, bottleneck="direct_memory"), ShedderState(hits=READY)
    result, expected = shed(given, hits), avg_shedder.shed(given, hits)
    assert (result.moves, dict(result.kept.hits)) == (expected.moves, dict(expected.kept.hits))
    assert [replace(pair, explanation=None) for pair in result.decisions] == expected.decisions
    assert "bundles are chosen by the default strategy's rules. [memory_decides]. Taken: " in (
        completed(result)[0].explanation or ""
    )
    assert result.sentence.endswith("[memory_decides]")
    assert result.kept.learned == given.lesson.learned
    forced = replace(given, counting=Counting(counts=False, reason=Reason.FORCED), forced=True, force_threshold=10)
    assert shed(forced, hits).kept.learned == Learned()


def test_a_gap_between_samples_takes_the_hits():
    after = shed_once(scene(USUAL, counting=Counting(counts=True, reason=Reason.GAP, clear=True)))
    assert (moved(after), after.kept.hits["hot"]) == ({}, HitCount(1, 1))


def test_a_broker_without_bundles_to_give_leaves_its_partner_to_the_next():
    # Other processes take 70 points of hot; mild can give.
    given = scene({"hot": [], "mild": steady(*[10] * 5), "cold": steady(10)}, residuals={"hot": 70.0})
    result = shed_once(given)
    assert set(moved(result).values()) == {"cold"}
    assert {move.source for move in result.moves} == {"mild"}
    # Only the brokers of the moves start again.
    assert result.kept.hits == {"hot": HitCount(2, 8)}
    assert result.decisions[0].reason is Reason.FIRED
    assert (result.decisions[0].explanation or "").endswith(
        "hits. t/n/mild-0 of mild to cold brings the two from +7/-33 to -3/-23 now, "
        "from +7/-33 to -3/-23 on the hour's average: gain 600, price 22"
    )


def test_a_pair_from_which_nothing_may_move_says_so():
    result = shed_once(scene({"hot": [], "mild": [], "cold": []}, residuals={"hot": 70.0, "mild": 50.0, "cold": 10.0}))
    assert (moved(result), result.decisions[0].reason) == ({}, Reason.NO_GAIN)
    assert (result.decisions[0].explanation or "").endswith(". It has no bundle that may move")


def test_bundles_that_must_stay_do_not_hide_those_of_a_broker_whose_pair_does_not_fire():
    # Only the 50 largest of mild are read.
    held = {"hot": [], "mild": steady(*[0.5] * 50, 0.45), "cold": steady(10)}
    stay = {f"mild-{n}": {"reason": Reason.RECENTLY_UNLOADED} for n in range(50)}
    result = shed_once(scene(held, residuals={"hot": 70.0, "mild": 24.0}, bundles=stay))
    assert moved(result) == {"mild-50": "cold"}


def test_a_broker_that_is_not_among_those_to_relieve_says_so():
    # Hot has the highest score, but mild is 12 points above the mean, hot 10: only mild and cold, at -22, are paired.
    # Mild's bundle would only swap the two.
    loads = {"hot": [(30.0, 20.0), (20.0, 14.0)], "mild": [(40.0, 48.0)], "cold": steady(10)}
    result = shed_once(scene(loads))
    assert (moved(result), result.decisions[0].reason) == ({}, Reason.NO_GAIN)
    assert reasons(result) == dict.fromkeys(("hot-0", "hot-1"), Reason.NOT_REACHED)
    told = ". By present and hour's load it is +10 from the mean, not among those to relieve"
    assert (result.decisions[0].explanation or "").endswith(told)


def test_a_hot_broker_that_could_give_nothing_leaves_its_partner_even_if_its_pair_does_not_fire():
    # Two bundles bring hot to 60 and cold to 34. Busy, at 70, has none, so the third one goes to cool, at 30.
    loads = {"hot": steady(*[12] * 7), "busy": [], "cool": steady(30), "cold": steady(10)}
    found = moved(shed_once(scene(loads, residuals={"busy": 70.0})))
    assert found == {"hot-0": "cold", "hot-1": "cold", "hot-2": "cool", "hot-3": "cold"}


CROSSING = {"hot": steady(50, 20, 20), "mild": steady(0.5, 55.5), "cool": steady(41), "cold": steady(23)}
"""After a move from hot to cold, cool is the coldest, and mild is paired with cold: 13 points apart instead of 15."""


def test_a_move_that_was_not_worth_its_price_may_be_worth_a_lower_one():
    # 0.5 gains 14.5, less than 21.3 for cool, but 12.5 more than 10.6 for cold, whose pair is urgent.
    result = shed_once(scene(CROSSING))
    assert moved(result)["mild-0"] == "cold"
    told = result.decisions[1].explanation or ""
    assert ". t/n/mild-0 to cold brings" in told
    assert told.endswith(": gain 12, price 11")


def test_a_bundle_that_may_not_go_to_one_broker_may_go_to_the_next():
    def forbids(name: str, source: str, destination: str) -> Reason | None:
        return Reason.POLICY_FORBIDS if destination == "cool" and name == "t/n/mild-0" else None

    given = scene(CROSSING | {"mild": steady(10, 46)}, forbids=forbids, forced=True, force_threshold=10)
    assert moved(shed_once(given, {}))["mild-0"] == "cold"


def test_the_price_counts_what_a_bundle_weighs_on_its_broker():
    # 32 points of a standard broker are 16 on hot, which has twice the cores.
    loads = {"hot": steady(32, *[16] * 6), "mild": steady(20), "cold": steady(0)}
    explanation = shed_once(scene(loads, brokers={"hot": {"cpu_limit": 200.0, "cpu_usage": 128.0}})).decisions[0]
    assert "t/n/hot-0 to cold" in (explanation.explanation or "")
    assert (explanation.explanation or "").endswith("price 30")


def test_cores_scale_what_a_bundle_weighs():
    # 20 points of a standard broker are 10 on one with twice the cores.
    loads = {"hot": steady(*[5] * 12), "mild": steady(30), "cold": steady(20)}
    large = scene(loads, brokers={"cold": {"cpu_limit": 200.0, "cpu_usage": 20.0}})
    # The weighted mean is 27.5: six bundles take hot from +32.5 to +2.5, and cold from -17.5 to -2.5.
    assert len(moved(shed_once(large))) == 6


def test_pairs_and_mean_stay_within_a_pool():
    reserved = {name: {"reserved_by": "p"} for name in ("hot", "cold")}
    # Cold is below the mean of its pool, and above that of all brokers.
    loads = {"hot": steady(45, 16, 14), "cold": [], "mild": steady(0), "other": steady(0)}
    result = shed_once(scene(loads, brokers=reserved, residuals={"cold": 30.0}))
    assert moved(result) == {"hot-1": "cold"}


def test_a_bundle_that_policies_keep_leaves_its_place_to_the_next():
    def forbids(name: str, source: str, destination: str) -> Reason | None:
        return Reason.POLICY_FORBIDS if name == "t/n/hot-1" else None

    result = shed_once(scene(USUAL, forbids=forbids, bundles={"hot-2": {"reason": Reason.RECENTLY_UNLOADED}}))
    assert moved(result)["hot-0"] == "cold"
    assert reasons(result)["hot-1"] is Reason.POLICY_FORBIDS
    assert reasons(result)["hot-2"] is Reason.RECENTLY_UNLOADED
    heartbeat = {"hot-1": {"bundle": "pulsar/hot:8080/0x00000000_0xffffffff"}}
    of_broker = shed_once(scene(USUAL, bundles=heartbeat))
    assert reasons(of_broker)["0x00000000_0xffffffff"] is Reason.SYSTEM_NAMESPACE
    free = shed_once(scene(USUAL, own={"min_gain": 0}))
    assert reasons(free)["hot-4"] is Reason.BELOW_GAIN  # too small to be looked at


def test_an_uncounted_run_changes_no_state():
    given = scene(USUAL, forced=True, force_threshold=10, counting=Counting(counts=False, reason=Reason.FORCED))
    before = ShedderState(hits=READY, learned=Learned(7))
    result = shed(given, before)
    assert len(moved(result)) == 2
    assert (dict(result.kept.hits), result.kept.learned) == (READY, Learned(7))
