import pytest
from tests.include.pulsar_rebalancer.pulsar.scripted_broker import BUNDLE, brokers, connect

from pulsar_rebalancer.errors import AdminError
from pulsar_rebalancer.names import is_in_bundle

pytestmark = pytest.mark.anyio

LIST = "/admin/v2/scalable/acme/shop"
POSITIONS = "/admin/v2/namespaces/acme/shop/0x00000000_0x80000000/topicHashPositions"
WRONG = {"segmentId": 0, "hashRange": {"start": -1, "end": 9}}
HALVES = {
    "0": {"segmentId": 0, "hashRange": {"start": 0, "end": 0x7FFF}, "state": "ACTIVE"},
    "1": {"segmentId": 1, "hashRange": {"start": 0x8000, "end": 0xFFFF}, "state": "SEALED"},
}


async def test_a_deleted_topic_is_passed_over_and_a_descriptor_has_leading_zeros() -> None:
    lower = (f"segment://acme/shop/t{number}/0000-7fff-0" for number in range(20))
    inside = next(name for name in lower if is_in_bundle(name, BUNDLE))
    topic = inside.split("/")[4]
    with brokers(1) as (broker,):
        broker.on("GET", POSITIONS, {"topicHashPositions": {}})
        broker.on("GET", LIST, ["topic://acme/shop/deleted", f"topic://acme/shop/{topic}"])
        broker.on("GET", f"{LIST}/{topic}", {"epoch": 1, "segments": HALVES, "properties": {}})
        async with connect(broker) as admin:
            assert inside in await admin.bundles.topics_of_bundle(BUNDLE)


@pytest.mark.parametrize(
    ("topics", "layout", "reason"),
    [
        ({}, {}, "bad_answer"),
        (["b"], {}, "not_found"),
        (["topic://acme/shop/b"], {"segments": [1]}, "bad_answer"),
        (["topic://acme/shop/b"], {"segments": {"0": WRONG}}, "bad_answer"),
        (["topic://acme/shop/b"], [], "bad_answer"),
    ],
)
async def test_answers_that_make_no_sense_have_a_code(topics: object, layout: object, reason: str) -> None:
    with brokers(1) as (broker,):
        broker.on("GET", POSITIONS, {"topicHashPositions": {}})
        broker.on("GET", LIST, topics)
        broker.on("GET", f"{LIST}/b", layout)
        async with connect(broker) as admin:
            with pytest.raises(AdminError) as caught:
                await admin.bundles.topics_of_bundle(BUNDLE)
    assert caught.value.reason == reason


async def test_clients_of_a_segment_are_counted_as_its_own_statistics_name_them() -> None:
    with brokers(1) as (broker,):
        statistics = {"producers": [{}], "subscriptions": {"s": {"consumers": [{}, {}]}}}
        broker.on("GET", f"{LIST}/t/segments/12/stats", statistics)
        async with connect(broker) as admin:
            assert await admin.bundles.count_clients("segment://acme/shop/t/8000-bfff-12", broker.id) == (1, 2)
