"""The admin client on the wire: redirects, credentials, TLS, limits, and what errors say."""

from __future__ import annotations

import asyncio
import logging
import traceback
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import SecretStr
from starlette.responses import JSONResponse, Response, StreamingResponse
from tests.include.admin_broker import (
    JETTY_401,
    TOKEN,
    Authority,
    Broker,
    brokers,
    closed_port,
    raw_broker,
)

from pulsar_rebalancer.admin import AdminConnection, PulsarAdmin
from pulsar_rebalancer.errors import AdminError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from starlette.requests import Request

pytestmark = pytest.mark.anyio

BUNDLE = "acme/shop/0x00000000_0x80000000"
UNLOAD = "/admin/v2/namespaces/acme/shop/0x00000000_0x80000000/unload"
LOOKUP = "/lookup/v2/topic/persistent/acme/shop/t1"
TOPIC = "persistent://acme/shop/t1"
REPORT = "/admin/v2/broker-stats/load-report"
MIB = 1024 * 1024


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def connect(*seeds: Broker | str, **options: Any) -> PulsarAdmin:
    urls = tuple(seed if isinstance(seed, str) else seed.url for seed in seeds)
    options.setdefault("token", SecretStr(TOKEN))
    return PulsarAdmin(AdminConnection(seeds=urls, **options))


# redirects


async def test_unload_is_followed_to_leader_and_owner_with_method_and_token() -> None:
    with brokers(3) as (seed, leader, owner):
        query = f"destinationBroker={seed.id}&authoritative=false"
        seed.redirect("PUT", UNLOAD, f"{leader.url}{UNLOAD}?{query}")
        leader.redirect("PUT", UNLOAD, f"{owner.url}{UNLOAD}?authoritative=true")
        owner.on("PUT", UNLOAD, Response(status_code=204))
        async with connect(seed) as admin:
            await admin.unload(BUNDLE, leader.id)
        asked = [next(s for s in b.seen if s.path == UNLOAD) for b in (seed, leader, owner)]
    assert [s.method for s in asked] == ["PUT"] * 3
    assert [s.token for s in asked] == [f"Bearer {TOKEN}"] * 3
    assert [s.method_name for s in asked] == ["token"] * 3
    assert asked[0].query == f"authoritative=false&destinationBroker={leader.id.replace(':', '%3A')}"
    assert [s.query for s in asked[1:]] == [query, "authoritative=true"]


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_every_kind_of_redirect_keeps_the_method(status: int) -> None:
    with brokers(2) as (seed, owner):
        seed.redirect("PUT", UNLOAD, f"{owner.url}{UNLOAD}", status)
        owner.on("PUT", UNLOAD, Response(status_code=204))
        async with connect(seed) as admin:
            await admin.unload(BUNDLE, owner.id)
        assert owner.paths == [f"PUT {UNLOAD}"]


async def test_foreign_redirect_sends_nothing() -> None:
    with brokers(1) as (seed,), brokers(1) as (stranger,):
        seed.redirect("GET", LOOKUP, f"{stranger.url}{LOOKUP}")
        async with connect(seed) as admin:
            with pytest.raises(AdminError) as caught:
                await admin.lookup(TOPIC)
        assert caught.value.reason == "foreign_redirect"
        assert stranger.id in str(caught.value)
        assert stranger.seen == []


async def test_a_list_of_brokers_that_is_redirected_to_a_stranger_says_so() -> None:
    with brokers(1) as (seed,), brokers(1) as (stranger,):
        seed.redirect("GET", "/admin/v2/brokers", f"{stranger.url}/admin/v2/brokers")
        async with connect(seed) as admin:
            with pytest.raises(AdminError) as caught:
                await admin.brokers()
        assert caught.value.reason == "foreign_redirect"
        assert stranger.seen == []


async def test_user_info_does_not_make_a_stranger_known() -> None:
    with brokers(1) as (seed,), brokers(1) as (stranger,):
        seed.redirect("GET", LOOKUP, f"http://{seed.id}@{stranger.id}{LOOKUP}")
        async with connect(seed) as admin:
            with pytest.raises(AdminError) as caught:
                await admin.lookup(TOPIC)
        assert caught.value.reason == "foreign_redirect"
        assert stranger.seen == []


async def test_redirect_to_another_path_is_refused() -> None:
    with brokers(2) as (seed, other):
        seed.redirect("PUT", UNLOAD, f"{other.url}/admin/v2/brokers/shutdown")
        async with connect(seed) as admin:
            with pytest.raises(AdminError) as caught:
                await admin.unload(BUNDLE, other.id)
        assert caught.value.reason == "bad_answer"
        assert other.seen == []


