"""Brokers on loopback for the tests of the admin client: real HTTP servers that answer what a test says."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from pydantic import SecretStr
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from pulsar_rebalancer.pulsar import AdminConnection, PulsarAdmin

TOKEN = "eyJhbGciOiJIUzI1NiJ9.c3VwZXItc2VjcmV0.0123456789abcdef"
JETTY_401 = "<html><head><title>Error 401 Unauthorized</title></head><body><h2>HTTP ERROR 401</h2></body></html>"

BUNDLE = "acme/shop/0x00000000_0x80000000"
UNLOAD = "/admin/v2/namespaces/acme/shop/0x00000000_0x80000000/unload"
LOOKUP = "/lookup/v2/topic/persistent/acme/shop/t1"
TOPIC = "persistent://acme/shop/t1"
REPORT = "/admin/v2/broker-stats/load-report"

_CLOSED: list[socket.socket] = []

Reply = Response | Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True)
class Seen:
    """A request as the server got it; `path` is still percent-encoded."""

    method: str
    path: str
    query: str
    token: str
    method_name: str
    body: bytes


@dataclass
class Broker:
    """One broker: what it answers per method and path, and what it was asked."""

    id: str
    replies: dict[tuple[str, str], Reply] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    fallback: Reply = field(default_factory=lambda: JSONResponse({"reason": "HTTP 404 Not Found"}, 404))

    @property
    def url(self) -> str:
        return f"http://{self.id}"

    @property
    def paths(self) -> list[str]:
        return [f"{seen.method} {seen.path}" for seen in self.seen]

    def on(self, method: str, path: str, reply: Reply | Any) -> None:
        is_reply = isinstance(reply, Response) or callable(reply)
        self.replies[method, path] = reply if is_reply else JSONResponse(reply)

    def redirect(self, method: str, path: str, location: str, status: int = 307) -> None:
        self.on(method, path, Response(status_code=status, headers={"Location": location}))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        path = scope["raw_path"].decode()
        header = request.headers.get
        self.seen.append(
            Seen(
                request.method,
                path,
                scope["query_string"].decode(),
                header("authorization", ""),
                header("x-pulsar-auth-method-name", ""),
                await request.body(),
            )
        )
        reply = self.replies.get((request.method, path), self.fallback)
        if not isinstance(reply, Response):
            reply = await reply(request)
        await reply(scope, receive, send)


@contextmanager
def brokers(count: int, *, host: str = "127.0.0.1", **uvicorn_options: Any) -> Iterator[list[Broker]]:
    """Brokers of one cluster that list each other, each on a free port."""
    servers, threads, found = [], [], []
    for _ in range(count):
        listener = socket.create_server(("127.0.0.1", 0))
        broker = Broker(f"{host}:{listener.getsockname()[1]}")
        config = uvicorn.Config(broker, lifespan="off", log_config=None, **uvicorn_options)
        server = uvicorn.Server(config)
        server.force_exit = True
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        servers.append(server)
        threads.append(thread)
        found.append(broker)
    for broker in found:
        broker.on("GET", "/admin/v2/brokers", [b.id for b in found])
        broker.on("GET", "/admin/v2/brokers/configuration/runtime", {"clusterName": "e2e"})
    try:
        yield found
    finally:
        for server in servers:
            server.should_exit = True
        for thread in threads:
            thread.join()


@dataclass
class RawBroker:
    """A server below HTTP: each connection gets the next of the given bytes, or a reset for None."""

    replies: list[bytes | None]
    id: str = ""
    requests: list[bytes] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://{self.id}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.requests.append(await reader.readuntil(b"\r\n\r\n"))
        reply = self.replies.pop(0)
        if reply is None:
            writer.transport.abort()
            return
        writer.write(reply)
        await writer.drain()
        writer.close()


@asynccontextmanager
async def raw_broker(*replies: bytes | None, host: str = "127.0.0.1") -> AsyncIterator[RawBroker]:
    raw = RawBroker(list(replies))
    server = await asyncio.start_server(raw._serve, host, 0)
    raw.id = f"{f'[{host}]' if ':' in host else host}:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield raw


def closed_port() -> str:
    """`host:port` on which nothing listens. Its socket stays bound, so that nobody else gets the port."""
    _CLOSED.append(held := socket.socket())
    held.bind(("127.0.0.1", 0))
    return f"127.0.0.1:{held.getsockname()[1]}"


def refused(status: int, reason: str) -> Response:
    return JSONResponse({"reason": reason}, status)


def connect(*seeds: Broker | str, **options: Any) -> PulsarAdmin:
    urls = tuple(seed if isinstance(seed, str) else seed.url for seed in seeds)
    options.setdefault("token", SecretStr(TOKEN))
    return PulsarAdmin(AdminConnection(seeds=urls, **options))


def whole(_broker: str, report: dict[str, Any]) -> dict[str, Any]:
    return report
