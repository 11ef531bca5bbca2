"""Both forms of AvgShedder answer alike: random clusters full of ties, many at once in one Spark job."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.spark_apps.clusters import Cluster, shed_on_spark

from pulsar_rebalancer.plan import MAX_WAVES
from pulsar_rebalancer.settings import Settings
from pulsar_rebalancer.state import Counting, HitCount

CLUSTERS = 60
COUNTINGS = (
    Counting(counts=True, reason="counted"),
    Counting(counts=True, reason="gap", clear=True),
    Counting(counts=False, reason="too_soon"),
    Counting(counts=False, reason="other_thresholds"),
    Counting(counts=False, reason="other_thresholds", clear=True),
    Counting(counts=False, reason="forced"),
)
# Few different figures, so that scores and traffic are often equal, and some that 32-bit floats round.
CPU = st.sampled_from([None, 0.0, 10.0, 33.3, 33.300001, 60.0, 99.9, 250.0])
RATE = st.sampled_from([0.0, 1.0, 900.0, 1000.0, 2500.5, 20000.0])
NAMESPACES = ("t/a", "t/b", "pulsar/b0:8080", "sla-monitor/b1:8080", "pulsar/system")
REASONS = st.sampled_from([None, None, None, None, "recently_unloaded", "system_namespace", "bundle_quarantined"])
RULES = st.builds(
    lambda low, above, **rest: Settings(low_threshold=low, high_threshold=low + above, **rest),
    low=st.sampled_from([0.0, 5.0, 15.0]),
    above=st.sampled_from([0.0, 10.0, 60.0]),
    hit_count_low=st.integers(1, 4),
    hit_count_high=st.integers(1, 3),
    min_unload_message=st.sampled_from([0.0, 1000.0, 1e9]),
    min_unload_throughput=st.sampled_from([0.0, 1e6]),
    max_unload_percentage=st.sampled_from([0.1, 0.5, 1.0]),
    bandwidth_in_weight=st.sampled_from([0.0, 0.3, 1.0]),
    max_bundles_per_broker=st.sampled_from([None, 1, 3]),
    max_bundles_per_run=st.sampled_from([None, 2, 5]),
)


@st.composite
def clusters(draw, number):
    names = [f"b{n}" for n in range(draw(st.integers(0, 7)))]
    brokers = [
        {
            "broker": name,
            "cpu_usage": draw(CPU),
            "cpu_limit": draw(st.sampled_from([100.0, 100.0, 0.0, 300.0])),
            "bandwidth_in_usage": draw(CPU),
            "bandwidth_in_limit": 300.0,
            "msg_rate_in": draw(RATE),
            "msg_rate_out": draw(RATE),
            "msg_throughput_in": 1024 * draw(RATE),
            "msg_throughput_out": None,
            "left_out": draw(st.sampled_from([None] * 5 + ["broker_quarantined", "broker_excluded"])),
        }
        for name in draw(st.permutations(names))
    ]
    bundles = [
        {
            "broker": name,
            "bundle": f"{draw(st.sampled_from(NAMESPACES))}/0x{n % 3:08x}_0x{n:08x}",
            "msg_rate": draw(RATE),
            "msg_throughput": 1024 * draw(RATE),
            "reason": draw(REASONS),
        }
        for name in names
        for n in range(draw(st.integers(0, 8)))
    ]
    hits = draw(
        st.dictionaries(st.sampled_from([*names, "gone"]), st.builds(HitCount, st.integers(0, 3), st.integers(1, 4)))
    )
    counting = draw(st.sampled_from(COUNTINGS))
    force = draw(st.sampled_from([0.0, 20.0, 50.0])) if counting.reason == "forced" else None
    return Cluster(f"c{number}", draw(RULES), brokers, bundles, hits, counting, force)


def every_verdict(batch):
    """All reason codes that the specification gives for a batch."""
    answers = [cluster.specified() for cluster in batch]
    return {row["reason"] for answer in answers for row in (*answer.decisions, *answer.moves)}


def test_spark_answers_what_the_specification_answers(spark, tmp_path):
    seen = set()

    @settings(
        max_examples=4,
        deadline=None,
        derandomize=True,
        database=None,
        # A batch costs seconds, so a failure is reported as it was found.
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(batch=st.tuples(*(clusters(number) for number in range(CLUSTERS))))
    def answers_alike(batch):
        seen.update(every_verdict(batch))
        answers = shed_on_spark(spark, tmp_path, list(batch), partitions=3)
        for cluster in batch:
            specified, answer = cluster.specified(), answers[cluster.name]
            assert answer.decisions == specified.decisions
            assert answer.moves == specified.moves
            listed = {row["broker"] for row in cluster.brokers}
            assert answer.hits == {name: hit for name, hit in specified.hits.items() if name in listed}

    answers_alike()
    # The random clusters are worth something only if they reach every branch.
    assert seen >= {
        *("below_low", "hits_low", "hits_high", "fired", "below_minimum", "no_fitting_bundle", "middle", "too_soon"),
        *("below_force", "broker_quarantined", "broker_excluded", "taken", "no_traffic", "over_remaining"),
        *("recently_unloaded", "system_namespace", "bundle_quarantined", "cap_broker", "cap_run"),
    }


def test_waves_beyond_the_last_wait(spark, tmp_path):
    brokers = [
        {"broker": "b1", "cpu_usage": 80.0, "cpu_limit": 100.0, "msg_rate_in": 20000.0},
        {"broker": "b2", "cpu_usage": 30.0, "cpu_limit": 100.0, "msg_rate_in": 2000.0},
    ]
    bundles = [
        {"broker": "b1", "bundle": f"t/n{n:02}/0x0_0x1", "msg_rate": 100.0, "msg_throughput": 0.0, "reason": None}
        for n in range(MAX_WAVES + 3)
    ]
    cluster = Cluster("c", Settings(hit_count_high=1), brokers, bundles)
    answer = shed_on_spark(spark, tmp_path, [cluster])["c"]
    assert answer == cluster.specified()
    assert [move["reason"] for move in answer.moves] == ["taken"] * MAX_WAVES + ["cap_waves"] * 3
