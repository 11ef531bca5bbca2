from typing import Any
from zlib import crc32

import pytest
from pydantic import SecretStr
from starlette.requests import Request
from starlette.responses import Response
from tests.include.pulsar_rebalancer.pulsar.scripted_broker import (
    BUNDLE,
    Broker,
    brokers,
    closed_port,
    connect,
    refused,
)

from pulsar_rebalancer.errors import AdminError

pytestmark = pytest.mark.anyio

ADMIN = "/admin/v2"
RANGE = "0x00000000_0x80000000"
NAMESPACE = f"{ADMIN}/namespaces/acme/shop"
POSITIONS = f"{NAMESPACE}/{RANGE}/topicHashPositions"
UNOWNED = refused(412, f"Failed to find ownership for ServiceUnit:{BUNDLE}")


def owned_by(owner: Broker, *cluster: Broker) -> None:
    for broker in cluster:
        broker.redirect("GET", POSITIONS, f"{owner.url}{POSITIONS}?authoritative=false")
    owner.on("GET", POSITIONS, {"namespace": "acme/shop", "bundle": RANGE, "topicHashPositions": {}})


async def test_topics_of_a_bundle_come_from_its_owner() -> None:
    with brokers(2) as (seed, owner):
        seed.redirect("GET", POSITIONS, f"{owner.url}{POSITIONS}?authoritative=false")
        topics = {"persistent://acme/shop/b": 7, "non-persistent://acme/shop/a": 2**31 - 1}
        owner.on("GET", POSITIONS, {"namespace": "acme/shop", "bundle": RANGE, "topicHashPositions": topics})
        async with connect(seed) as admin:
            assert await admin.bundles.topics_of_bundle(BUNDLE) == sorted(topics)


async def test_topics_of_an_unowned_bundle_are_told_by_their_hash() -> None:
    topics = [f"persistent://acme/shop/t{i}" for i in range(40)]
    lower = sorted(t for t in topics if crc32(t.encode()) < 2**31)
    upper = sorted(set(topics) - set(lower))
    assert lower
    assert upper
    with brokers(1) as (broker,):
        broker.on("GET", f"{NAMESPACE}/topics", topics)
        for hash_range, expected in ((RANGE, lower), ("0x80000000_0xffffffff", upper)):
            path = f"{NAMESPACE}/{hash_range}/topicHashPositions"
            broker.on("GET", path, refused(412, f"Failed to find ownership for ServiceUnit:acme/shop/{hash_range}"))
            async with connect(broker) as admin:
                assert await admin.bundles.topics_of_bundle(f"acme/shop/{hash_range}") == expected
        broker.on("GET", POSITIONS, refused(412, "Invalid upper boundary for bundle"))
        async with connect(broker) as admin:
            with pytest.raises(AdminError) as caught:
                await admin.bundles.topics_of_bundle(BUNDLE)
    assert caught.value.reason == "range_gone"