async def test_broker_that_joined_after_the_last_listing_is_known() -> None:
    with brokers(2) as (seed, late):
        seed.on("GET", "/admin/v2/brokers", [seed.id])
        seed.redirect("GET", LOOKUP, f"{late.url}{LOOKUP}")
        late.on("GET", LOOKUP, {"httpUrl": late.url})
        async with connect(seed) as admin:
            assert await admin.brokers() == [seed.id]
            seed.on("GET", "/admin/v2/brokers", [seed.id, late.id])
            assert (await admin.lookup(TOPIC)).http_url == late.url


async def test_redirect_circle_ends() -> None:
    with brokers(2) as (one, two):
        one.redirect("GET", LOOKUP, f"{two.url}{LOOKUP}?authoritative=false")
        two.redirect("GET", LOOKUP, f"{one.url}{LOOKUP}?authoritative=false")
        async with connect(one) as admin:
            with pytest.raises(AdminError) as caught:
                await admin.lookup(TOPIC)
        assert caught.value.reason == "redirect_loop"
        asked = [(b.id, s.query) for b in (one, two) for s in b.seen if s.path == LOOKUP]
        # Nobody is asked the same twice.
        assert asked == [(one.id, ""), (one.id, "authoritative=false"), (two.id, "authoritative=false")]


async def test_endless_redirects_with_new_queries_end() -> None:
    with brokers(1) as (one,):

        async def onwards(_: Request) -> Response:
            target = f"{one.url}{LOOKUP}?hop={len(one.seen)}"
            return Response(status_code=307, headers={"Location": target})

        one.on("GET", LOOKUP, onwards)
        async with connect(one) as admin:
            with pytest.raises(AdminError) as caught:
                await admin.lookup(TOPIC)
        assert caught.value.reason == "redirect_loop"
        assert one.paths.count(f"GET {LOOKUP}") == 6  # the request and five hops


async def test_redirect_to_a_dead_broker_names_it() -> None:
    dead = closed_port()
    with brokers(1) as (seed,):
        seed.on("GET", "/admin/v2/brokers", [seed.id, dead])
        seed.redirect("GET", LOOKUP, f"http://{dead}{LOOKUP}")
        async with connect(seed) as admin:
            with pytest.raises(AdminError) as caught:
                await admin.lookup(TOPIC)
    assert caught.value.reason == "unreachable"
    assert caught.value.broker == dead
    assert dead in str(caught.value)


async def test_advertised_address_is_mapped() -> None:
    with brokers(1) as (seed,), brokers(1) as (owner,):
        seed.on("GET", "/admin/v2/brokers", ["broker-0.pulsar:8080", "broker-1.pulsar:8080"])
        seed.redirect("GET", LOOKUP, f"http://BROKER-1.pulsar:8080{LOOKUP}?authoritative=true")
        owner.on("GET", LOOKUP, {"httpUrl": "http://broker-1.pulsar:8080"})
        owner.on("GET", REPORT, {"brokerId": "broker-1.pulsar:8080"})
        addresses = {"broker-0.pulsar:8080": seed.url, "broker-1.pulsar:8080": owner.url}
        async with connect(seed, address_map=addresses) as admin:
            assert await admin.lookup_owner(TOPIC) == "broker-1.pulsar:8080"
            assert await admin.load_report("broker-1.pulsar:8080") == {"brokerId": "broker-1.pulsar:8080"}
        assert owner.seen[0].query == "authoritative=true"
        assert {s.token for s in owner.seen} == {f"Bearer {TOKEN}"}


async def test_address_template_with_a_path_per_broker() -> None:
    with brokers(1) as (gateway,):
        gateway.on("GET", "/b0.pulsar/admin/v2/brokers", ["b0.pulsar:8080", "b1.pulsar:8080"])
        gateway.redirect("GET", f"/b0.pulsar{LOOKUP}", f"http://b1.pulsar:8080{LOOKUP}")
        gateway.redirect("GET", f"/b1.pulsar{LOOKUP}", f"{gateway.url}/b0.pulsar{LOOKUP}?authoritative=true")

        async def owner(request: Request) -> Response:
            if request.query_params:
                return JSONResponse({"httpUrl": "http://b0.pulsar:8080"})
            return Response(status_code=307, headers={"Location": f"http://b1.pulsar:8080{LOOKUP}"})

        gateway.on("GET", f"/b0.pulsar{LOOKUP}", owner)
        template = f"{gateway.url}/{{host}}"
        async with connect(f"{gateway.url}/b0.pulsar/", address_template=template) as admin:
            assert await admin.lookup_owner(TOPIC) == "b0.pulsar:8080"
        asked = [path for path in gateway.paths if path.endswith(LOOKUP)]
        assert asked == [f"GET /b0.pulsar{LOOKUP}", f"GET /b1.pulsar{LOOKUP}", f"GET /b0.pulsar{LOOKUP}"]


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


