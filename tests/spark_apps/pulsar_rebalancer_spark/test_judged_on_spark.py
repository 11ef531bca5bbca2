import math
from typing import Any, NamedTuple

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.vectors.rows import sample

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.tables import BROKERS
from pulsar_rebalancer.state import HitCount, HitRules
from pulsar_rebalancer.strategies.sample import ClusterSample, JudgedPair
from pulsar_rebalancer.strategies.scoring import SCORED
from pulsar_rebalancer.strategies.shedders import avg_shedder
from pulsar_rebalancer_spark.bundle_means import literal
from pulsar_rebalancer_spark.rebalance import KNOWN, RULES, judged_pairs, rule_row, stored_hits_rows

COLUMNS = pa.schema([field for field in BROKERS if not pa.types.is_timestamp(field.type)])


class Judged(NamedTuple):
    """What one cluster's pairs are judged by."""

    brokers: list[dict[str, Any]]
    sample: ClusterSample
    hits: dict[str, HitCount]
    hot: float = math.inf


def judge(spark, clusters: dict[str, Judged]) -> dict[str, list[JudgedPair]]:
    brokers = [row | {"cluster": name} for name, of in clusters.items() for row in of.brokers]
    known = [row for name, of in clusters.items() for row in stored_hits_rows(name, of.sample, of.hits)]
    rules = [rule_row(name, of.sample, of.hot) for name, of in clusters.items()]
    pairs = judged_pairs(literal(spark, brokers, COLUMNS), literal(spark, known, KNOWN), literal(spark, rules, RULES))
    found: dict[str, list[JudgedPair]] = {name: [] for name in clusters}
    for cluster, *pair in sorted(pairs.collect()):
        found[cluster].append(JudgedPair(*pair))
    return found


FIGURE = st.one_of(
    st.none(),
    st.sampled_from([-1.0, 0.0, 30.0, 80.0, 100.0, 999.0, 1000.0, 1e300, 1e-50]),
    st.floats(allow_nan=False, allow_infinity=False),
)
REASON = st.sampled_from([Reason.COUNTED, Reason.TOO_SOON, Reason.FORCED, Reason.OTHER_THRESHOLDS])
COUNT = st.integers(0, 3)


@st.composite
def clusters_to_judge(draw: st.DrawFn) -> Judged:
    brokers: list[dict[str, Any]] = [
        {"broker": f"b{number}", "reserved_by": draw(st.sampled_from([None, None, "vip"])), "cpu_limit": 100.0}
        | {"cpu_usage": draw(st.sampled_from([10.0, 20.0, 30.0, 60.0, 70.0]))}
        | (
            {f"{name}_{part}": draw(FIGURE) for name in SCORED for part in ("usage", "limit")}
            if draw(st.booleans())
            else {}
        )
        for number in draw(st.permutations(range(draw(st.integers(0, 7)))))
    ]
    low = draw(st.sampled_from([0.0, 10.0, 20.0]))
    rules = Settings(
        cpu_weight=draw(st.sampled_from([0.0, 0.7, 1.0])),
        low_threshold=low,
        high_threshold=low + draw(st.sampled_from([0.0, 20.0])),
        hit_count_low=draw(st.integers(1, 3)),
        hit_count_high=draw(st.integers(1, 3)),
    )
    reason, force = draw(REASON), draw(st.sampled_from([None, 0.0, 15.0]))
    usages = sample(brokers, [], rules).usage_by_broker().items()
    before = {name: usage * 100 for name, usage in usages if draw(st.booleans())}
    before |= {name: 1.0 for name in before if draw(st.booleans())}
    counting = HitRules(counts=reason is Reason.COUNTED, reason=reason, samples=before)
    hits = {row["broker"]: HitCount(draw(COUNT), draw(COUNT)) for row in brokers if draw(st.booleans())}
    given = sample(brokers, [], rules, counting=counting, force_threshold=force if reason is Reason.FORCED else None)
    return Judged(brokers, given, hits, draw(st.sampled_from([math.inf, 65.0])))


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(listed=st.lists(clusters_to_judge(), min_size=20, max_size=30))
def test_judges_as_the_numpy_form(spark, listed):
    clusters = {f"c{number:02}": each for number, each in enumerate(listed)}
    assert judge(spark, clusters) == {
        name: avg_shedder.judge_pairs(each.sample, each.hits, each.hot) for name, each in clusters.items()
    }
