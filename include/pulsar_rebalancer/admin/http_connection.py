"""One HTTP/1.1 connection to one address: h11 knows the protocol, asyncio moves the bytes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, quote, urlsplit

import h11

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Sequence

_MOST_WAITING = 128 * 1024
"""Bytes that came and were not asked for yet; with more than these no further ones are read from the network."""
_LONGEST_HEAD = 100 * 1024
_NEXT_ADDRESS_SECONDS = 0.25
"""A host of several addresses: the next one is tried beside the first after so long (RFC 8305)."""


class ConnectionBrokenError(Exception):
    """The connection broke before a whole answer came: the broker may have seen the request."""


class _Wire(asyncio.Protocol):
    """The bytes that came, in their order."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self._came = bytearray()
        self._ended = False
        self._error: Exception | None = None
        self._awaited: asyncio.Future[None] | None = None

    @property
    def silent(self) -> bool:
        """Return whether the other side has neither closed the connection nor said anything."""
        return not self._ended and not self._came

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._came += data
        if len(self._came) > _MOST_WAITING:
            self.transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        self._ended = True
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        self._ended, self._error = True, error
        self._wake()

    def _wake(self) -> None:
        if self._awaited is not None and not self._awaited.done():
            self._awaited.set_result(None)

    async def read(self) -> bytes:
        """Return what came since; empty at the end.

        Raises:
            ConnectionBrokenError: the connection was reset.
        """
        if self.silent:
            self._awaited = asyncio.get_running_loop().create_future()
            await self._awaited
        if self._error is not None and not self._came:
            raise ConnectionBrokenError(str(self._error) or type(self._error).__name__)
        found = bytes(self._came)
        self._came.clear()
        if not self._ended:
            self.transport.resume_reading()
        return found


class HttpConnection:
    """A connection that one request at a time uses."""

    def __init__(self, wire: _Wire) -> None:
        self._wire = wire
        self._state = h11.Connection(h11.CLIENT, max_incomplete_event_size=_LONGEST_HEAD)
        self._used_at = 0.0

    @classmethod
    async def open(cls, url: str, tls: ssl.SSLContext, timeout_s: float) -> HttpConnection:
        """Connect to the host of a URL.

        Raises:
            OSError: no connection within the seconds, or TLS refuses it.
            UnicodeError: the host is no host name.
        """
        parts = urlsplit(url)
        secured = parts.scheme == "https"
        try:
            async with asyncio.timeout(timeout_s):
                _, wire = await asyncio.get_running_loop().create_connection(
                    _Wire,
                    _host(parts),
                    parts.port or (443 if secured else 80),
                    ssl=tls if secured else None,
                    happy_eyeballs_delay=_NEXT_ADDRESS_SECONDS,
                )
        except TimeoutError:
            raise TimeoutError(f"none within {timeout_s:g} s") from None
        return cls(wire)

    def close(self) -> None:
        """Close it; nothing that was sent is waited for."""
        self._wire.transport.abort()

    def can_be_used_again(self, within_s: float) -> bool:
        """Return whether the last answer ended well, so many seconds ago at most, and nothing came since."""
        return (
            self._state.our_state is h11.IDLE
            and self._wire.silent
            and asyncio.get_running_loop().time() - self._used_at < within_s
        )

    async def send(self, method: str, url: str, headers: Sequence[tuple[str, str]], body: bytes | None) -> h11.Response:
        """Send a request and return the head of its answer, in which names of headers are in lower case.

        Raises:
            ConnectionBrokenError: it broke before an answer.
            h11.ProtocolError: the answer is no HTTP.
        """
        parts = urlsplit(url)
        own = [("Host", _authority(parts))] + ([] if body is None else [("Content-Length", str(len(body)))])
        request = h11.Request(method=method, target=_target(parts), headers=[*own, *headers])
        sent = self._state.send(request) or b""
        if body:
            sent += self._state.send(h11.Data(data=body)) or b""
        self._state.send(h11.EndOfMessage())
        self._wire.transport.write(sent)
        while True:
            event = await self._event()
            if isinstance(event, h11.Response):
                return event

    async def body(self) -> AsyncIterator[bytes]:
        """Yield the body of the answer as it comes.

        Raises:
            ConnectionBrokenError: it broke.
            h11.ProtocolError: the body ends too early, or is no HTTP.
        """
        while not isinstance(event := await self._event(), h11.EndOfMessage):
            if isinstance(event, h11.Data):
                yield bytes(event.data)
        more, _ = (
            self._state.trailing_data
        )  # nobody asked for more, and the next request must not take it for its answer
        if self._state.our_state is self._state.their_state is h11.DONE and not more:
            self._state.start_next_cycle()
            self._used_at = asyncio.get_running_loop().time()

    async def _event(self) -> object:
        while True:
            event = self._state.next_event()
            if event is not h11.NEED_DATA:
                return event
            data = await self._wire.read()
            if not data and self._state.their_state is h11.SEND_RESPONSE:
                raise ConnectionBrokenError("closed without an answer")
            self._state.receive_data(data)


def _host(parts: SplitResult) -> str:
    return (parts.hostname or "").encode("idna").decode()


def _authority(parts: SplitResult) -> str:
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else _host(parts)
    return f"{host}:{parts.port}" if parts.port else host


def _target(parts: SplitResult) -> str:
    """Return path and query as they stand in a request line."""
    target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    # A redirect may hold what no request line may.
    return quote(target, safe="/?:@!$&'()*+,;=-._~%[]")