async def test_lookup_names_the_owner_by_its_broker_id() -> None:
    path = "/lookup/v2/topic/non-persistent/acme/shop/t1"
    topic = "non-persistent://acme/shop/t1"
    with brokers(2) as (one, two):
        answer = {
            "brokerUrl": "pulsar://two:6650",
            "httpUrl": two.url.upper().replace("HTTP", "http"),
            "nativeUrl": "pulsar://two:6650",
            "brokerUrlTls": None,
        }
        one.on("GET", path, answer)
        async with connect(one) as admin:
            result = await admin.bundles.lookup(topic)
            assert (result.broker_service_url, result.http_url) == ("pulsar://two:6650", two.url)
            assert await admin.bundles.lookup_owner(topic) == two.id
            # A broker with both ports has the plain one in its id.
            one.on("GET", path, {"httpUrlTls": "https://127.0.0.1:8443", "httpUrl": two.url})
            assert await admin.bundles.lookup_owner(topic) == two.id
            for wrong in ({"httpUrl": "http://stranger:8080"}, {"httpUrl": 5}, {}):
                one.on("GET", path, wrong)
                with pytest.raises(AdminError) as caught:
                    await admin.bundles.lookup_owner(topic)
                assert caught.value.reason == "bad_answer"


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("pulsar://127.0.0.1:6650", None),
        ("pulsar+ssl://127.0.0.1:6651/", None),
        ("pulsar://MAPPED.example:6650", None),  # advertised, and reached elsewhere
        ("pulsar://reached.example:6650", None),
        ("pulsar://stranger:6650", "foreign_address"),
        ("pulsar://127.0.0.1.stranger:6650", "foreign_address"),
        ("pulsar://127.0.0.1:6650,stranger:6650", "foreign_address"),
        ("pulsar://127.0.0.1@stranger:6650", "foreign_address"),
        ("pulsar://127.0.0.1:66500", "foreign_address"),
        ("http://127.0.0.1:6650", "foreign_address"),
        ("garbage", "foreign_address"),
        ("", "foreign_address"),
    ],
)
async def test_credentials_go_to_hosts_of_the_cluster_alone(url: str, reason: str | None) -> None:
    addresses = {"mapped.example:8080": "http://reached.example:80"}
    with brokers(1) as (broker,):
        broker.on("GET", "/lookup/v2/topic/persistent/a/b/c", {"httpUrl": broker.url, "brokerUrl": url})
        async with connect(broker, address_map=addresses, token=SecretStr("secret")) as admin:
            asked = admin.bundles.service_url("persistent://a/b/c")
            if reason is None:
                assert await asked == url
                return
            with pytest.raises(AdminError, match="set service_url") as caught:
                await asked
    assert caught.value.reason == reason


async def test_owner_is_what_brokers_say_themselves() -> None:
    with brokers(3) as (one, two, three):
        owned_by(two, one, two, three)
        async with connect(one) as admin:
            assert await admin.bundles.owner(BUNDLE) == two.id
            three.seen.clear()
            assert await admin.bundles.owner(BUNDLE, likely_owners=[one.id, two.id]) == two.id
            assert three.seen == []
            for broker in (one, two, three):
                broker.on("GET", POSITIONS, UNOWNED)
            assert await admin.bundles.owner(BUNDLE, likely_owners=[two.id]) is None


async def test_a_broker_that_lost_the_race_for_the_bundle_is_asked_again() -> None:
    lost = refused(500, f"Resource at /namespace/{BUNDLE} is already locked")
    with brokers(2) as (one, two):
        owned_by(two, one, two)
        answers = [lost, one.replies["GET", POSITIONS]]

        async def answer(_: Request) -> Any:
            return answers.pop(0)

        one.on("GET", POSITIONS, answer)
        two.on("GET", POSITIONS, lost)
        async with connect(one) as admin:
            assert not await admin.bundles.is_owner(one.id, BUNDLE)
            with pytest.raises(AdminError) as caught:
                await admin.bundles.is_owner(two.id, BUNDLE)
    assert caught.value.reason == "server_error"
    assert len(two.seen) == 5


async def test_a_stale_range_is_not_unowned() -> None:
    with brokers(1) as (one,):
        one.on("GET", POSITIONS, refused(412, "Invalid upper boundary for bundle"))
        async with connect(one) as admin:
            with pytest.raises(AdminError) as caught:
                await admin.bundles.owner(BUNDLE)
    assert caught.value.reason == "range_gone"


async def test_owner_is_unknown_while_a_broker_cannot_be_asked() -> None:
    dead = closed_port()
    with brokers(1) as (one,):
        one.on("GET", f"{ADMIN}/brokers", [one.id, dead])
        owned_by(one, one)
        async with connect(one) as admin:
            assert await admin.bundles.owner(BUNDLE, likely_owners=[dead]) == one.id
            one.on("GET", POSITIONS, UNOWNED)
            with pytest.raises(AdminError) as caught:
                await admin.bundles.owner(BUNDLE)
    assert (caught.value.reason, caught.value.broker) == ("unreachable", dead)


async def test_an_empty_answer_is_no_owner() -> None:
    with brokers(1) as (one,):
        one.on("GET", POSITIONS, Response())
        async with connect(one) as admin:
            with pytest.raises(AdminError) as caught:
                await admin.bundles.owner(BUNDLE)
    assert caught.value.reason == "bad_answer"
