"""Serve the brokers' REST API in one process with one event loop and one socket per broker."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from pulsar_simulator.cluster import Cluster
from pulsar_simulator.http import Auth, SimulatorApp, new_token

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # close() sends a reset
_START_TIMEOUT_S = 60.0


class BrokerServer(uvicorn.Server):
    """A Uvicorn server with one socket per broker. Sockets are closed and opened as brokers die and start.

    Args:
        cluster: the cluster to serve. Its brokerIds are replaced with the addresses of the sockets.
        port: first of the consecutive ports; 0 for any free ports.
        host: address on which brokers listen; the brokerIds contain this address.
        ssl_certfile: PEM file with the certificate; if given, the brokers use https.
        ssl_keyfile: PEM file with the certificate's key.
        on_ready: function that is called when all brokers answer.

    Raises:
        OSError: a port is in use.
        OverflowError: a port would exceed 65535.
    """

    def __init__(
        self,
        cluster: Cluster,
        auth: Auth,
        *,
        port: int = 0,
        host: str = "127.0.0.1",
        ssl_certfile: Path | None = None,
        ssl_keyfile: Path | None = None,
        on_ready: Callable[[], None] = lambda: None,
    ) -> None:
        self.app = SimulatorApp(cluster, auth)
        super().__init__(
            uvicorn.Config(
                self.app,
                loop="asyncio",
                lifespan="off",
                ws="none",
                access_log=False,
                log_level="warning",
                timeout_graceful_shutdown=2,
                ssl_certfile=ssl_certfile,
                ssl_keyfile=ssl_keyfile,
            )
        )
        self._cluster = cluster
        self._host = host
        self._on_ready = on_ready
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self.sockets = _bind_all(host, port, len(cluster.membership.brokers))
        self._ports = [sock.getsockname()[1] for sock in self.sockets]
        cluster.rename_brokers([f"{host}:{number}" for number in self._ports])
        scheme = "https" if cluster.spec.uses_tls else "http"
        self.urls = [f"{scheme}://{host}:{number}" for number in self._ports]
        self.app.ports = {number: i for i, number in enumerate(self._ports)}
        self.app.reset = self._reset_connection

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Open all sockets. Afterwards they are closed and opened as brokers die and start."""
        await super().startup(sockets)
        self._loop = asyncio.get_running_loop()
        self._cluster.reachability.changed = self._apply_reachability
        await self._open_and_close_sockets()
        self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close all sockets and connections, including connections that a fault keeps open."""
        self._cluster.reachability.changed = lambda: None
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await super().shutdown(sockets)

    def _apply_reachability(self) -> None:
        """Open the sockets of live brokers, and close the sockets of dead brokers.

        If called outside the event loop, wait until this is done.
        """
        loop = self._loop
        if loop is None or not loop.is_running():
            return
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is loop:
            task = loop.create_task(self._open_and_close_sockets())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            asyncio.run_coroutine_threadsafe(self._open_and_close_sockets(), loop).result(_START_TIMEOUT_S)

    async def _open_and_close_sockets(self) -> None:
        async with self._opening:
            for i, port in enumerate(self._ports):
                accepts, listens = self._cluster.reachability.accepts_connections(i), self.servers[i].is_serving()
                if accepts and not listens:
                    await self._open_socket(i)
                elif listens and not accepts:
                    self.servers[i].close()
                    for connection in self._connections(port):
                        connection.abort()

    async def _open_socket(self, index: int) -> None:
        servers = self.servers
        self.sockets[index] = _bind(self._host, self._ports[index])
        await super().startup([self.sockets[index]])
        servers[index] = self.servers[0]
        self.servers = servers

    def _reset_connection(self, client_port: int, broker_port: int) -> None:
        for transport in self._connections(broker_port, client_port):
            sock = transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            transport.abort()

    def _connections(self, broker_port: int, client_port: int | None = None) -> list[Any]:
        transports = [connection.transport for connection in self.server_state.connections]
        return [
            transport
            for transport in transports
            if transport.get_extra_info("sockname")[1] == broker_port
            and client_port in (None, transport.get_extra_info("peername")[1])
        ]


def _bind_all(host: str, port: int, count: int) -> list[socket.socket]:
    with contextlib.ExitStack() as bound:
        sockets = [bound.enter_context(_bind(host, port + i if port else 0)) for i in range(count)]
        bound.pop_all()  # all or none
    return sockets


def _bind(host: str, port: int) -> socket.socket:
    # asyncio switches Nagle's algorithm off only if the protocol is named; with it, every answer takes 40 ms.
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except (OSError, OverflowError):
        sock.close()
        raise
    return sock


@dataclass(frozen=True, slots=True, repr=False)
class RunningCluster:
    """A cluster that is being served.

    Attributes:
        cluster: the simulated cluster.
        urls: base URL of every broker, in the cluster's order.
        token: the superuser's token.
        user_token: token of a user with few permissions.
    """

    cluster: Cluster
    urls: list[str]
    token: str
    user_token: str

    @property
    def headers(self) -> dict[str, str]:
        """Return the HTTP headers for requests as the superuser."""
        return {"Authorization": f"Bearer {self.token}"}


@contextlib.contextmanager
def serve(
    cluster: Cluster, *, ssl_certfile: Path | None = None, ssl_keyfile: Path | None = None
) -> Iterator[RunningCluster]:
    """Serve a cluster on free loopback ports from a thread of this process, for tests.

    Args:
        cluster: the cluster to serve. Its brokerIds are replaced with the addresses of the sockets.
        ssl_certfile: PEM file with the certificate. The cluster's `tls` must be true.
        ssl_keyfile: PEM file with the certificate's key.

    Raises:
        RuntimeError: the server did not start.
    """
    auth = Auth(new_token(), new_token())
    ready = threading.Event()
    server = BrokerServer(cluster, auth, ssl_certfile=ssl_certfile, ssl_keyfile=ssl_keyfile, on_ready=ready.set)
    thread = threading.Thread(target=server.run, args=(server.sockets,), name="simulated brokers", daemon=True)
    thread.start()
    try:
        if not ready.wait(_START_TIMEOUT_S):
            raise RuntimeError("the simulated brokers did not start")
        yield RunningCluster(cluster, server.urls, auth.token, auth.user_token)
    finally:
        server.should_exit = True
        thread.join()
