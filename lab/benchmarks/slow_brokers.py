"""Simulated brokers that take their time: every answer is what the simulated cluster says, some seconds later.

    python -m lab.benchmarks.slow_brokers BROKERS BUNDLES SECONDS FILE

A process of its own, so that it shares no interpreter with the client; it makes each answer once and repeats the bytes.
Writes its ports and its token to the file once it listens, and ends when its standard input does.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from contextlib import suppress
from pathlib import Path

import httpx

from pulsar_simulator.http import Auth, SimulatorApp, new_token
from pulsar_simulator.scenario import build_cluster


class Slow:
    """Answers of the simulated cluster, made once and kept.

    Args:
        ports: local ports of the brokers, in their order.
    """

    def __init__(self, ports: list[int], bundles: int) -> None:
        self.token = new_token()
        cluster = build_cluster(brokers=len(ports), bundles=bundles)
        cluster.rename_brokers([f"127.0.0.1:{port}" for port in ports])
        app = SimulatorApp(cluster, Auth(self.token))
        app.ports = {port: index for index, port in enumerate(ports)}
        bearer = {"Authorization": f"Bearer {self.token}"}
        self._client = httpx.AsyncClient(transport=httpx.ASGITransport(app), headers=bearer)
        self._kept: dict[tuple[int, bytes], bytes] = {}

    async def answer(self, port: int, target: bytes) -> bytes:
        """Return what the broker of a port answers to a request, as it goes over the wire."""
        if (port, target) not in self._kept:
            answer = await self._client.get(f"http://127.0.0.1:{port}{target.decode()}")
            kind = answer.headers.get("content-type", "text/plain").encode()
            head = b"HTTP/1.1 %d X\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n"
            self._kept[port, target] = head % (answer.status_code, kind, len(answer.content)) + answer.content
        return self._kept[port, target]


async def serve(brokers: int, bundles: int, seconds: float, file: Path) -> None:
    """Serve until standard input ends."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    loop = asyncio.get_running_loop()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer requests without a body, one behind the other."""
        port = writer.get_extra_info("sockname")[1]
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                due = loop.time() + seconds
                answer = await slow.answer(port, head.split(b" ", 2)[1])
                await asyncio.sleep(due - loop.time())
                writer.write(answer)

    servers = [await asyncio.start_server(connected, "127.0.0.1", 0, backlog=1024) for _ in range(brokers)]
    ports = [server.sockets[0].getsockname()[1] for server in servers]
    slow = Slow(ports, bundles)
    draft = file.with_suffix(".draft")
    draft.write_text(json.dumps({"ports": ports, "token": slow.token}), encoding="utf-8")
    draft.replace(file)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), Path(sys.argv[4])))
