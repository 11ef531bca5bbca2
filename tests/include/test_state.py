from datetime import UTC, datetime, timedelta

import pytest

from pulsar_rebalancer.errors import StateError
from pulsar_rebalancer.settings import Settings
from pulsar_rebalancer.state import (
    DecisionState,
    HitCount,
    MovesState,
    Unload,
    commit,
    counting,
    parse_decision,
    parse_moves,
)

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
SETTINGS = Settings(interval_seconds=60, state_max_gap=3)
HITS = {"b": HitCount(1, 7)}


def state(**changes):
    return DecisionState(**({"seq": 4, "plan_id": "p4", "strategy": "AvgShedder", "hits": HITS} | changes))


@pytest.mark.parametrize(
    ("seconds", "forced", "thresholds", "expected"),
    [
        (60, False, False, (True, "counted", False)),
        (30, False, False, (True, "counted", False)),
        (29.9, False, False, (False, "too_soon", False)),
        (180, False, False, (True, "counted", False)),
        (180.1, False, False, (True, "gap", True)),
        (60, True, False, (False, "forced", False)),
        (60, False, True, (False, "other_thresholds", False)),
        (300, True, False, (False, "forced", True)),
        (-30, False, False, (True, "gap", True)),
    ],
)
def test_a_sample_counts_once_per_interval(seconds, forced, thresholds, expected):
    before = state(counted_at=NOW - timedelta(seconds=seconds))
    assert counting(before, SETTINGS, NOW, forced=forced, thresholds=thresholds) == expected


def test_the_first_sample_counts():
    assert counting(DecisionState(), SETTINGS, NOW, forced=False, thresholds=False) == (True, "counted", False)


def test_a_gap_without_counters_is_no_news():
    before = state(counted_at=NOW - timedelta(days=1), hits={})
    assert counting(before, SETTINGS, NOW, forced=False, thresholds=False).reason == "counted"


def test_another_strategy_starts_anew():
    before = state(counted_at=NOW - timedelta(seconds=60), strategy="UniformLoadShedder")
    assert counting(before, SETTINGS, NOW, forced=False, thresholds=False) == (True, "strategy_changed", True)


def test_a_plan_is_committed_once():
    stored, new = state(), state(seq=5, plan_id="p5", hits={})
    committed = commit(stored, new)
    assert committed == new
    assert commit(committed, new) is None


@pytest.mark.parametrize("seq", [4, 6, 3])
def test_a_plan_of_another_state_is_refused(seq):
    with pytest.raises(StateError) as refused:
        commit(state(), state(seq=seq, plan_id="old"))
    assert refused.value.reason == "stale_plan"


def test_documents_survive_the_store():
    decision = state(counted_at=NOW, means="means-4.parquet")
    moves = MovesState(unloads={"t/n/0x0_0x1": Unload(at=NOW, plan_id="p", source="a", destination="b")})
    assert parse_decision(decision.model_dump(mode="json")) == decision
    assert parse_moves(moves.model_dump(mode="json")) == moves
    assert parse_decision(None) == DecisionState()
    assert parse_moves(None) == MovesState()


@pytest.mark.parametrize("document", [{"version": 99}, {}, [], "x", {"version": 1, "seq": "many"}])
def test_a_foreign_document_is_refused(document):
    with pytest.raises(StateError) as refused:
        parse_decision(document)
    assert refused.value.reason == "state_version"


def test_unloads_are_recent_within_the_grace_period():
    def at(minutes):
        return Unload(at=NOW - timedelta(minutes=minutes), plan_id="p", source="a", destination="b")

    history = MovesState(unloads={"fresh": at(1), "edge": at(30), "old": at(30.1)})
    assert set(history.recent(NOW, grace_minutes=30)) == {"fresh", "edge"}