# refusals

STACK = (
    "\n --- An unexpected error occurred in the server ---\n\nMessage: {}\n\nStacktrace:\n\n"
    "java.lang.UnsupportedOperationException: not here\n\tat org.apache.pulsar.broker.Some.thing(Some.java:1)\n"
)
REFUSALS = {
    "no valid token: Jetty's page": (401, JETTY_401, "unauthorized", "valid token"),
    "no super-user": (401, {"reason": "This operation requires super-user access"}, "forbidden", "super-user"),
    "forbidden": (403, {"reason": "Don't have admin permission"}, "forbidden", "admin permission"),
    "unknown": (404, {"reason": "Namespace not found"}, "not_found", "Namespace not found"),
    "destination": (409, {"reason": "inactive destination broker"}, "conflict", "inactive destination"),
    "stale range": (412, {"reason": "Invalid upper boundary for bundle"}, "bad_range", "upper boundary"),
    "failed": (500, {"reason": "boom\nat Some.java"}, "server_error", "boom"),
    "stack trace": (500, {"reason": STACK.format("timed out")}, "server_error", "timed out"),
    "no message": (500, {"reason": STACK.format("null")}, "server_error", "UnsupportedOperation"),
    "overloaded": (503, "<html>busy</html>", "server_error", "503"),
    "not Pulsar": (405, "no", "bad_answer", "405"),
    "redirect to nowhere": (307, "", "bad_answer", "307"),
}


@pytest.mark.parametrize("name", REFUSALS)
async def test_refusal_has_a_reason_and_says_what_was_seen(name: str) -> None:
    status, body, reason, said = REFUSALS[name]
    with brokers(1) as (broker,):
        reply = Response(body, status) if isinstance(body, str) else JSONResponse(body, status)
        broker.on("PUT", UNLOAD, reply)
        async with connect(broker) as admin:
            with pytest.raises(AdminError) as caught:
                await admin.unload(BUNDLE, "b:1")
    error = caught.value
    assert (error.reason, error.status, error.broker) == (reason, status, broker.id)
    assert said in str(error)
    assert f"PUT {UNLOAD} at {broker.id}" in str(error)
    assert "\n" not in str(error)


async def test_reason_is_one_clean_line_of_bounded_length() -> None:
    with brokers(1) as (broker,):
        text = "\x1b[31mred\x00\u202e" + "x" * 1000 + "\nsecond line"
        broker.on("PUT", UNLOAD, JSONResponse({"reason": text}, 500))
        async with connect(broker) as admin:
            with pytest.raises(AdminError) as caught:
                await admin.unload(BUNDLE, "b:1")
    assert not set("\x1b\x00\u202e\n") & set(str(caught.value))
    assert "second line" not in str(caught.value)
    assert 190 <= str(caught.value).count("x") <= 200


async def test_read_only_sends_nothing_but_gets() -> None:
    with brokers(1) as (broker,):
        async with connect(broker, read_only=True) as admin:
            for call in (
                admin.unload(BUNDLE, broker.id),
                admin.set_dynamic("loadBalancerSheddingEnabled", "false"),
                admin.delete_dynamic("loadBalancerSheddingEnabled"),
            ):
                with pytest.raises(AdminError) as caught:
                    await call
                assert caught.value.reason == "read_only"
            assert broker.seen == []
            assert await admin.brokers() == [broker.id]


# broken answers


