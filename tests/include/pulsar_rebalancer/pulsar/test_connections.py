import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from tests.include.pulsar_rebalancer.pulsar.scripted_broker import BUNDLE, REPORT, brokers, connect, raw_broker, whole

from pulsar_rebalancer.errors import AdminError
from pulsar_rebalancer.pulsar import exchange

pytestmark = pytest.mark.anyio


class KeepAlive:
    """A server that answers any number of requests per connection, and counts connections."""

    def __init__(self, answer: Callable[[], bytes]) -> None:
        self.opened = self.open = self.most = 0
        self.base = ""
        self._answer = answer

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened, self.open = self.opened + 1, self.open + 1
        self.most = max(self.most, self.open)
        with contextlib.suppress(asyncio.IncompleteReadError):
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(self._answer())
        self.open -= 1
        writer.close()


@asynccontextmanager
async def keep_alive(answer: Callable[[], bytes]) -> AsyncIterator[KeepAlive]:
    found = KeepAlive(answer)
    async with await asyncio.start_server(found.serve, "127.0.0.1", 0) as server:
        found.base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield found


def ok(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


async def test_reset_get_is_sent_once_more() -> None:
    answer = b'HTTP/1.1 200 OK\r\nContent-Length: 8\r\nConnection: close\r\n\r\n["b:80"]'
    async with raw_broker(None, answer) as broker, connect(broker.url) as admin:
        assert await admin.brokers() == ["b:80"]
    assert len(broker.requests) == 2


def has_ipv6() -> bool:
    with contextlib.suppress(OSError), socket.create_server(("::1", 0), family=socket.AF_INET6):
        return True
    return False


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
async def test_a_broker_at_an_ipv6_address_is_named_in_brackets() -> None:
    answer = b'HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n["b:80"]'
    async with raw_broker(answer, host="::1") as broker, connect(broker.url) as admin:
        assert await admin.brokers() == ["b:80"]
    assert f"host: {broker.id}\r\n".encode() in broker.requests[0].lower()


async def test_reset_unload_is_not_repeated() -> None:
    async with raw_broker(None) as broker, connect(broker.url) as admin:
        with pytest.raises(AdminError) as caught:
            await admin.bundles.unload(BUNDLE, "b:1")
    assert caught.value.reason == "unreachable"
    assert "may have carried out the request" in str(caught.value)
    assert len(broker.requests) == 1


@pytest.mark.parametrize(("in_all", "at_one"), [(4, 32), (192, 4)])
async def test_concurrency_is_bounded(monkeypatch: pytest.MonkeyPatch, in_all: int, at_one: int) -> None:
    monkeypatch.setattr(exchange, "MAX_PER_ADDRESS", at_one)
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
        async with connect(broker, concurrency=in_all, address_map=dict.fromkeys(names, broker.url)) as admin:
            reports = await admin.load_reports(names, whole)
    assert reports == {name: {} for name in names}
    assert 1 < most <= 4


async def test_connections_to_the_first_seed_are_kept_whatever_others_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "MAX_IDLE_CONNECTIONS", 0)
    async with keep_alive(lambda: ok(b"[]")) as server:
        seeds = [f"{server.base}/{number}" for number in range(150)]
        addresses = {f"b{number}.pulsar:8080": seed for number, seed in enumerate(seeds)}
        async with connect(*seeds, address_map=addresses) as admin:
            for _ in range(3):
                assert await admin.brokers() == []
            assert server.opened == 1
            # A further seed is a broker as any other.
            for _ in range(3):
                await admin.load_reports(["b7.pulsar:8080"], whole)
    assert server.opened == 4
