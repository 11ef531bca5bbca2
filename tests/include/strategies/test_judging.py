"""What samples that do not count, forced runs and gaps make of what a strategy keeps."""

from __future__ import annotations

from pulsar_rebalancer.isolation import IsolationPolicy
from pulsar_rebalancer.policies import Policies
from pulsar_rebalancer.settings import Settings
from pulsar_rebalancer.snapshot import BUNDLES
from pulsar_rebalancer.state import Counting
from pulsar_rebalancer.strategies.judging import Case, judge

KEPT = {"shedder": {"hits": 3, "loads": {"a:1": 0.5}}, "placement": {}}
EAGER = Settings(strategy="TransferShedder", target_std=0.05, hit_count_transfer=9, history_percentage=0.5)


def broker(name, cpu, throughput):
    row = {"broker": name, "cpu_usage": cpu, "cpu_limit": 100.0, "bundles": 4, "msg_throughput_in": throughput}
    return row | {"collected_at": None, "report_age_seconds": 0.0}


BROKERS = [broker("a:1", 90.0, 4e6), broker("b:1", 10.0, 1e6), broker("c:1", 20.0, 1e6)]
HELD = [
    dict.fromkeys(BUNDLES.names)
    | {"broker": "a:1", "bundle": f"t/n/0x{n}_0x{n + 1}", "msg_throughput_in": 1e6, "msg_throughput": 1e6}
    | {"msg_rate": 1.0, "reason": None}
    for n in range(4)
]


def judged(counting, *, kept=KEPT, forced=False, policies=None, settings=EAGER):
    case = Case(settings, counting, kept, policies or Policies(), forced=forced, seed="run")
    return judge(case, "east", BROKERS, HELD)


def test_a_forced_run_acts_without_hits_and_they_must_be_earned_again():
    answer = judged(Counting(counts=False, reason="forced"), forced=True)
    assert any(move["taken"] for move in answer.moves)
    assert answer.kept == {"shedder": {"hits": 0, "loads": {"a:1": 0.5}}, "placement": {}}


def test_a_sample_too_soon_sheds_nothing_and_changes_nothing():
    answer = judged(Counting(counts=False, reason="too_soon"), forced=True)
    assert (answer.moves, answer.kept) == ([], KEPT)
    assert {row["reason"] for row in answer.decisions} == {"too_soon"}


def test_a_gap_starts_hits_anew_and_leaves_averages():
    shedder = judged(Counting(counts=True, reason="gap", clear=True)).kept["shedder"]
    assert (shedder["hits"], shedder["loads"]["a:1"]) == (1, (0.5 + 0.9) / 2)


def test_a_swap_that_a_policy_forbids_in_one_direction_is_not_made():
    vip = IsolationPolicy(name="vip", namespaces=("t/n",), primary=("a",))
    answer = judged(Counting(counts=True, reason="counted"), forced=True, policies=Policies(isolation=(vip,)))
    assert not any(move["taken"] for move in answer.moves)
