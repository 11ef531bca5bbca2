"""Simulated brokers that take their time: every answer is what the simulated cluster says, some seconds later.

    python -m lab.benchmarks.slow_brokers BROKERS BUNDLES SECONDS FILE

A process of its own, so that it shares no interpreter with the client; it makes each answer once and repeats the bytes.
Writes its ports and its token to the file once it listens, and ends when its standard input does.
"""

from __future__ import annotations

import asyncio
import json
import resource
import socket
import sys
import threading
from pathlib import Path

import httpx

from pulsar_simulator.auth import Auth, new_token
from pulsar_simulator.http import Brokers
from pulsar_simulator.scenario import build

Answer = bytes


class Slow:
    """Answers of the simulated cluster, made once and kept.

    Args:
        brokers: number of brokers.
        bundles: total number of bundles.
        seconds: delay of each answer.
        ports: local ports of the brokers, in their order.
    """

    def __init__(self, brokers: int, bundles: int, seconds: float, ports: list[int]) -> None:
        self.seconds = seconds
        self.token = new_token()
        cluster = build(brokers=brokers, bundles=bundles)
        cluster.rename([f"127.0.0.1:{port}" for port in ports])
        app = Brokers(cluster, Auth(self.token))
        app.ports = {port: index for index, port in enumerate(ports)}
        bearer = {"Authorization": f"Bearer {self.token}"}
        self._client = httpx.AsyncClient(transport=httpx.ASGITransport(app), headers=bearer)
        self._kept: dict[tuple[int, bytes], Answer] = {}

    async def answer(self, port: int, head: bytes) -> Answer:
        """Return what the broker of a port answers to the head of a request, as it goes over the wire."""
        target = head.split(b" ", 2)[1]
        if (port, target) not in self._kept:
            self._kept[port, target] = await self._made(port, target)
        return self._kept[port, target]

    async def _made(self, port: int, target: bytes) -> Answer:
        answer = await self._client.get(f"http://127.0.0.1:{port}{target.decode()}")
        kind = answer.headers.get("content-type", "text/plain").encode()
        head = b"HTTP/1.1 %d X\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n"
        return head % (answer.status_code, kind, len(answer.content)) + answer.content


class Connection(asyncio.Protocol):
    """One connection; requests without a body, one behind the other."""

    def __init__(self, brokers: Slow) -> None:
        self._brokers = brokers
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the connection that requests come from."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._port = transport.get_extra_info("sockname")[1]

    def data_received(self, data: bytes) -> None:
        """Answer every whole request, some seconds from now."""
        *heads, self._received = (self._received + data).split(b"\r\n\r\n")
        for head in heads:
            self._answering = asyncio.create_task(self._answer(head))

    async def _answer(self, head: bytes) -> None:
        due = asyncio.get_running_loop().time() + self._brokers.seconds
        answer = await self._brokers.answer(self._port, head)
        await asyncio.sleep(due - asyncio.get_running_loop().time())
        if not self._transport.is_closing():
            self._transport.write(answer)


async def serve(brokers: int, bundles: int, seconds: float, file: Path) -> None:
    """Serve until standard input ends."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    loop = asyncio.get_running_loop()
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) for _ in range(brokers)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    slow = Slow(brokers, bundles, seconds, ports)
    for each in sockets:
        await loop.create_server(lambda: Connection(slow), sock=each, backlog=1024)
    ended = asyncio.Event()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    draft = file.with_suffix(".draft")
    draft.write_text(json.dumps({"ports": ports, "token": slow.token}), encoding="utf-8")
    draft.replace(file)
    await ended.wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), Path(sys.argv[4])))
