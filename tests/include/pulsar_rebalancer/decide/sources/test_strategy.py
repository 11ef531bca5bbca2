from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.vectors.rows import brokers_of, bundles_of, decided_by

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.decide.sources.strategy import StrategyInput
from pulsar_rebalancer.errors import PlanError
from pulsar_rebalancer.isolation import IsolationPolicy, Policies
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.bundle_columns import BundleSample
from pulsar_rebalancer.run.tables import Measure
from pulsar_rebalancer.state import (
    WHOLE_CLUSTER,
    DecisionState,
    HitCount,
    HitRules,
    ShedderState,
    StrategyState,
    new_hit_samples,
)
from pulsar_rebalancer.strategies.sample import COUNTED, CandidateMove, ClusterSample, Decision, Profile, SheddingResult
from pulsar_rebalancer.strategies.shedders import registry

KEPT = StrategyState(ShedderState(hits={WHOLE_CLUSTER: HitCount(low=3)}, loads={"a:1": 0.5}))
EAGER = Settings(strategy="TransferShedder", target_std=0.05, hit_count_transfer=9, history_percentage=0.5)


def broker(name, cpu, throughput):
    row = {"broker": name, "cpu_usage": cpu, "cpu_limit": 100.0, "bundles": 4, "msg_throughput_in": throughput}
    return row | {"collected_at": None, "report_age_seconds": 0.0}


BROKERS = [broker("a:1", 90.0, 4e6), broker("b:1", 10.0, 1e6), broker("c:1", 20.0, 1e6)]
HELD = [
    {"broker": "a:1", "bundle": f"t/n/0x{n}_0x{n + 1}", "msg_throughput_in": 1e6, "msg_throughput": 1e6}
    | {"msg_rate": 1.0, "reason": None}
    for n in range(4)
]


FORCED = HitRules(counts=False, reason=Reason.FORCED)


def judged(counting, *, brokers=BROKERS, state=KEPT, policies=None, settings=EAGER, unloaded=None):
    forced = counting is FORCED
    tables = settings, brokers_of(brokers), bundles_of(HELD)
    given = StrategyInput(*tables, counting, state, policies or Policies(), forced)
    return decided_by(replace(given, seconds_since_unload=unloaded or {}))


def test_a_forced_run_acts_without_hits_and_they_must_be_earned_again_once_it_is_carried_out():
    answer = judged(FORCED)
    assert any(move.is_taken for move in answer.moves)
    assert answer.strategy_state == KEPT
    at = datetime(2026, 4, 1, tzinfo=UTC)
    samples = new_hit_samples(answer.used_scores, at)
    stored = DecisionState(strategy_state=answer.strategy_state.document(), restarts=samples)
    done = stored.with_hits_reset()
    assert StrategyState.parse(done.hits, done.strategy_state) == StrategyState(ShedderState(loads={"a:1": 0.5}))
    assert done.samples == {"a:1": (0.9, at), "b:1": (0.1, at), "c:1": (0.2, at)}
    assert done.with_hits_reset() == done


def test_a_sample_too_soon_sheds_nothing_and_changes_nothing():
    settings = EAGER.model_copy(update={"hit_count_transfer": 3})
    answer = judged(HitRules(counts=False, reason=Reason.TOO_SOON), settings=settings)
    assert (answer.moves, answer.strategy_state) == ([], KEPT)
    found = {(row.reason, row.fired, row.measure, row.target) for row in answer.decisions}
    assert found == {(Reason.TOO_SOON, False, None, None)}


@pytest.mark.parametrize(
    ("gave_a_hit", "reason", "hits"),
    [
        ({"a:1": 0.9, "b:1": 0.1, "c:1": 0.2}, "too_soon", 3),
        ({"a:1": 0.9, "b:1": 0.1, "c:1": 0.3}, "too_soon", 3),  # in between
        ({"a:1": 0.9, "c:1": 0.2}, "too_soon", 3),  # the coldest is new
        ({"a:1": 0.8, "b:1": 0.1, "c:1": 0.2}, "hit_count", 4),
        ({"a:1": 0.9, "b:1": 0.2, "c:1": 0.2}, "hit_count", 4),
        ({"c:1": 0.2}, "hit_count", 4),
    ],
)
def test_a_sample_is_new_by_the_hottest_and_the_coldest_broker(gave_a_hit, reason, hits):
    answer = judged(replace(COUNTED, samples=gave_a_hit))
    assert {row.reason for row in answer.decisions} == {reason}
    assert answer.strategy_state.shedder.cluster_hits == hits


def test_a_swap_that_a_policy_forbids_in_one_direction_is_not_made():
    vip = IsolationPolicy(name="vip", namespaces=("t/n",), primary=("a",))
    answer = judged(FORCED, policies=Policies(isolation=(vip,)))
    assert not any(move.is_taken for move in answer.moves)


