"""Both forms of AvgShedder answer alike: random clusters full of ties, many at once in one Spark job."""

from __future__ import annotations

from random import Random

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.spark_apps.clusters import Cluster, shed_on_spark

from pulsar_rebalancer.isolation import IsolationPolicy
from pulsar_rebalancer.plan import MAX_WAVES
from pulsar_rebalancer.policies import Policies
from pulsar_rebalancer.settings import Settings
from pulsar_rebalancer.snapshot import namespace_of
from pulsar_rebalancer.state import Counting, HitCount
from pulsar_rebalancer.strategies.avg_shedder import COUNTED

CLUSTERS = 60
UNDER_POLICIES = 6
"""One cluster of so many is."""

HOSTS = ("b[0-3]", "b.*")
COUNTINGS = (
    Counting(counts=True, reason="counted"),
    Counting(counts=True, reason="gap", clear=True),
    Counting(counts=False, reason="too_soon"),
    Counting(counts=False, reason="other_thresholds"),
    Counting(counts=False, reason="other_thresholds", clear=True),
    Counting(counts=False, reason="forced"),
)
# Few different figures, so that scores and traffic are often equal, and some that 32-bit floats round.
CPU = (None, 0.0, 10.0, 33.3, 33.300001, 60.0, 99.9, 250.0)
RATE = (0.0, 1.0, 900.0, 1000.0, 2500.5, 20000.0)
NAMESPACES = ("t/a", "t/b", "t/c", "t/d", "pulsar/b0:8080", "sla-monitor/b1:8080", "pulsar/system")
REASONS = (None, None, None, None, "recently_unloaded", "system_namespace", "bundle_quarantined")
LEFT_OUT = (None, None, None, None, None, "broker_quarantined", "broker_excluded")
VERDICTS = {
    *("below_low", "hits_low", "hits_high", "fired", "below_minimum", "no_fitting_bundle", "middle", "too_soon"),
    *("below_force", "broker_quarantined", "broker_excluded", "taken", "no_traffic", "over_remaining"),
    *("recently_unloaded", "system_namespace", "bundle_quarantined", "cap_broker", "cap_run"),
    *("policy_unknown", "policy_forbids", "anti_affinity", "too_many_topics", "no_allowed_bundle"),
}


def rules(random: Random) -> Settings:
    low = random.choice([0.0, 5.0, 15.0])
    return Settings(
        low_threshold=low,
        high_threshold=low + random.choice([0.0, 10.0, 60.0]),
        hit_count_low=random.randint(1, 4),
        hit_count_high=random.randint(1, 3),
        min_unload_message=random.choice([0.0, 1000.0, 1e9]),
        min_unload_throughput=random.choice([0.0, 1e6]),
        max_unload_percentage=random.choice([0.1, 0.5, 1.0]),
        bandwidth_in_weight=random.choice([0.0, 0.3, 1.0]),
        max_bundles_per_broker=random.choice([None, 1, 3]),
        max_bundles_per_run=random.choice([None, 1, 3]),
        max_broker_topics=50,
    )


def broker(random: Random, name: str) -> dict[str, object]:
    return {
        "broker": name,
        "cpu_usage": random.choice(CPU),
        "cpu_limit": random.choice([100.0, 100.0, 0.0, 300.0]),
        "bandwidth_in_usage": random.choice(CPU),
        "bandwidth_in_limit": 300.0,
        "msg_rate_in": random.choice(RATE),
        "msg_rate_out": random.choice(RATE),
        "msg_throughput_in": 1024 * random.choice(RATE),
        "msg_throughput_out": None,
        "left_out": random.choice(LEFT_OUT),
        "error": random.choice((*[None] * 19, "timeout")),
        "topics": random.choice((0, 0, 50, 51)),
        "reserved_by": random.choice((None, None, None, "p1", "p2")),
    }


