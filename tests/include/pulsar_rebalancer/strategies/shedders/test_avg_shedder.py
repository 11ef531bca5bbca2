from collections import Counter
from dataclasses import replace

import pytest
from tests.vectors import histories
from tests.vectors.rows import brokers_of, decided, sample, whatever_the_order

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.state import HitCount, HitRules, ShedderState
from pulsar_rebalancer.strategies.sample import hits_after
from pulsar_rebalancer.strategies.scoring import percent, score
from pulsar_rebalancer.strategies.shedders.registry import profile_of

EAGER = Settings(hit_count_low=1, hit_count_high=1)


def broker(name, cpu, rate=0.0, throughput=0.0, left_out=None):
    return {
        "broker": name,
        "cpu_usage": cpu,
        "cpu_limit": 100.0,
        "msg_rate_in": rate,
        "msg_throughput_in": throughput,
        "left_out": left_out,
    }


def bundle(owner, name, rate, throughput=0.0, reason=None):
    return {"broker": owner, "bundle": name, "msg_rate": rate, "msg_throughput": throughput, "reason": reason}


def bundles(owner, count=11, rate=900.0, namespace="public/default"):
    return [bundle(owner, f"{namespace}/0x{n:08x}_0x{n + 1:08x}", rate) for n in range(count)]


def shed(given, hits, policies=None):
    return decided(given, hits, policies)


def scores(rows, settings):
    return {each.broker: score(each, settings) for each in brokers_of(rows)}


def taken(result):
    return [(move.bundle, move.destination) for move in result.moves if move.is_taken]


SPREAD = [broker("b1", 80, 20000), broker("b2", 30, 2000), broker("b3", 50, 10000)]


@pytest.mark.parametrize("history", histories.read("AvgShedder"), ids=lambda history: f"{history.edge}-{history.name}")
def test_decides_as_pulsars_own_class(history):
    hits: dict[str, HitCount] = {}
    for step in history.steps:
        result, brief = (shed(replace(history.sample(step), brief=of), hits) for of in (False, True))
        # The same if nobody reads the decisions.
        assert (taken(brief), brief.hits) == (taken(result), result.hits)
        hits = histories.with_the_departed(history.settings, step, hits, result.decisions, result.hits)
        assert histories.unload_of(result.moves) == step.expected["unload"]
        assert dict(taken(result)) == step.expected["dest"]
        assert {name: hit.high for name, hit in hits.items() if hit.high} == step.expected["high"]
        assert {name: hit.low for name, hit in hits.items() if hit.low} == step.expected["low"]
        if "score" in step.expected:
            assert scores(step.brokers, history.settings) == step.expected["score"]


def test_percent_has_the_rounding_of_32_bit_floats():
    assert percent(30, 100) == 30.000001907348633
    assert percent(999, 1000) == 99.9000015258789
    assert percent(40, 100) == 40.0
    assert percent(150, 100) == 150.0
    assert percent(-1, -1) == percent(None, None) == percent(5, 0) == 0.0


def test_names_break_ties_whatever_the_order_of_the_rows():
    brokers = [broker(f"b{n}", 80 if n < 3 else 10, 20000 if n < 3 else 0) for n in range(6)]
    held = [row for n in range(3) for row in bundles(f"b{n}", namespace=f"t/n{n}")]
    result = whatever_the_order(lambda brokers, bundles: shed(sample(brokers, bundles, EAGER), {}), brokers, held)
    assert result.decisions[0].source == "b2"
    assert result.decisions[0].destination == "b3"
    assert [move.bundle for move in result.moves if move.pair == 0] == [row["bundle"] for row in held[22:]]


def test_a_preset_reason_keeps_a_bundle_out_of_the_walk():
    held = [
        bundle("b1", "t/n/0x0_0x1", 8000, reason="recently_unloaded"),
        bundle("b1", "sla-monitor/b1:8080/0x0_0x1", 7000),
        bundle("b1", "t/n/0x1_0x2", 6000),
        bundle("b1", "t/n/0x2_0x3", 5000),
        bundle("b1", "t/n/0x3_0x4", 3000),
        bundle("b1", "t/n/0x4_0x5", 0),
    ]
    result = shed(sample(SPREAD, held, EAGER), {})
    assert [(move.rank, move.reason) for move in result.moves] == [
        (0, "recently_unloaded"),
        (1, "system_namespace"),
        (2, "taken"),
        (3, "over_remaining"),
        (4, "taken"),
        (5, "no_traffic"),
    ]
    assert result.decisions[0].traffic_taken == 9000
    assert result.decisions[0].bundles_taken == 2


def test_throughput_decides_when_message_rates_are_close():
    brokers = [broker("b1", 80, 0, 9e6), broker("b2", 30, 0, 1e6)]
    held = [bundle("b1", "t/n/0x0_0x1", 5, 3e6), bundle("b1", "t/n/0x1_0x2", 9, 2e6)]
    result = shed(sample(brokers, held, EAGER), {})
    assert result.decisions[0].measure == "msg_throughput"
    assert [move.is_taken for move in result.moves] == [True, False]


