import json
from pathlib import Path
from typing import Any

import pytest

from pulsar_rebalancer.pulsar.bundle_calls import ClientCounts, client_counts, has_clients, stats_by_topic

RECORDED = Path(__file__).parents[1] / "collect" / "data" / "extensible-4.0.8.json"


def test_clients_are_those_that_a_broker_lists():
    stats = json.loads(RECORDED.read_text(encoding="utf-8"))["broker-stats/topics"]

    (topic,) = stats_by_topic(stats, "acme/shop/0xf0000000_0xffffffff").values()

    assert client_counts(topic) == ClientCounts(producers=1, consumers=1)
    assert stats_by_topic(stats, "acme/shop/0x00000000_0x00000001") == {}
    assert stats_by_topic({"acme/shop": "?"}, "acme/shop/0x00000000_0x00000001") == {}


NOBODY: dict[str, Any] = {"publishers": [], "subscriptions": {"s": {"consumers": []}}}


@pytest.mark.parametrize(
    ("topic", "clients"),
    [
        (NOBODY, False),
        (NOBODY | {"producerCount": 0}, False),
        (NOBODY | {"producerCount": 2}, True),
        (NOBODY | {"producerCount": "?", "publishers": [{}]}, True),
        ({"producerCount": 2}, True),
        ({"producerCount": 0}, None),
    ],
)
def test_producers_may_be_counted_but_not_listed(topic, clients):
    assert has_clients(topic) is clients