@pytest.mark.parametrize(
    ("average", "age", "reason"),
    [(0.9, 30.0, "cool_down"), (0.9, 20.0, "hit_count"), (0.9, None, "hit_count"), (None, 30.0, "hit_count")],
)
def test_the_cool_down_lasts_until_a_report_is_young_enough(average, age, reason):
    # Only a broker that reports its average says when its load was measured.
    brokers = [BROKERS[0] | {"load_average": average, "report_age_seconds": age}, *BROKERS[1:]]
    answer = judged(COUNTED, brokers=brokers, unloaded={"a:1": 200.0})
    assert {row.reason for row in answer.decisions} == {reason}


@pytest.mark.parametrize(
    ("age", "told"),
    [
        (100.0, "a:1 reported 100 s after its last unload; at least 180 s are needed"),
        (200.0, "a:1 reported 0 s after its last unload; at least 180 s are needed"),
        (600.0, "a:1 last reported 400 s before its last unload"),
    ],
)
def test_a_report_from_before_the_unload_is_told_so(age, told):
    brokers = [BROKERS[0] | {"load_average": 0.9, "report_age_seconds": age}, *BROKERS[1:]]
    answer = judged(COUNTED, brokers=brokers, unloaded={"a:1": 200.0})
    assert told in answer.sentence


THRESHOLD = Settings(strategy="ThresholdShedder", min_unload_bundle_throughput=0, history_percentage=0)


@pytest.mark.parametrize(
    ("policies", "caps", "reason", "told"),
    [
        ({}, {}, "fired", "Taken: 2 bundles with 1.91 MiB/s."),
        ({}, {"max_bundles_per_run": 1}, "fired", "1 over the cap per run"),
        ({"unknown": {"t/n": "timeout"}}, {}, "no_allowed_bundle", "2 with unknown policies"),
    ],
)
def test_report_names_the_moves_left_after_caps(policies, caps, reason, told):
    settings = THRESHOLD.model_copy(update=caps)
    answer = judged(COUNTED, policies=Policies(**policies), settings=settings)
    assert answer.used_scores == {}
    decision = answer.full_decisions[0]
    assert (decision.reason, decision.bundles_taken) == (reason, len(answer.taken_moves))
    assert told in (decision.explanation or "")
    assert told in answer.sentence


HEARTBEAT = "pulsar/a:1/0x00000000_0xffffffff"


def returning(*bundles: str) -> Profile:
    """A custom shedder that moves these bundles of a to b, whatever holds for them."""

    def shed(sample: ClusterSample, state: ShedderState) -> SheddingResult:
        fired = Decision("a:1", Reason.FIRED, 0, destination="b:1", fired=True, measure=Measure.RATE, target=1.0)
        left = [Decision(each.broker, Reason.BALANCED, n) for n, each in enumerate(sample.compared_brokers[1:], 1)]
        given: dict[str, Any] = {"pair": 0, "measure": Measure.RATE, "reason": Reason.TAKEN, "destination": "b:1"}
        moves = [CandidateMove.new(BundleSample("a:1", name), rank=n, **given) for n, name in enumerate(bundles)]
        return SheddingResult([fired, *left], moves, state, "it sheds")

    return Profile(shed, judges_pairs=True)


def test_result_of_an_outside_shedder_is_checked(monkeypatch):
    held = [*HELD, HELD[0] | {"bundle": HEARTBEAT, "reason": "system_namespace"}]
    monkeypatch.setitem(registry.PROFILES, "OverloadShedder", returning(HEARTBEAT, str(HELD[0]["bundle"])))
    given = StrategyInput(Settings(strategy="OverloadShedder"), brokers_of(BROKERS), bundles_of(held), COUNTED)
    assert [move.reason for move in decided_by(given).moves] == ["system_namespace", "taken"]
    monkeypatch.setitem(registry.PROFILES, "OverloadShedder", returning("t/n/unknown"))
    with pytest.raises(PlanError, match=r"OverloadShedder: t/n/unknown is not a bundle of 'a:1'") as refused:
        decided_by(given)
    assert refused.value.reason is Reason.BAD_RESULT


@pytest.mark.parametrize(
    ("policies", "left_out", "expected"),
    [
        ({}, None, "taken"),
        ({"unknown": {"t/n": "timeout"}}, None, "policy_unknown"),
        ({}, "broker_quarantined", "no_destination"),
    ],
)
def test_the_destination_that_a_custom_shedder_names_must_be_permitted(monkeypatch, policies, left_out, expected):
    monkeypatch.setitem(registry.PROFILES, "OverloadShedder", returning(str(HELD[0]["bundle"])))
    brokers = [BROKERS[0], BROKERS[1] | {"left_out": left_out}, BROKERS[2]]
    tables = Settings(strategy="OverloadShedder"), brokers_of(brokers), bundles_of(HELD)
    found = decided_by(StrategyInput(*tables, COUNTED, policies=Policies(**policies)))
    assert [move.reason for move in found.moves] == [expected]
