from datetime import UTC, datetime, timedelta

import pytest

from pulsar_rebalancer.errors import StateError
from pulsar_rebalancer.state.state_documents import CountedSample, DecisionState, HitCount, MovesState, Unload

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def test_documents_survive_the_store():
    decision = DecisionState(
        seq=4, plan_id="p4", counted_at=NOW, hits={"b": HitCount(1, 7)}, samples={"b": CountedSample(30.5, NOW)}
    )
    moves = MovesState(unloads={"t/n/0x0_0x1": Unload(at=NOW, plan_id="p", source="a", destination="b")})
    assert DecisionState.parse(decision.model_dump(mode="json")) == decision
    assert MovesState.parse(moves.model_dump(mode="json")) == moves
    assert DecisionState.parse(None) == DecisionState()
    assert MovesState.parse(None) == MovesState()


@pytest.mark.parametrize("document", [{"version": 99}, {}, [], "x", {"version": 1, "seq": "many"}])
def test_a_foreign_document_is_refused(document):
    with pytest.raises(StateError) as refused:
        DecisionState.parse(document)
    assert refused.value.reason == "state_version"


def test_unloads_are_recent_within_the_grace_period():
    def at(minutes):
        return Unload(at=NOW - timedelta(minutes=minutes), plan_id="p", source="a", destination="b")

    history = MovesState(unloads={"fresh": at(1), "edge": at(30), "old": at(30.1)})
    assert set(history.recent(NOW, grace_minutes=30)) == {"fresh", "edge"}


def test_an_unload_that_a_clock_noted_which_was_set_back_since_does_not_stay_recent():
    noted = {
        name: Unload(at=NOW + timedelta(minutes=minutes), plan_id="p", source="a", destination="b")
        for name, minutes in (("skew", 1), ("a year", 365 * 24 * 60))
    }
    assert set(MovesState(unloads=noted).recent(NOW, grace_minutes=30)) == {"skew"}
