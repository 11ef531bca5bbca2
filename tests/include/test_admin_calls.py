"""What each call of the admin client asks, and what it makes of the answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from zlib import crc32

import pytest
from pydantic import SecretStr
from starlette.responses import JSONResponse, PlainTextResponse, Response
from tests.include.admin_broker import Broker, brokers, closed_port

from pulsar_rebalancer.admin import AdminConnection, PulsarAdmin
from pulsar_rebalancer.errors import AdminError

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from starlette.requests import Request

pytestmark = pytest.mark.anyio

ADMIN = "/admin/v2"
RANGE = "0x00000000_0x80000000"
BUNDLE = f"acme/shop/{RANGE}"
NAMESPACE = f"{ADMIN}/namespaces/acme/shop"
POSITIONS = f"{NAMESPACE}/{RANGE}/topicHashPositions"
REPORT = f"{ADMIN}/broker-stats/load-report"
RUNTIME = f"{ADMIN}/brokers/configuration/runtime"
SWITCHES = {"loadBalancerEnabled": "true", "loadBalancerSheddingEnabled": "False"}


def connect(broker: Broker, **options: Any) -> PulsarAdmin:
    return PulsarAdmin(AdminConnection(seeds=(broker.url,), **options))


def refused(status: int, reason: str) -> Response:
    return JSONResponse({"reason": reason}, status)


def owns(broker: Broker, *bundles: str) -> None:
    state = {"broker_assignment": "shared", "is_controlled": False, "is_active": True}
    path = f"{ADMIN}/brokers/e2e/{broker.id}/ownedNamespaces"
    broker.on("GET", path, dict.fromkeys(bundles, state))


async def test_brokers_are_sorted_and_told_as_often_as_they_are_listed() -> None:
    with brokers(1) as (broker,):
        broker.on("GET", f"{ADMIN}/brokers", ["b2:8080", "b1:8080", "[::1]:8080", "b2:8080"])
        async with connect(broker) as admin:
            assert await admin.brokers() == ["[::1]:8080", "b1:8080", "b2:8080", "b2:8080"]


@pytest.mark.parametrize(
    ("reply", "leader"),
    [
        (JSONResponse({"serviceUrl": "http://x:1", "brokerId": "b1:8080"}), "b1:8080"),
        (JSONResponse({"serviceUrl": "http://b2:8080"}), "b2:8080"),
        (refused(404, "Couldn't find leader broker"), ""),
    ],
)
async def test_leader(reply: Response, leader: str) -> None:
    with brokers(1) as (broker,):
        broker.on("GET", f"{ADMIN}/brokers/leaderBroker", reply)
        async with connect(broker) as admin:
            assert await admin.leader() == leader


@pytest.mark.parametrize("answer", [{}, {"brokerId": "me@evil:80"}, {"brokerId": ""}, {"serviceUrl": "http://["}])
async def test_leader_of_no_form_is_refused(answer: dict[str, str]) -> None:
    with brokers(1) as (broker,):
        broker.on("GET", f"{ADMIN}/brokers/leaderBroker", answer)
        async with connect(broker) as admin:
            with pytest.raises(AdminError) as caught:
                await admin.leader()
    assert caught.value.reason == "bad_answer"


async def test_cluster_name() -> None:
    with brokers(1) as (broker,):
        async with connect(broker, cluster="given") as admin:
            assert await admin.cluster_name() == "given"
        assert broker.seen == []
        async with connect(broker) as admin:
            assert await admin.cluster_name() == "e2e"
        broker.on("GET", f"{ADMIN}/clusters", ["east", "global", "west"])
        broker.on("GET", RUNTIME, {"clusterName": "west"})
        async with connect(broker) as admin:
            assert await admin.cluster_name() == "west"
        broker.on("GET", RUNTIME, {"other": "x"})
        async with connect(broker) as admin:
            with pytest.raises(AdminError, match="set the connection's cluster"):
                await admin.cluster_name()


async def test_load_reports_come_from_each_broker_itself() -> None:
    dead = closed_port()
    with brokers(5) as (one, two, noop, extensible, elsewhere):
        one.on("GET", REPORT, {"msgRateIn": 1.5})
        two.on("GET", REPORT, {"msgRateIn": 2.5})
        noop.on("GET", REPORT, PlainTextResponse("null"))
        stack = "\n --- An unexpected error occurred in the server ---\n\nMessage: null\n\nStacktrace:\n\n"
        extensible.on("GET", REPORT, refused(500, stack + "java.lang.UnsupportedOperationException: null"))
        elsewhere.redirect("GET", REPORT, f"{one.url}{REPORT}")
        async with connect(one) as admin:
            every = [one.id, two.id, noop.id, extensible.id, elsewhere.id, dead]
            reports = await admin.load_reports([*every, one.id])
        assert one.paths == [f"GET {REPORT}"]
    assert list(reports) == every
    assert [reports[b.id] for b in (one, two, noop)] == [{"msgRateIn": 1.5}, {"msgRateIn": 2.5}, None]
    errors = [reports[b] for b in (extensible.id, elsewhere.id, dead)]
    assert [e.reason for e in errors if isinstance(e, AdminError)] == ["no_load_report", "bad_answer", "unreachable"]


async def test_empty_load_report_is_none() -> None:
    with brokers(1) as (broker,):
        broker.on("GET", REPORT, Response(status_code=204))
        async with connect(broker) as admin:
            assert await admin.load_report(broker.id) is None


async def test_configuration() -> None:
    with brokers(2) as (one, two):
        one.on("GET", RUNTIME, SWITCHES | {"empty": None})
        two.on("GET", RUNTIME, SWITCHES)
        name, odd = f"{ADMIN}/brokers/configuration/some/0.5", f"{ADMIN}/brokers/configuration/some/a%2Fb%3Fc"
        one.on("POST", name, Response())
        one.on("POST", odd, Response())
        one.on("POST", f"{ADMIN}/brokers/configuration/static/1", refused(412, "Can't update non-dynamic"))
        async with connect(one) as admin:
            assert await admin.runtime_configuration() == SWITCHES | {"empty": ""}
            assert await admin.runtime_configuration(two.id) == SWITCHES
            await admin.set_dynamic("some", "0.5")
            await admin.set_dynamic("some", "a/b?c")
            with pytest.raises(AdminError) as caught:
                await admin.set_dynamic("static", "1")
    assert caught.value.reason == "wrong_setting"
    assert one.paths[-3:-1] == [f"POST {name}", f"POST {odd}"]


@pytest.mark.parametrize(
    "answer",
    [
        {},
        *({name: value for name, value in SWITCHES.items() if name != missing} for missing in SWITCHES),
        *(SWITCHES | {name: value} for name in SWITCHES for value in (None, "", "null", "yes")),
    ],
)
async def test_a_configuration_that_does_not_say_who_sheds_is_a_bad_answer(answer: dict[str, str | None]) -> None:
    with brokers(1) as (broker,):
        broker.on("GET", RUNTIME, answer)
        async with connect(broker) as admin:
            with pytest.raises(AdminError) as caught:
                await admin.runtime_configuration()
    assert caught.value.reason == "bad_answer"
    assert "does not say whether loadBalancer" in str(caught.value)


async def test_policies() -> None:
    policies = f"{ADMIN}/clusters/e2e/namespaceIsolationPolicies"
    domains = f"{ADMIN}/clusters/e2e/failureDomains"
    with brokers(1) as (broker,):
        async with connect(broker) as admin:
            assert await admin.isolation_policies("e2e") == {}
            assert await admin.failure_domains("e2e") == {}
            broker.on("GET", policies, {"p": {"namespaces": ["acme/.*"]}})
            broker.on("GET", domains, {"rack1": {"brokers": [broker.id]}})
            assert await admin.isolation_policies("e2e") == {"p": {"namespaces": ["acme/.*"]}}
            assert await admin.failure_domains("e2e") == {"rack1": {"brokers": [broker.id]}}
            # Only "none were ever set" is empty; anything else leaves the policies unknown.
            for status in (401, 412, 500):
                broker.on("GET", policies, refused(status, "no"))
                with pytest.raises(AdminError):
                    await admin.isolation_policies("e2e")


@pytest.mark.parametrize(
    ("reply", "group"),
    [
        (PlainTextResponse("group-a"), "group-a"),
        (JSONResponse("group-a"), "group-a"),
        (Response(status_code=204), ""),
        (PlainTextResponse("null"), ""),
    ],
)
async def test_anti_affinity_group(reply: Response, group: str) -> None:
    with brokers(1) as (broker,):
        broker.on("GET", f"{NAMESPACE}/antiAffinity", reply)
        async with connect(broker) as admin:
            assert await admin.anti_affinity_group("acme/shop") == group


async def test_topics_of_a_bundle_come_from_its_owner() -> None:
    with brokers(2) as (seed, owner):
        seed.redirect("GET", POSITIONS, f"{owner.url}{POSITIONS}?authoritative=false")
        topics = {"persistent://acme/shop/b": 7, "non-persistent://acme/shop/a": 2**31 - 1}
        owner.on("GET", POSITIONS, {"namespace": "acme/shop", "bundle": RANGE, "topicHashPositions": topics})
        async with connect(seed) as admin:
            assert await admin.topics_of_bundle(BUNDLE) == sorted(topics)


async def test_asking_for_the_positions_of_topics() -> None:
    with brokers(1) as (broker,):
        asked: list[str] = []

        async def positions(request: Request) -> Response:
            asked.extend(request.query_params.getlist("topics"))
            return JSONResponse({"topicHashPositions": {"persistent://acme/shop/b": 7}})

        broker.on("GET", POSITIONS, positions)
        async with connect(broker) as admin:
            topics = ["persistent://acme/shop/b", "persistent://acme/shop/a+b%&"]
            assert await admin.topic_hash_positions(BUNDLE, topics) == {"persistent://acme/shop/b": 7}
            for wrong in ({"a": "7"}, {"a": True}, ["a"], None):
                broker.on("GET", POSITIONS, {"topicHashPositions": wrong})
                with pytest.raises(AdminError) as caught:
                    await admin.topic_hash_positions(BUNDLE)
                assert caught.value.reason == "bad_answer"
    # Brokers decode these names a second time.
    assert asked == ["persistent://acme/shop/b", "persistent://acme/shop/a%2Bb%25%26"]


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
                assert await admin.topics_of_bundle(f"acme/shop/{hash_range}") == expected
        broker.on("GET", POSITIONS, refused(412, "Invalid upper boundary for bundle"))
        async with connect(broker) as admin:
            with pytest.raises(AdminError) as caught:
                await admin.topics_of_bundle(BUNDLE)
    assert caught.value.reason == "bad_range"


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
            result = await admin.lookup(topic)
            assert (result.broker_service_url, result.http_url) == ("pulsar://two:6650", two.url)
            assert await admin.lookup_owner(topic) == two.id
            # A broker with both ports has the plain one in its id.
            one.on("GET", path, {"httpUrlTls": "https://127.0.0.1:8443", "httpUrl": two.url})
            assert await admin.lookup_owner(topic) == two.id
            for wrong in ({"httpUrl": "http://stranger:8080"}, {"httpUrl": 5}, {}):
                one.on("GET", path, wrong)
                with pytest.raises(AdminError) as caught:
                    await admin.lookup_owner(topic)
                assert caught.value.reason == "bad_answer"


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("pulsar://127.0.0.1:6650", None),
        ("pulsar+ssl://127.0.0.1:6651/", None),
        ("pulsar://MAPPED.example:6650", None),  # advertised, and reached elsewhere
        ("pulsar://reached.example:6650", None),
        ("pulsar://stranger:6650", "foreign_service_url"),
        ("pulsar://127.0.0.1.stranger:6650", "foreign_service_url"),
        ("pulsar://127.0.0.1:6650,stranger:6650", "bad_answer"),
        ("pulsar://127.0.0.1@stranger:6650", "bad_answer"),
        ("pulsar://127.0.0.1:66500", "bad_answer"),
        ("http://127.0.0.1:6650", "bad_answer"),
        ("garbage", "bad_answer"),
        ("", "bad_answer"),
    ],
)
async def test_credentials_go_to_hosts_of_the_cluster_alone(url: str, reason: str | None) -> None:
    addresses = {"mapped.example:8080": "http://reached.example:80"}
    with brokers(1) as (broker,):
        broker.on("GET", "/lookup/v2/topic/persistent/a/b/c", {"httpUrl": broker.url, "brokerUrl": url})
        async with connect(broker, address_map=addresses, token=SecretStr("secret")) as admin:
            asked = admin.service_url("persistent://a/b/c")
            if reason is None:
                assert await asked == url
                return
            with pytest.raises(AdminError, match="set the connection's service_url") as caught:
                await asked
    assert caught.value.reason == reason


async def test_without_credentials_any_host_may_be_named() -> None:
    with brokers(1) as (broker,):
        found = {"httpUrl": broker.url, "brokerUrl": "pulsar://advertised.example:6650"}
        broker.on("GET", "/lookup/v2/topic/persistent/a/b/c", found)
        async with connect(broker) as admin:
            assert await admin.service_url("persistent://a/b/c") == "pulsar://advertised.example:6650"


async def test_owner_is_what_brokers_say_themselves() -> None:
    with brokers(3) as (one, two, three):
        owns(one, "acme/shop/0x80000000_0xffffffff")
        owns(two, BUNDLE, "pulsar/system/0x00000000_0x10000000")
        owns(three)
        async with connect(one) as admin:
            assert await admin.owned_bundles(two.id) == {BUNDLE, "pulsar/system/0x00000000_0x10000000"}
            assert await admin.owner(BUNDLE) == two.id
            three.seen.clear()
            assert await admin.owner(BUNDLE, likely=[one.id, two.id]) == two.id
            assert three.seen == []
            owns(two)
            assert await admin.owner(BUNDLE, likely=[two.id]) is None


async def test_owner_is_unknown_while_a_broker_cannot_be_asked() -> None:
    dead = closed_port()
    with brokers(1) as (one,):
        one.on("GET", f"{ADMIN}/brokers", [one.id, dead])
        owns(one, BUNDLE)
        async with connect(one) as admin:
            assert await admin.owner(BUNDLE, likely=[dead]) == one.id
            owns(one)
            with pytest.raises(AdminError) as caught:
                await admin.owner(BUNDLE)
    assert (caught.value.reason, caught.value.broker) == ("unreachable", dead)


async def test_an_empty_answer_is_not_an_owner_of_nothing() -> None:
    with brokers(1) as (one,):
        one.on("GET", f"{ADMIN}/brokers/e2e/{one.id}/ownedNamespaces", Response())
        async with connect(one) as admin:
            with pytest.raises(AdminError) as caught:
                await admin.owner(BUNDLE)
    assert caught.value.reason == "bad_answer"


# names

NASTY = ["a'b\"c", "<script>", "a b", "100%", "%2e%2e", "a%2Fb", "é", "a?b#c", "a;b=c", "a\\b", "a\nb", "..a", "a+b"]


@pytest.mark.parametrize("name", NASTY)
async def test_a_name_stays_one_path_segment(name: str) -> None:
    with brokers(1) as (broker,):
        segments: list[str] = []

        async def take_apart(request: Request) -> Response:
            segments.extend(bytes(request.scope["raw_path"]).decode().split("/"))
            assert request.scope["path"].endswith(f"/{name}/{name}/antiAffinity")
            return Response()

        broker.fallback = take_apart
        async with connect(broker) as admin:
            await admin.anti_affinity_group(f"{name}/{name}")
    assert len(segments) == 7
    assert set("".join(segments)) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789%-_.~:")


async def test_slashes_of_a_topic_are_encoded() -> None:
    with brokers(1) as (broker,):
        path = "/lookup/v2/topic/persistent/acme/shop/a%2F..%2F..%2Fb%3Fauthoritative%3Dtrue"
        broker.on("GET", path, {"httpUrl": broker.url})
        async with connect(broker) as admin:
            topic = "persistent://acme/shop/a/../../b?authoritative=true"
            assert (await admin.lookup(topic)).http_url == broker.url
        assert (broker.seen[-1].path, broker.seen[-1].query) == (path, "")


async def test_names_of_no_form_are_refused_unsent() -> None:
    with brokers(1) as (broker,):
        async with connect(broker) as admin:
            bundles = (
                *("acme/shop", "acme/shop/abc", "acme/shop/0x0_0x8", f"acme//{RANGE}", f"a/b/c/{RANGE}"),
                *(f"acme/shop/{RANGE}/unload", f"acme/shop/{RANGE}\n", "acme/shop/0x00000000_0xfffffffg"),
            )
            for bundle in bundles:
                for call in (admin.unload(bundle, broker.id), admin.topics_of_bundle(bundle), admin.owner(bundle)):
                    with pytest.raises(AdminError) as caught:
                        await call
                    assert caught.value.reason == "bad_range"
            names: tuple[Coroutine[Any, Any, object], ...] = (
                *(
                    admin.anti_affinity_group(n)
                    for n in ("acme", "/shop", "acme/", "a/b/c", "../shop", "acme/.", "a/\ud800")
                ),
                *(admin.lookup(t) for t in ("t", "http://a/b/c", "persistent://a/b", "persistent://a/b/..")),
                admin.unload(f"../shop/{RANGE}", broker.id),
                admin.set_dynamic("..", "x"),
                admin.set_dynamic("name", ""),
                admin.load_report("user@evil.example:80"),
                admin.load_report("evil.example/x:80"),
            )
            for asked in names:
                with pytest.raises(AdminError) as caught:
                    await asked
                assert caught.value.reason == "not_found"
        assert broker.seen == []
