import asyncio
import tracemalloc
from collections.abc import AsyncIterator

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from tests.include.pulsar_rebalancer.pulsar.scripted_broker import (
    BUNDLE,
    JETTY_401,
    REPORT,
    UNLOAD,
    brokers,
    connect,
    raw_broker,
    whole,
)

from pulsar_rebalancer.errors import AdminError

pytestmark = pytest.mark.anyio

MIB = 1024 * 1024


STACK = (
    "\n --- An unexpected error occurred in the server ---\n\nMessage: {}\n\nStacktrace:\n\n"
    "java.lang.UnsupportedOperationException: not here\n\tat org.apache.pulsar.broker.Some.thing(Some.java:1)\n"
)
REFUSALS = {
    "no valid token: Jetty's page": (401, JETTY_401, "unauthorized", "valid super-user token"),
    "no super-user": (401, {"reason": "This operation requires super-user access"}, "forbidden", "super-user"),
    "forbidden": (403, {"reason": "Don't have admin permission"}, "forbidden", "admin permission"),
    "unknown": (404, {"reason": "Namespace not found"}, "not_found", "Namespace not found"),
    "destination": (409, {"reason": "inactive destination broker"}, "destination_gone", "inactive destination"),
    "stale range": (412, {"reason": "Invalid upper boundary for bundle"}, "range_gone", "upper boundary"),
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
                await admin.bundles.unload(BUNDLE, "b:1")
    error = caught.value
    assert (error.reason, error.status, error.broker) == (reason, status, broker.id)
    assert said in str(error)
    assert f"PUT {UNLOAD} at {broker.id}" in str(error)
    assert "\n" not in str(error)


async def test_a_conflict_of_another_request_is_not_about_a_destination() -> None:
    with brokers(1) as (broker,):
        broker.on("GET", "/admin/v2/brokers", JSONResponse({"reason": "Conflict"}, 409))
        async with connect(broker) as admin:
            with pytest.raises(AdminError) as caught:
                await admin.brokers()
    assert (caught.value.reason, caught.value.status) == ("bad_answer", 409)


async def test_reason_is_one_clean_line_of_bounded_length() -> None:
    with brokers(1) as (broker,):
        text = "\x1b[31mred\x00\u202e" + "x" * 1000 + "\nsecond line"
        broker.on("PUT", UNLOAD, JSONResponse({"reason": text}, 500))
        async with connect(broker) as admin:
            with pytest.raises(AdminError) as caught:
                await admin.bundles.unload(BUNDLE, "b:1")
    assert not set("\x1b\x00\u202e\n") & set(str(caught.value))
    assert "second line" not in str(caught.value)
    assert 190 <= str(caught.value).count("x") <= 200


async def test_read_only_sends_nothing_but_gets() -> None:
    with brokers(1) as (broker,):
        async with connect(broker, read_only=True) as admin:
            with pytest.raises(AdminError) as caught:
                await admin.bundles.unload(BUNDLE, broker.id)
            assert caught.value.reason == "read_only"
            assert broker.seen == []
            assert await admin.brokers() == [broker.id]


# broken answers


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
        '["b:99999"]',
        '["[:::]:80"]',
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


async def test_a_template_that_makes_no_address_is_a_bad_answer() -> None:
    with brokers(1) as (broker,):
        broker.on("GET", "/admin/v2/brokers", ["b:65000"])
        async with connect(broker, address_template="http://127.0.0.1:3{port}") as admin:
            assert await admin.brokers() == ["b:65000"]
            with pytest.raises(AdminError) as caught:
                await admin.load_report("b:65000")
    assert caught.value.reason == "bad_answer"


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
            reports = await admin.load_reports(names, whole)  # 2 s in all, more than one request may take
    assert reports == {name: {} for name in names}
