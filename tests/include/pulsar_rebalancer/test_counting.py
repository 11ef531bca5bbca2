from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.errors import StateError
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.state import DecisionState, HitCount, HitSample, accept_state, decide_hit_rules, next_hit_samples

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
SETTINGS = Settings(interval_seconds=60, state_max_gap=3)
HITS = {"b": HitCount(1, 7)}


def state(**changes: Any) -> DecisionState:
    return DecisionState(**({"seq": 4, "plan_id": "p4", "strategy": "AvgShedder", "hits": HITS} | changes))


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("seconds", "asked", "reason", "clear"),
    [
        (60, {}, "counted", False),
        (30, {}, "counted", False),
        (29.9, {}, "too_soon", False),
        (180, {}, "counted", False),
        (180.1, {}, "gap", True),
        (0, {}, "too_soon", False),
        (-0.5, {}, "gap", True),
        (60, {"is_forced": True}, "forced", False),
        (1, {"is_forced": True}, "forced", False),
        (300, {"is_forced": True}, "forced", True),
        (60, {"changes_thresholds": True}, "other_thresholds", False),
        (29.9, {"changes_thresholds": True}, "too_soon", False),
    ],
)
def test_a_sample_counts_once_per_interval(seconds: float, asked: dict[str, bool], reason: str, clear: bool) -> None:
    found = decide_hit_rules(state(counted_at=ago(seconds)), SETTINGS, NOW, **asked)
    assert (found.reason, found.clear) == (reason, clear)
    assert found.counts == (reason in ("counted", "gap"))


@pytest.mark.parametrize(
    ("counters", "reason"),
    [
        ({"hits": {}}, Reason.COUNTED),
        ({"hits": {}, "split_hits": {"t/n/0x00_0x10": 3}}, Reason.GAP),
        ({"hits": {}, "strategy_state": {"shedder": {"hits": {"": [0, 2]}}}}, Reason.GAP),
    ],
)
def test_a_gap_ends_every_kind_of_hits_and_is_no_news_without_any(counters: dict[str, Any], reason: Reason) -> None:
    found = decide_hit_rules(state(counted_at=ago(86400), **counters), SETTINGS, NOW)
    assert (found.reason, found.clear) == (reason, reason is Reason.GAP)


def test_another_strategy_starts_anew() -> None:
    before = state(counted_at=ago(60), strategy="UniformLoadShedder", samples={"b": HitSample(30.0, ago(10))})
    found = decide_hit_rules(before, SETTINGS, NOW)
    assert (found.reason, found.clear, found.samples) == (Reason.GAP, True, {})


def test_a_strategy_that_counts_the_same_hits_goes_on_with_them() -> None:
    before = state(counted_at=ago(60), strategy="GainShedder", samples={"b": HitSample(30.0, ago(10))})
    found = decide_hit_rules(before, SETTINGS, NOW, has_same_hits=True)
    assert (found.reason, found.clear, found.samples) == (Reason.COUNTED, False, {"b": 30.0})


def test_a_sample_may_be_repeated_for_a_host_interval() -> None:
    samples = {"young": 53.9, "new": 0.0, "old": 54.0, "future": -0.5}
    before = state(samples={name: HitSample(50.0, ago(seconds)) for name, seconds in samples.items()})
    found = decide_hit_rules(before, SETTINGS, NOW)
    assert found.samples == {"young": 50.0, "new": 50.0}
    assert found.are_repeated({"young": 50.0})
    assert not found.are_repeated({"young": 50.1})
    assert not found.are_repeated({"old": 50.0})
    assert next_hit_samples(before, found, {"other": 20.0}, NOW) == {
        "new": HitSample(50.0, NOW),
        "other": HitSample(20.0, NOW),
        "young": HitSample(50.0, ago(53.9)),
    }


def test_a_plan_is_committed_once() -> None:
    stored, new = state(), state(seq=5, plan_id="p5", hits={})
    committed = accept_state(stored, new)
    assert committed == new
    assert accept_state(committed, new) is None


@pytest.mark.parametrize("seq", [4, 6, 3])
def test_a_plan_of_another_state_is_refused(seq: int) -> None:
    with pytest.raises(StateError) as refused:
        accept_state(state(), state(seq=seq, plan_id="old"))
    assert refused.value.reason is Reason.STALE_PLAN