class TestBrokersLeftOut:
    def test_are_neither_source_nor_destination_and_their_counts_freeze(self):
        brokers = [*SPREAD, broker("b4", 99, 90000, left_out="broker_quarantined")]
        result = shed(
            sample(brokers, bundles("b4"), Settings(low_threshold=90, high_threshold=95)), {"b4": HitCount(1, 5)}
        )
        assert [row.reason for row in result.decisions] == ["balanced", "no_partner", "broker_quarantined"]
        assert result.decisions[-1].source == "b4"
        assert result.decisions[-1].pair is None
        assert result.hits == {"b4": HitCount(1, 5)}
        assert hits_after(result.decisions) == result.hits


HITS = {"b1": HitCount(1, 1), "b3": HitCount(0, 4)}
BEFORE = HITS | {"gone": HitCount(0, 2)}


class TestCounting:
    def run(self, reason, *, force=None, settings=None):
        rule = HitRules(counts=False, reason=Reason(reason))
        return shed(sample(SPREAD, bundles("b1"), settings, counting=rule, force_threshold=force), BEFORE)

    @pytest.mark.parametrize(("reason", "force"), [("other_thresholds", None), ("forced", 45.0), ("forced", 0.0)])
    def test_a_run_that_counts_nothing_fires_and_changes_no_counter(self, reason, force):
        result = self.run(reason, force=force, settings=Settings(high_threshold=20))
        assert [row.fired for row in result.decisions] == [True, False]
        assert len(taken(result)) == 10
        assert result.hits == HITS

    def test_a_forced_run_keeps_to_its_threshold(self):
        result = self.run("forced", force=55.0)
        assert result.decisions[0].reason == "balanced"
        assert result.hits == HITS


TWO_PAIRS = [broker("b1", 80, 20000), broker("b2", 30, 2000), broker("b3", 75, 20000), broker("b4", 35, 2000)]


@pytest.mark.parametrize(
    ("low", "high", "reasons", "found"),
    [
        (15, 40, ["hit_count", "hit_count", "no_partner"], ("2 of 2 pairs", 6)),
        (40, 49, ["hit_count", "hit_count", "no_partner"], ("2 of 2 pairs", 6)),
        (45, 49, ["hit_count", "balanced", "no_partner"], ("1 of 2 pairs", 4)),
    ],
)
def test_the_sentence_says_how_many_pairs_are_at_a_threshold_and_how_far_their_hits_are(low, high, reasons, found):
    settings = Settings(low_threshold=low, high_threshold=high, hit_count_high=3)
    state = ShedderState(hits={"b1": HitCount(1, 3), "b3": HitCount(0, 5)})
    result = profile_of(settings).shed(sample([*TWO_PAIRS, broker("b5", 50)], [], settings), state)
    assert [row.reason for row in result.decisions] == reasons
    hits = f"most hits of a pair: {found[1]} of 8 low, 2 of 3 high"
    assert result.sentence == f"{found[0]} differ by {low} points or more; {hits}; 0 pairs fired"


def test_brokers_that_a_policy_reserves_are_paired_among_themselves():
    reserved = [row | {"reserved_by": "vip"} for row in TWO_PAIRS[:3]]
    decisions = shed(sample([*reserved, TWO_PAIRS[3], broker("b5", 90)], []), {}).decisions
    assert [(row.pair, row.source, row.destination, row.pool) for row in decisions] == [
        (0, "b5", "b4", None),
        (1, "b1", "b2", "vip"),
        (2, "b3", "b3", "vip"),
    ]


class TestCaps:
    def run(self, **caps):
        held = bundles("b1", namespace="t/one") + bundles("b3", namespace="t/three")
        return shed(sample(TWO_PAIRS, held, EAGER.model_copy(update=caps)), {})

    def test_per_broker_and_per_run(self):
        result = self.run(max_bundles_per_broker=3, max_bundles_per_run=4)
        reasons = Counter((move.pair, move.reason) for move in result.moves)
        assert reasons == {
            (0, "taken"): 3,
            (0, "cap_broker"): 7,
            (0, "over_remaining"): 1,
            (1, "taken"): 1,
            (1, "cap_run"): 2,
            (1, "cap_broker"): 7,
            (1, "over_remaining"): 1,
        }
        assert [row.bundles_taken for row in result.decisions] == [3, 1]
        assert result.hits == {}

    def test_the_same_range_moves_in_different_waves(self):
        result = self.run()
        assert [move.wave for move in result.moves if move.pair == 0] == [0] * 10 + [None]
        assert [move.wave for move in result.moves if move.pair == 1] == [1] * 10 + [None]
