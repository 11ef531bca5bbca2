"""GainShedder: what moves is worth its price, in scenes worked out by hand.

A standard broker's score rises by one point for each 100 msg/s, so a bundle of 500 msg/s carries five points. Three
brokers, hot, mild and cold, unless a scene says otherwise; the mean of their scores is where bundles should lead.
"""

from dataclasses import replace

from tests.vectors.rows import broker, bundle, completed, sample

from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.tables import Measure
from pulsar_rebalancer.state import HitCount, HitRules, LearnedBroker, LearnedValues, ShedderState
from pulsar_rebalancer.strategies.learning import BundleSums, LearningResult
from pulsar_rebalancer.strategies.sample import ClusterSample, SheddingResult
from pulsar_rebalancer.strategies.shedders import avg_shedder
from pulsar_rebalancer.strategies.shedders.gain_shedder import shed
from pulsar_rebalancer.strategies.shedders.registry import validate

READY = {name: HitCount(1, 7) for name in ("hot", "mild", "cold")}
"""The next high hit fires."""


def scene(loads, *, residuals=None, bundles=None, brokers=None, own=None, bottleneck="cpu", persistence=0.5, **more):
    """A cluster of which everything is known.

    Args:
        loads: of each broker's bundles, now and over the hour, points.
        residuals: points that no bundle explains, by broker.
        bundles: further columns by name of the bundle, `<broker>-<number>`.
        brokers: further columns by name of the broker.
        own: settings of GainShedder.
        persistence: share of the difference between now and the hour that lasts.
    """
    residuals = residuals or {}
    held = [
        bundle(name, f"t/n/{name}-{n}", rate=100 * now, load=100 * (later + persistence * (now - later)))
        | ((bundles or {}).get(f"{name}-{n}") or {})
        for name, carried in loads.items()
        for n, (now, later) in enumerate(carried)
    ]
    cpu = {name: residuals.get(name, 0) + sum(now for now, _ in carried) for name, carried in loads.items()}
    sums = {
        name: BundleSums(
            quick_sum=100 * sum(now for now, _ in carried), hour_sum=100 * sum(later for _, later in carried)
        )
        for name, carried in loads.items()
    }
    known = {name: LearnedBroker(50, residuals.get(name, 0), 0, 4) for name in loads}
    learned = LearnedValues(50, 0.01, 0.0, 25.0, known, bottleneck, persistence=persistence)
    settings = validate({"strategy": "GainShedder", "strategy_settings": {"min_gain": 20} | (own or {})}, label="test")
    rows = [broker(name, usage, rate=100 * usage, **(brokers or {}).get(name, {})) for name, usage in cpu.items()]
    return replace(sample(rows, held, settings), learning=LearningResult(learned, sums), **more)


def shed_once(given: ClusterSample, hits: dict[str, HitCount] | None = None) -> SheddingResult:
    return shed(given, ShedderState(hits=READY if hits is None else hits))


def moved(result: SheddingResult) -> dict[str, str | None]:
    return {move.bundle.rpartition("/")[2]: move.destination for move in result.moves if move.is_taken}


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
    better = dict.fromkeys(("hot-0", "hot-3"), Reason.BELOW_GAIN)
    passed_over = better | {"hot-4": Reason.BELOW_GAIN, "hot-5": Reason.NO_TRAFFIC}
    assert {name: reason for name, reason in reasons(result).items() if reason is not Reason.TAKEN} == passed_over
    pair = result.decisions[0]
    assert pair.explanation == (
        "hot is 41.1 points above cold, 8 low and 2 high hits. Best move: t/n/hot-1 to cold; "
        "points from the mean: +23 and -18 before, +7 and -2 after; gain 803, price 30"
    )
    assert (pair.reason, pair.target) == (Reason.FIRED, 2000)
    # All three brokers were part of a move.
    assert dict(result.state.hits) == {}


