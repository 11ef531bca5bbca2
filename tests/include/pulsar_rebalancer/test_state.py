import pytest

from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.state import DecisionState


@pytest.mark.parametrize(
    ("document", "reason"),
    [({"version": 99}, "file_damaged"), ([], "file_damaged"), ({"version": 1, "seq": "many"}, "file_damaged")],
)
def test_a_foreign_document_is_refused(document, reason):
    with pytest.raises(SnapshotError) as refused:
        DecisionState.parse(document, "it")
    assert refused.value.reason == reason