async def test_half_an_answer() -> None:
    half = b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n["127.0.0.1:80'
    async with raw_broker(half) as broker, connect(broker.url) as admin:
        with pytest.raises(AdminError) as caught:
            await admin.brokers()
    assert caught.value.reason == "bad_answer"


async def test_no_http_at_all() -> None:
    async with raw_broker(b"SSH-2.0-OpenSSH_9.6\r\n\r\n") as broker, connect(broker.url) as admin:
        with pytest.raises(AdminError) as caught:
            await admin.brokers()
    assert caught.value.reason == "bad_answer"


@pytest.mark.parametrize(
    "body",
    [
        '["127.0.0.1:8080',
        "<html>welcome</html>",
        "",
        "{}",
        "[1]",
        "null",
        "[" * 100_000,
        '["user@evil.example:80"]',
        '["broker"]',
        '["a/b:80"]',
        b"\xff\xfe",
    ],
)
async def test_garbage_is_a_bad_answer(body: str | bytes) -> None:
    with brokers(1) as (broker,):
        broker.on("GET", "/admin/v2/brokers", Response(body))
        async with connect(broker) as admin:
            with pytest.raises(AdminError) as caught:
                await admin.brokers()
    assert caught.value.reason == "bad_answer"
    assert caught.value.status == 200


@pytest.mark.parametrize(("status", "reason"), [(200, "bad_answer"), (500, "server_error")])
async def test_huge_answer_is_cut_off_early(status: int, reason: str) -> None:
    sent = 0
    done = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {status} Status\r\nContent-Length: {100 * MIB}\r\n\r\n".encode())
        try:
            for sent in range(100):  # noqa: B007 - how far it came is what is asked
                writer.write(b" " * MIB)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            done.set()
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        broker = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with connect(f"http://{broker}", max_answer_bytes=MIB) as admin:
            tracemalloc.start()
            try:
                with pytest.raises(AdminError) as caught:
                    await admin.load_report(broker)
                peak = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
            await done.wait()
    assert caught.value.reason == reason
    assert sent < 50
    assert peak < 20 * MIB


async def test_slow_answer_times_out() -> None:
    with brokers(1) as (broker,):

        async def never(request: Request) -> Response:
            await request.is_disconnected()
            await asyncio.sleep(3600)
            return Response()

        broker.on("GET", REPORT, never)
        async with connect(broker, read_timeout_s=0.2, connect_timeout_s=1) as admin:
            with pytest.raises(AdminError) as caught:
                await admin.load_report(broker.id)
    assert caught.value.reason == "timeout"
    assert caught.value.broker == broker.id


async def test_answer_that_drips_times_out_as_a_whole() -> None:
    async def drip() -> AsyncIterator[bytes]:
        while True:
            yield b" "
            await asyncio.sleep(0.02)

    with brokers(1) as (broker,):
        broker.on("GET", REPORT, StreamingResponse(drip()))
        async with connect(broker, read_timeout_s=0.2, connect_timeout_s=1) as admin:
            with pytest.raises(AdminError) as caught:
                await admin.load_report(broker.id)
    assert caught.value.reason == "timeout"


async def test_reset_get_is_sent_once_more() -> None:
    ok = b'HTTP/1.1 200 OK\r\nContent-Length: 8\r\nConnection: close\r\n\r\n["b:80"]'
    async with raw_broker(None, ok) as broker, connect(broker.url) as admin:
        assert await admin.brokers() == ["b:80"]
    assert len(broker.requests) == 2


async def test_reset_twice_is_unreachable() -> None:
    async with raw_broker(None, None) as broker, connect(broker.url) as admin:
        with pytest.raises(AdminError) as caught:
            await admin.brokers()
    assert caught.value.reason == "unreachable"
    assert len(broker.requests) == 2


async def test_reset_unload_is_not_repeated() -> None:
    async with raw_broker(None) as broker, connect(broker.url) as admin:
        with pytest.raises(AdminError) as caught:
            await admin.unload(BUNDLE, "b:1")
    assert caught.value.reason == "unreachable"
    assert "may have carried it out" in str(caught.value)
    assert len(broker.requests) == 1


async def test_concurrency_is_bounded() -> None:
    most = under_way = 0

    async def report(_: Request) -> Response:
        nonlocal most, under_way
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.01)
        under_way -= 1
        return JSONResponse({})

    with brokers(1) as (broker,):
        broker.on("GET", REPORT, report)
        names = [f"b{i}.pulsar:8080" for i in range(40)]
        async with connect(broker, concurrency=4, address_map=dict.fromkeys(names, broker.url)) as admin:
            reports = await admin.load_reports(names)
    assert reports == {name: {} for name in names}
    assert 1 < most <= 4


async def test_waiting_for_a_turn_is_not_a_slow_answer() -> None:
    async def report(_: Request) -> Response:
        await asyncio.sleep(0.2)
        return JSONResponse({})

    with brokers(1) as (broker,):
        broker.on("GET", REPORT, report)
        names = [f"b{i}.pulsar:8080" for i in range(10)]
        addresses = dict.fromkeys(names, broker.url)
        options = {"concurrency": 1, "connect_timeout_s": 1, "read_timeout_s": 0.5}
        async with connect(broker, address_map=addresses, **options) as admin:
            reports = await admin.load_reports(names)  # 2 s in all, more than one request may take
    assert reports == {name: {} for name in names}


