import pytest

from pulsar_rebalancer.errors import StateError
from pulsar_rebalancer.state.state_documents import DecisionState


@pytest.mark.parametrize("document", [{"version": 99}, {}, [], "x", {"version": 1, "seq": "many"}])
def test_a_foreign_document_is_refused(document):
    with pytest.raises(StateError) as refused:
        DecisionState.parse(document)
    assert refused.value.reason == "state_version"
