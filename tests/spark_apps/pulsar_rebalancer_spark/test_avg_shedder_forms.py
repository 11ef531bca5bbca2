"""Both forms of AvgShedder answer alike, the specification and columns: random clusters full of ties."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.spark_apps.pulsar_rebalancer_spark.clusters import Cluster, shed_in_columns
from tests.vectors.rows import brokers_of

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.names import SYSTEM_NAMESPACE, namespace_of
from pulsar_rebalancer.policies.cluster_policies import Policies
from pulsar_rebalancer.policies.isolation import IsolationPolicy
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.plan import MAX_WAVES
from pulsar_rebalancer.run.tables import LARGEST, TRAFFIC
from pulsar_rebalancer.state.counting import Counting
from pulsar_rebalancer.state.state_documents import HitCount
from pulsar_rebalancer.strategies.sample import COUNTED
from pulsar_rebalancer.strategies.scoring import SCORED, score

CLUSTERS = 60
UNDER_POLICIES = 6
"""One cluster of so many is."""

HOSTS = ("b[0-3]", "b.*")
COUNTINGS = (
    Counting(counts=True, reason=Reason.COUNTED),
    Counting(counts=True, reason=Reason.GAP, clear=True),
    Counting(counts=False, reason=Reason.TOO_SOON),
    Counting(counts=False, reason=Reason.OTHER_THRESHOLDS),
    Counting(counts=False, reason=Reason.OTHER_THRESHOLDS, clear=True),
    Counting(counts=False, reason=Reason.FORCED),
)
# Few different figures, so that scores and traffic are often equal, and some that 32-bit floats round.
CPU = (None, 0.0, 10.0, 33.3, 33.300001, 60.0, 99.9, 250.0)
RATE = (0.0, 1.0, 900.0, 1000.0, 2500.5, 20000.0)
NAMESPACES = ("t/a", "t/b", "t/c", "t/d", "pulsar/b0:8080", "sla-monitor/b1:8080", "pulsar/system")
REASONS = (None, None, None, None, "recently_unloaded", "system_namespace", "bundle_quarantined")
LEFT_OUT = (None, None, None, None, None, "broker_quarantined", "broker_excluded")
VERDICTS = {
    *("below_low", "hits_low", "hits_high", "fired", "below_minimum", "no_fitting_bundle", "middle", "too_soon"),
    *("below_force", "broker_quarantined", "broker_excluded", "taken", "no_traffic", "over_remaining", "below_share"),
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
        min_bundle_share=random.choice([0.0, 0.0, 0.1, 0.5]),
    )


def broker(random: Random, name: str) -> dict[str, Any]:
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


def bundle(random: Random, owner: str, number: int) -> dict[str, Any]:
    namespace = random.choice(NAMESPACES)
    return {
        "broker": owner,
        "bundle": f"{namespace}/0x{number % 3:08x}_0x{number:08x}",
        "msg_rate": random.choice(RATE),
        "msg_throughput": 1024 * random.choice(RATE),
        "policy": None,
        "reason": "system_namespace" if namespace == SYSTEM_NAMESPACE else random.choice(REASONS),
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
    # Some have given a hit by the score that they have now.
    samples = {each.broker: score(each, settings) for each in brokers_of(brokers) if random.random() < 0.5}
    counting = replace(counting, acts=random.random() < 0.5, samples=samples)
    return Cluster(
        name=f"c{number}",
        settings=settings,
        brokers=brokers,
        bundles=bundles,
        hits={name: HitCount(random.randint(0, 3), random.randint(1, 4)) for name in (*names[:5], "gone")},
        counting=counting,
        force_threshold=random.choice([0.0, 20.0, 50.0]) if counting.reason is Reason.FORCED else None,
        policies=asked,
    )


def test_columns_answer_what_the_specification_answers():
    seen: set[str] = set()

    # A failure is reported as it was found.
    @settings(
        max_examples=8,
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
        answers = shed_in_columns(batch)
        for each in batch:
            specified, answer = each.specified(), answers[each.name]
            assert answer.decisions == specified.decisions
            assert answer.moves == specified.moves
            listed = {row["broker"] for row in each.brokers}
            assert answer.hits == {name: hit for name, hit in specified.hits.items() if name in listed}
            seen.update(row.reason for row in specified.decisions)
            seen.update(move.reason for move in specified.moves)

    answers_alike()
    # The random clusters are worth something only if they reach every branch.
    assert seen >= VERDICTS


def strange(random: Random, number: int, figures: list[float]) -> Cluster:
    """A cluster with such figures everywhere: resources of any size, traffic as far as validation lets it pass."""

    def figure(column: str) -> float | None:
        largest = LARGEST[column] if column in TRAFFIC else math.inf
        return random.choice([each for each in (*figures, 0.0, 1.0, 100.0) if each <= largest])

    columns = [*(f"{name}_{part}" for name in SCORED for part in ("usage", "limit")), *TRAFFIC]
    brokers: list[dict[str, Any]] = [
        {"broker": f"b{n}:1", "left_out": None, **{column: figure(column) for column in columns}} for n in range(4)
    ]
    held = [bundle(random, row["broker"], n) for row in brokers for n in range(3)]
    for row in held:
        row |= {"msg_rate": figure("msg_rate_in"), "msg_throughput": figure("msg_throughput_in"), "policy": None}
    weights = {f"{name}_weight": random.choice([0.0, 0.3, 1.0, 100.0]) for name in SCORED}
    limits = {"hit_count_low": 1, "min_unload_message": 0.0, "min_unload_throughput": 0.0}
    return Cluster(f"c{number}", Settings.model_validate(weights | limits), brokers, held)


@settings(
    max_examples=5, deadline=None, database=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate]
)
@given(
    figures=st.lists(st.floats(0, allow_infinity=False), min_size=20, max_size=60),
    # What 32-bit floats cannot hold, or hardly.
    odd=st.lists(st.sampled_from([1e39, 3.4028236e38, 1e-46, 1e-45, 1.2e-38, 5e-324, 1.7e308]), min_size=5),
    seed=st.integers(0, 2**32),
)
def test_both_answer_alike_whatever_the_figures(figures, odd, seed):
    random = Random(seed)
    batch = [strange(random, number, [*figures, *odd]) for number in range(CLUSTERS)]
    answers = shed_in_columns(batch)
    for each in batch:
        specified = each.specified()
        assert answers[each.name] == specified
        given = [figure for row in specified.decisions for figure in (row.source_score, row.gap)]
        assert all(figure is not None and math.isfinite(figure) for figure in given)


def test_waves_beyond_the_last_wait():
    brokers = [
        {"broker": "b1", "cpu_usage": 80.0, "cpu_limit": 100.0, "msg_rate_in": 20000.0},
        {"broker": "b2", "cpu_usage": 30.0, "cpu_limit": 100.0, "msg_rate_in": 2000.0},
    ]
    bundles = [
        {"broker": "b1", "bundle": f"t/n{n:02}/0x0_0x1", "msg_rate": 100.0, "msg_throughput": 0.0, "reason": None}
        for n in range(MAX_WAVES + 3)
    ]
    waiting = Cluster("c", Settings(hit_count_high=1), brokers, bundles)
    answer = shed_in_columns([waiting])["c"]
    assert answer == waiting.specified()
    assert [move.reason for move in answer.moves] == ["taken"] * MAX_WAVES + ["cap_waves"] * 3