def test_a_small_gain_needs_an_urgent_pair_or_a_lower_price():
    # 1 gains 2 x 16 - 2 = 30; 0.4 gains 12.5: less than 20 x 1.05, more than 10 x 1.05.
    few = {"hot": [*steady(0.4), (39.6, 39.6)], "mild": steady(32), "cold": steady(24)}
    low, high = {"hot": HitCount(0, 7)}, {"hot": HitCount(1, 7)}
    nothing = shed_once(scene(few), low)
    # It fired, so it must collect its hits again.
    assert (moved(nothing), dict(nothing.state.hits)) == ({}, {})
    assert moved(shed_once(scene(few, own={"min_gain": 10}), low)) == {"hot-0": "cold"}
    assert moved(shed_once(scene(few, own={"hot_threshold": 40}), high)) == {"hot-0": "cold"}
    assert moved(shed_once(scene(few, forced=True, force_threshold=10), {})) == {"hot-0": "cold"}


def test_a_burst_moves_where_a_steady_bundle_would_have_to_come_back():
    # Hot is 13 above the mean now, 1 above over the hour.
    hot = [(15.0, 15.0), (10.0, 10.0), (10.0, 1.0), (10.0, 1.0)]
    loads = {"hot": hot, "mild": steady(25), "cold": steady(25)}
    assert moved(shed_once(scene(loads))) == {"hot-2": "cold"}
    # If deviations do not last, hot will soon be as low as the others; if they do, a burst is like a steady bundle.
    assert moved(shed_once(scene(loads, persistence=0.0))) == {}
    assert moved(shed_once(scene(loads, persistence=1.0))) == {"hot-1": "cold"}


def test_only_brokers_whose_pair_fires_take_part():
    # One move levels hot and cold. Then b is 10 above c, enough for a move, but their pair has not fired.
    loads = {"hot": steady(30, 30), "b": steady(*[5] * 7), "c": steady(25), "cold": steady(0)}
    assert moved(shed_once(scene(loads))) == {"hot-0": "cold"}


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
    assert (result.moves, dict(result.state.hits)) == (expected.moves, dict(expected.state.hits))
    assert [replace(pair, explanation=None) for pair in result.decisions] == expected.decisions
    assert "the shedder follows the rules of AvgShedder. [memory_decides]. Taken: " in (
        completed(result)[0].explanation or ""
    )
    assert result.sentence.endswith("[memory_decides]")
    assert result.state.learned == given.learning.learned
    forced = replace(given, counting=HitRules(counts=False, reason=Reason.FORCED), forced=True, force_threshold=10)
    assert shed(forced, hits).state.learned == LearnedValues()


def test_a_gap_between_samples_takes_the_hits():
    after = shed_once(scene(USUAL, counting=HitRules(counts=True, reason=Reason.GAP, clear=True)))
    assert (moved(after), after.state.hits["hot"]) == ({}, HitCount(1, 1))


def test_a_broker_that_is_not_among_those_to_relieve_says_so():
    # Hot has the highest score, but mild is 12 points above the mean, hot 10: only mild and cold, at -22, are paired.
    # Mild's bundle would only swap the two.
    loads = {"hot": [(30.0, 20.0), (20.0, 14.0)], "mild": [(40.0, 48.0)], "cold": steady(10)}
    result = shed_once(scene(loads))
    assert (moved(result), result.decisions[0].reason) == ({}, Reason.NO_GAIN)
    assert reasons(result) == dict.fromkeys(("hot-0", "hot-1"), Reason.NOT_REACHED)
    told = ". The expected load is +10 points from the mean; hotter brokers shed first"
    assert (result.decisions[0].explanation or "").endswith(told)


CROSSING = {"hot": steady(50, 20, 20), "mild": steady(0.5, 55.5), "cool": steady(41), "cold": steady(23)}
"""After a move from hot to cold, cool is the coldest, and mild is paired with cold: 13 points apart instead of 15."""


def test_a_bundle_that_may_not_go_to_one_broker_may_go_to_the_next():
    def forbids(name: str, source: str, destination: str) -> Reason | None:
        return Reason.POLICY_FORBIDS if destination == "cool" and name == "t/n/mild-0" else None

    given = scene(CROSSING | {"mild": steady(10, 46)}, forbids=forbids, forced=True, force_threshold=10)
    assert moved(shed_once(given, {}))["mild-0"] == "cold"