# TLS


def tls(files: tuple[Path, Path], **options: Any) -> dict[str, Any]:
    return {"ssl_certfile": str(files[0]), "ssl_keyfile": str(files[1]), **options}


async def test_private_authority_and_redirects_over_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "private")
    with brokers(2, host="localhost", **tls(authority.issue("localhost"))) as (seed, owner):
        # Whatever scheme a redirect names, the connection's own is used: the token stays encrypted.
        seed.redirect("GET", LOOKUP, f"http://{owner.id}{LOOKUP}")
        owner.on("GET", LOOKUP, {"httpUrl": f"http://{owner.id}", "httpUrlTls": f"https://{owner.id}"})
        async with connect(f"https://{seed.id}", ca_file=authority.file) as admin:
            assert (await admin.lookup(TOPIC)).http_url == f"https://{owner.id}"
        assert owner.seen[-1].token == f"Bearer {TOKEN}"


async def test_wrong_host_name_is_refused(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "private")
    with brokers(1, host="localhost", **tls(authority.issue("other.example"))) as (broker,):
        async with connect(f"https://{broker.id}", ca_file=authority.file) as admin:
            with pytest.raises(AdminError) as caught:
                await admin.brokers()
        assert broker.seen == []
    assert caught.value.reason == "unreachable"
    assert "Hostname mismatch" in str(caught.value)


async def test_wrong_authority_is_refused(tmp_path: Path) -> None:
    issuing, trusted = Authority(tmp_path, "issuing"), Authority(tmp_path, "trusted")
    with brokers(1, host="localhost", **tls(issuing.issue("localhost"))) as (broker,):
        for ca_file in (trusted.file, None):
            async with connect(f"https://{broker.id}", ca_file=ca_file) as admin:
                with pytest.raises(AdminError) as caught:
                    await admin.brokers()
            assert caught.value.reason == "unreachable"
            assert "CERTIFICATE_VERIFY_FAILED" in str(caught.value)
        assert broker.seen == []


async def test_client_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "private")
    options = tls(authority.issue("localhost"), ssl_cert_reqs=2, ssl_ca_certs=str(authority.file))
    certificate, key = authority.issue("rebalancer")
    with brokers(1, host="localhost", **options) as (broker,):
        async with connect(
            f"https://{broker.id}",
            ca_file=authority.file,
            client_cert_file=certificate,
            client_key_file=key,
            token=None,
        ) as admin:
            assert await admin.brokers() == [broker.id]
        assert broker.seen[0].token == ""
        async with connect(f"https://{broker.id}", ca_file=authority.file) as admin:
            with pytest.raises(AdminError) as caught:
                await admin.brokers()
        assert caught.value.reason == "unreachable"
        assert len(broker.seen) == 1


# secrets


async def test_proxy_of_the_environment_sees_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with brokers(1) as (broker,), brokers(1) as (proxy,):
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        async with connect(broker) as admin:
            assert await admin.brokers() == [broker.id]
        assert proxy.seen == []


async def test_token_shows_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    connection = AdminConnection(seeds=("http://b:80",), token=SecretStr(TOKEN))
    texts = [repr(connection), str(connection)]

    with brokers(2) as (broker, other):

        async def echo(request: Request) -> Response:
            return JSONResponse({"reason": f"refused {request.headers['authorization']}"}, 401)

        broker.on("GET", REPORT, echo)
        broker.on("PUT", UNLOAD, Response(JETTY_401, 401))
        broker.redirect("GET", LOOKUP, "http://stranger.example/")
        other.redirect("GET", REPORT, broker.url)
        async with connect(broker) as admin:
            texts += [repr(admin), str(vars(admin))]
            for call in (
                admin.load_report(broker.id),
                admin.load_report(other.id),
                admin.load_report(closed_port()),
                admin.unload(BUNDLE, broker.id),
                admin.lookup(TOPIC),
                admin.topics("a/b"),
            ):
                with pytest.raises(AdminError) as caught:
                    await call
                texts += [str(caught.value), repr(caught.value)]
                texts += traceback.format_exception(caught.value)
        assert broker.seen[0].token == f"Bearer {TOKEN}"
    assert "refused Bearer ***" in "".join(texts)
    assert "load-report" in caplog.text
    for text in (*texts, caplog.text):
        assert TOKEN not in text
