import pytest
from starlette.responses import Response
from tests.include.pulsar_rebalancer.pulsar.scripted_broker import (
    BUNDLE,
    LOOKUP,
    REPORT,
    TOKEN,
    TOPIC,
    UNLOAD,
    brokers,
    closed_port,
    connect,
)

from pulsar_rebalancer.errors import AdminError
from pulsar_rebalancer.pulsar import AdminConnection, PulsarAdmin

pytestmark = pytest.mark.anyio


async def test_unload_is_followed_to_leader_and_owner_with_method_and_token() -> None:
    with brokers(3) as (seed, leader, owner):
        query = f"destinationBroker={seed.id}&authoritative=false"
        seed.redirect("PUT", UNLOAD, f"{leader.url}{UNLOAD}?{query}")
        leader.redirect("PUT", UNLOAD, f"{owner.url}{UNLOAD}?authoritative=true")
        owner.on("PUT", UNLOAD, Response(status_code=204))
        async with connect(seed) as admin:
            await admin.bundles.unload(BUNDLE, leader.id)
        asked = [next(s for s in b.seen if s.path == UNLOAD) for b in (seed, leader, owner)]
    assert [s.method for s in asked] == ["PUT"] * 3
    assert [s.token for s in asked] == [f"Bearer {TOKEN}"] * 3
    assert [s.method_name for s in asked] == ["token"] * 3
    assert asked[0].query == f"authoritative=false&destinationBroker={leader.id.replace(':', '%3A')}"
    assert [s.query for s in asked[1:]] == [query, "authoritative=true"]


@pytest.mark.parametrize("user_info", [False, True])
async def test_foreign_redirect_sends_nothing(user_info: bool) -> None:
    with brokers(1) as (seed,), brokers(1) as (stranger,):
        seed.redirect("GET", LOOKUP, f"http://{f'{seed.id}@' * user_info}{stranger.id}{LOOKUP}")
        async with connect(seed) as admin:
            with pytest.raises(AdminError) as caught:
                await admin.bundles.lookup(TOPIC)
        assert caught.value.reason == "foreign_address"
        assert stranger.id in str(caught.value)
        assert stranger.seen == []


async def test_a_list_of_brokers_that_is_redirected_to_a_stranger_says_so() -> None:
    with brokers(1) as (seed,), brokers(1) as (stranger,):
        seed.redirect("GET", "/admin/v2/brokers", f"{stranger.url}/admin/v2/brokers")
        async with connect(seed) as admin:
            with pytest.raises(AdminError) as caught:
                await admin.brokers()
        assert caught.value.reason == "foreign_address"
        assert stranger.seen == []


async def test_redirect_to_another_path_is_refused() -> None:
    with brokers(2) as (seed, other):
        seed.redirect("PUT", UNLOAD, f"{other.url}/admin/v2/brokers/shutdown")
        async with connect(seed) as admin:
            with pytest.raises(AdminError) as caught:
                await admin.bundles.unload(BUNDLE, other.id)
        assert caught.value.reason == "bad_answer"
        assert other.seen == []


async def test_a_known_broker_is_asked_once_no_seed_accepts_a_connection() -> None:
    dead = closed_port()
    with brokers(1) as (known,):
        known.on("GET", LOOKUP, {"httpUrl": known.url})
        async with PulsarAdmin(AdminConnection(seeds=(f"http://{dead}",))) as admin:
            with pytest.raises(AdminError, match=f"no connection to {dead} "):
                await admin.bundles.lookup(TOPIC)
            admin.set_brokers([dead, known.id])
            for _ in range(2):
                assert (await admin.bundles.lookup(TOPIC)).http_url == known.url


async def test_redirect_circle_ends() -> None:
    with brokers(2) as (one, two):
        one.redirect("GET", LOOKUP, f"{two.url}{LOOKUP}?authoritative=false")
        two.redirect("GET", LOOKUP, f"{one.url}{LOOKUP}?authoritative=false")
        async with connect(one) as admin:
            with pytest.raises(AdminError) as caught:
                await admin.bundles.lookup(TOPIC)
        assert caught.value.reason == "bad_answer"
        asked = [(b.id, s.query) for b in (one, two) for s in b.seen if s.path == LOOKUP]
        # No broker gets the same request twice.
        assert asked == [(one.id, ""), (one.id, "authoritative=false"), (two.id, "authoritative=false")]


async def test_advertised_address_is_mapped() -> None:
    with brokers(1) as (seed,), brokers(1) as (owner,):
        seed.on("GET", "/admin/v2/brokers", ["broker-0.pulsar:8080", "broker-1.pulsar:8080"])
        seed.redirect("GET", LOOKUP, f"http://BROKER-1.pulsar:8080{LOOKUP}?authoritative=true")
        owner.on("GET", LOOKUP, {"httpUrl": "http://broker-1.pulsar:8080"})
        owner.on("GET", REPORT, {"brokerId": "broker-1.pulsar:8080"})
        addresses = {"broker-0.pulsar:8080": seed.url, "broker-1.pulsar:8080": owner.url}
        async with connect(seed, address_map=addresses) as admin:
            assert await admin.bundles.lookup_owner(TOPIC) == "broker-1.pulsar:8080"
            assert await admin.load_report("broker-1.pulsar:8080") == {"brokerId": "broker-1.pulsar:8080"}
        assert owner.seen[0].query == "authoritative=true"
        assert {s.token for s in owner.seen} == {f"Bearer {TOKEN}"}


async def test_next_seed_is_asked_when_one_accepts_no_connection() -> None:
    dead = closed_port()
    with brokers(1) as (alive,):
        async with connect(f"http://{dead}", alive) as admin:
            assert await admin.brokers() == [alive.id]
    async with connect(f"http://{dead}", f"http://{alive.id}") as admin:
        with pytest.raises(AdminError) as caught:
            await admin.brokers()
    assert caught.value.reason == "unreachable"
    assert dead in str(caught.value)
    assert alive.id in str(caught.value)
