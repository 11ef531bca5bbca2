from collections.abc import Coroutine
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from tests.include.pulsar_rebalancer.pulsar.scripted_broker import brokers, closed_port, connect, refused, whole

from pulsar_rebalancer.errors import AdminError

pytestmark = pytest.mark.anyio

ADMIN = "/admin/v2"
RANGE = "0x00000000_0x80000000"
REPORT = f"{ADMIN}/broker-stats/load-report"
RUNTIME = f"{ADMIN}/brokers/configuration/runtime"
SWITCHES = {"loadBalancerEnabled": "true", "loadBalancerSheddingEnabled": "False"}


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


async def test_cluster_name() -> None:
    with brokers(1) as (broker,):
        broker.on("GET", RUNTIME, {"clusterName": "west"})
        async with connect(broker) as admin:
            assert await admin.cluster_name() == "west"
        broker.on("GET", RUNTIME, {"other": "x"})
        async with connect(broker) as admin:
            with pytest.raises(AdminError, match="names no cluster"):
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
            reports = await admin.load_reports([*every, one.id], whole)
        assert one.paths == [f"GET {REPORT}"]
    assert list(reports) == every
    assert [reports[b.id] for b in (one, two, noop)] == [{"msgRateIn": 1.5}, {"msgRateIn": 2.5}, None]
    errors = [reports[b] for b in (extensible.id, elsewhere.id, dead)]
    assert [e.reason for e in errors if isinstance(e, AdminError)] == ["no_load_report", "bad_answer", "unreachable"]


async def test_a_broker_is_asked_for_its_bundles_in_the_way_of_its_load_manager() -> None:
    unsupported = refused(500, "Message: null\n\nStacktrace:\n\njava.lang.UnsupportedOperationException: null")
    with brokers(2) as (modular, extensible):
        modular.on("GET", REPORT, {"lastStats": {"t/n/0x00000000_0xffffffff": {}}})
        extensible.on("GET", REPORT, unsupported)
        extensible.on(
            "GET", f"/admin/v2/brokers/e2e/{extensible.id}/ownedNamespaces", {"t/m/0x00000000_0xffffffff": {}}
        )
        async with connect(modular) as admin:
            assert await admin.reported_bundles(modular.id) == {"t/n/0x00000000_0xffffffff"}
            assert await admin.reported_bundles(extensible.id) == {"t/m/0x00000000_0xffffffff"}
        assert modular.paths == [f"GET {REPORT}", f"GET {RUNTIME}"]


@pytest.mark.parametrize(
    "answer",
    [
        {},
        *({name: value for name, value in SWITCHES.items() if name != missing} for missing in SWITCHES),
        *({**SWITCHES, name: value} for name in SWITCHES for value in (None, "", "null", "yes")),
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


async def test_names_of_no_form_are_refused_unsent() -> None:
    with brokers(1) as (broker,):
        async with connect(broker) as admin:
            bundles = (
                *("acme/shop", "acme/shop/abc", "acme/shop/0x0_0x8", f"acme//{RANGE}", f"a/b/c/{RANGE}"),
                *(f"acme/shop/{RANGE}/unload", f"acme/shop/{RANGE}\n", "acme/shop/0x00000000_0xfffffffg"),
            )
            for bundle in bundles:
                for call in (
                    admin.bundles.unload(bundle, broker.id),
                    admin.bundles.topics_of_bundle(bundle),
                    admin.bundles.owner(bundle),
                ):
                    with pytest.raises(AdminError) as caught:
                        await call
                    assert caught.value.reason == "range_gone"
            names: tuple[Coroutine[Any, Any, object], ...] = (
                *(
                    admin.anti_affinity_group(n)
                    for n in ("acme", "/shop", "acme/", "a/b/c", "../shop", "acme/.", "a/\ud800")
                ),
                *(admin.bundles.lookup(t) for t in ("t", "http://a/b/c", "persistent://a/b", "persistent://a/b/..")),
                admin.bundles.unload(f"../shop/{RANGE}", broker.id),
                admin.load_report("user@evil.example:80"),
                admin.load_report("evil.example/x:80"),
            )
            for asked in names:
                with pytest.raises(AdminError) as caught:
                    await asked
                assert caught.value.reason == "not_found"
        assert broker.seen == []