def bundle(random: Random, owner: str, number: int) -> dict[str, object]:
    return {
        "broker": owner,
        "bundle": f"{random.choice(NAMESPACES)}/0x{number % 3:08x}_0x{number:08x}",
        "msg_rate": random.choice(RATE),
        "msg_throughput": 1024 * random.choice(RATE),
        "policy": None,
        "reason": random.choice(REASONS),
    }


def policies(random: Random) -> Policies:
    """Few namespaces, so that some are in a group and under an isolation policy."""
    shared = IsolationPolicy(name="p", namespaces=(random.choice(("t/a", "t/.*")),), primary=(random.choice(HOSTS),))
    return Policies(
        isolation=random.choice([(), (shared,)]),
        groups={namespace: "g" for namespace in ("t/a", "t/b", "t/c") if random.random() < 0.7},
        domains=random.choice([{}, {"b0:1": "1", "b1:1": "1", "b2:1": "2"}]),
        unknown=random.choice([{}, {}, {}, {"t/b": "timeout"}]),
    )


def cluster(random: Random, number: int) -> Cluster:
    asked = policies(random) if number % UNDER_POLICIES == 0 else None
    names = [f"b{n}:1" for n in range(7 if asked else random.randint(0, 7))]
    random.shuffle(names)
    counting, settings = random.choice(COUNTINGS), rules(random)
    brokers = [broker(random, name) for name in names]
    bundles = [bundle(random, name, n) for name in names for n in range(random.randint(0, 16))]
    if asked is not None:
        brokers = [row | {"reserved_by": asked.reserved_by(row["broker"])} for row in brokers]
        bundles = [row | {"policy": asked.kind(namespace_of(row["bundle"]))} for row in bundles]
        # Policies are asked when a pair fires.
        counting, settings = COUNTED, settings.model_copy(update={"hit_count_low": 1, "min_unload_message": 0.0})
    return Cluster(
        name=f"c{number}",
        settings=settings,
        brokers=brokers,
        bundles=bundles,
        hits={name: HitCount(random.randint(0, 3), random.randint(1, 4)) for name in (*names[:5], "gone")},
        counting=counting,
        force_threshold=random.choice([0.0, 20.0, 50.0]) if counting.reason == "forced" else None,
        policies=asked,
    )


def test_spark_answers_what_the_specification_answers(spark, tmp_path):
    seen: set[str] = set()

    # A batch costs seconds: few of them, each with many clusters, and a failure is reported as it was found.
    @settings(
        max_examples=4,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(seed=st.integers(0, 2**32))
    def answers_alike(seed):
        random = Random(seed)
        batch = [cluster(random, number) for number in range(CLUSTERS)]
        answers = shed_on_spark(spark, tmp_path, batch, partitions=3)
        for each in batch:
            specified, answer = each.specified(), answers[each.name]
            assert answer.decisions == specified.decisions
            assert answer.moves == specified.moves
            listed = {row["broker"] for row in each.brokers}
            assert answer.hits == {name: hit for name, hit in specified.hits.items() if name in listed}
            seen.update(row["reason"] for row in (*specified.decisions, *specified.moves))

    answers_alike()
    # The random clusters are worth something only if they reach every branch.
    assert seen >= VERDICTS


def test_waves_beyond_the_last_wait(spark, tmp_path):
    brokers = [
        {"broker": "b1", "cpu_usage": 80.0, "cpu_limit": 100.0, "msg_rate_in": 20000.0},
        {"broker": "b2", "cpu_usage": 30.0, "cpu_limit": 100.0, "msg_rate_in": 2000.0},
    ]
    bundles = [
        {"broker": "b1", "bundle": f"t/n{n:02}/0x0_0x1", "msg_rate": 100.0, "msg_throughput": 0.0, "reason": None}
        for n in range(MAX_WAVES + 3)
    ]
    waiting = Cluster("c", Settings(hit_count_high=1), brokers, bundles)
    answer = shed_on_spark(spark, tmp_path, [waiting])["c"]
    assert answer == waiting.specified()
    assert [move["reason"] for move in answer.moves] == ["taken"] * MAX_WAVES + ["cap_waves"] * 3
