"""What is stored comes back."""

from __future__ import annotations

import pytest

from pulsar_rebalancer.state.state_documents import HitCount
from pulsar_rebalancer.strategies.strategy_state import WHOLE_CLUSTER, KeptState, PlacementState, ShedderState

CLUSTER_HITS = {WHOLE_CLUSTER: HitCount(low=3)}


@pytest.mark.parametrize("hits", [CLUSTER_HITS, {"a": HitCount(1, 2)}])
def test_what_is_stored_comes_back(hits):
    of_brokers = {broker: hit for broker, hit in hits.items() if broker != WHOLE_CLUSTER}
    kept = KeptState(ShedderState(hits, {"a": 0.5}, {"a": 7.0}), PlacementState(3, ("a", "b"), {"b": 0.1}))
    assert KeptState.parse(of_brokers, kept.document()) == kept
