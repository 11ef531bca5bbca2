import pytest

from pulsar_rebalancer.state import WHOLE_CLUSTER, HitCount, PlacementState, ShedderState, StrategyState

CLUSTER_HITS = {WHOLE_CLUSTER: HitCount(low=3)}


@pytest.mark.parametrize("hits", [CLUSTER_HITS, {"a": HitCount(1, 2)}])
def test_state_survives_storage(hits):
    of_brokers = {broker: hit for broker, hit in hits.items() if broker != WHOLE_CLUSTER}
    state = StrategyState(ShedderState(hits, {"a": 0.5}, {"a": 7.0}), PlacementState(3, ("a", "b"), {"b": 0.1}))
    assert StrategyState.parse(of_brokers, state.document()) == state


@pytest.mark.parametrize(
    "document",
    [
        {"shedder": 7},
        {"shedder": {"loads": {"a": "x"}}},
        {"shedder": {"hits": -1}},
        {"shedder": {"learned": {"samples": "many"}}},
        {"shedder": {"learned": {"samples": 3, "brokers": {"a": [1, "x"]}}}},
        {"shedder": {"learned": []}},
        {"placement": {"averages": [1]}},
        {"placement": {"brokers": 3}},
        {"of_another_release": {}},
    ],
)
def test_damaged_state_starts_again_and_hits_go_on(document, caplog):
    hits = {"a": HitCount(1, 2)}
    assert StrategyState.parse(hits, document) == StrategyState(ShedderState(hits))
    assert "the strategy's stored state is damaged and not used: strategy_state." in caplog.text
