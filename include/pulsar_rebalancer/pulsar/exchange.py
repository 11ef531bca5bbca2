"""Send a request to one broker and read its response, with limits on time, concurrency and size."""

from __future__ import annotations

import asyncio
import logging
import resource
import ssl
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any
from urllib.parse import quote, urlsplit

import httpcore

from pulsar_rebalancer.errors import AdminError
from pulsar_rebalancer.pulsar.answers import TokenMask, failure, first_line
from pulsar_rebalancer.pulsar.connection import AdminConnection, address_in
from pulsar_rebalancer.reasons import Reason

logging.getLogger("httpcore").setLevel(logging.INFO)  # below that level it logs headers, which may hold a token

MAX_ERROR_BYTES = 64 * 1024
"""An error body is only quoted in a message."""
TOPIC_NAMES = 4
"""Factor for `max_answer_bytes`: 32 MiB hold some 300,000 topic names in a namespace."""
TOPIC_STATS = 32
"""Factor for `max_answer_bytes`: 256 MiB hold statistics for some 100,000 topics on a broker."""
_SHORT_BYTES = 1024 * 1024
"""Maximum size of responses that are read all at once; Pulsar's default limit for a load report."""
_LONG_AT_ONCE = 8
"""Maximum number of longer responses read concurrently, so that these do not exhaust memory."""
OF_ONE_BROKER = 32
"""Maximum concurrent requests per address: a thousand namespaces can all ask one broker."""
MOST_KEPT = max(384, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)
"""Maximum number of idle connections, except to the first seed; 1,024 open files are often the limit."""
_KEPT_SECONDS = 15
"""Maximum seconds that a reused connection may be idle; brokers close it after 30 s."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request to a broker.

    Attributes:
        path: absolute path, percent-encoded.
        query: encoded query, without the question mark.
        timeout_s: maximum seconds for one hop.
        follow: True to follow redirects; otherwise a redirect raises `bad_answer`.
        on_412: reason code for a response with status 412.
        size: factor for `max_answer_bytes`.
        body: JSON to send; a GET has none.
        chosen: brokerId to which authoritative redirects are sent instead; empty to follow them unchanged.
    """

    method: str
    path: str
    query: str
    timeout_s: float
    follow: bool = True
    on_412: Reason = Reason.RANGE_GONE
    size: int = 1
    body: bytes = b""
    chosen: str = ""

    @property
    def what(self) -> str:
        return f"{self.method} {self.path}"


@dataclass(frozen=True, slots=True)
class Place:
    base: str
    query: str
    broker: str

    def url(self, request: Request) -> str:
        return f"{self.base}{request.path}" + (f"?{self.query}" if self.query else "")


class NotSentError(Exception):
    """No connection could be made, so the broker did not receive the request. `reason` is a reason code."""

    def __init__(self, error: BaseException) -> None:
        while error.__cause__ is not None:  # httpcore and anyio wrap the system's error
            error = error.__cause__
        super().__init__(first_line(str(error)) or type(error).__name__)
        refused = isinstance(error, ssl.SSLCertVerificationError)
        self.reason = Reason.CERTIFICATE_REFUSED if refused else Reason.UNREACHABLE


class _BrokenError(Exception):
    """The connection broke before the response was complete; the broker may have received the request."""


def _url(text: str) -> httpcore.URL:
    """Parse a URL, and percent-encode it where necessary, because redirects can be unencoded."""
    return httpcore.URL(quote(text, safe="/?:@!$&'()*+,;=-._~%[]"))


def _can_be_used_again(connection: httpcore.AsyncHTTPConnection) -> bool:
    """Return False if bytes follow the last response: they would be read as the next response."""
    if not connection.is_idle() or connection.has_expired():
        return False
    http11: Any = connection._connection
    return not http11._h11_state.trailing_data[0]


class Exchange:
    """Sends requests with credentials; callers make sure that the address belongs to the cluster."""

    def __init__(self, connection: AdminConnection, mask: TokenMask) -> None:
        self._connection = connection
        # Redirects, the environment's proxies and .netrc are ignored: none of them may see or add credentials.
        headers = {"User-Agent": "pulsar-rebalancer", "Accept": "application/json, */*;q=0.5"}
        # Compressed answers could be larger than their limit.
        headers["Accept-Encoding"] = "identity"
        self._headers = headers
        self.mask = mask
        self._ssl = connection.ssl_context()
        self._idle: dict[str, list[httpcore.AsyncHTTPConnection]] = {}
        self._kept = 0
        self._slots = asyncio.Semaphore(connection.concurrency)
        self._slots_of: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(OF_ONE_BROKER))
        self._long_slots = asyncio.Semaphore(_LONG_AT_ONCE)

    async def close(self) -> None:
        for connection in chain.from_iterable(self._idle.values()):
            await connection.aclose()

    def failure(
        self,
        request: Request,
        broker: str,
        reason: Reason,
        detail: str,
        status: int | None = None,
        *,
        sent: bool = True,
    ) -> AdminError:
        return failure(self.mask, reason, request.what, broker, detail, status, sent=sent)

    def most_bytes(self, request: Request) -> int:
        return self._connection.max_answer_bytes * request.size

    async def ask(self, request: Request, place: Place, token: str) -> tuple[int, str, bytes, bool]:
        """Send a request and read the response; a GET is retried once if the connection breaks.

        Returns:
            HTTP status, the location of a redirect, the body, and True if the body was cut off.

        Raises:
            NotSentError: no connection could be made.
            AdminError: `timeout`, `unreachable` or `bad_answer`.
        """
        try:
            return await self._once(request, place, token)
        except _BrokenError as error:
            if request.method != "GET":
                raise self._broken(request, place, error) from None
        try:
            return await self._once(request, place, token)
        except _BrokenError as error:
            raise self._broken(request, place, error) from None

    def _broken(self, request: Request, place: Place, error: Exception) -> AdminError:
        detail = f"the connection broke before an answer ({error})"
        if request.method != "GET":
            detail += "; the broker may have carried it out"
        return self.failure(request, place.broker, Reason.UNREACHABLE, detail)

    async def _once(self, request: Request, place: Place, token: str) -> tuple[int, str, bytes, bool]:
        if not address_in(place.base):  # made from a template and a broker's name
            detail = f"{first_line(place.base)} is not an address: check the connection's address_template"
            raise self.failure(request, place.broker, Reason.BAD_ANSWER, detail)
        limit = self._connection.connect_timeout_s + request.timeout_s
        try:
            # The time spent waiting for a slot does not count.
            async with self._slots_of[place.base], self._slots, asyncio.timeout(limit) as deadline:
                return await self._stream(request, place, token, deadline)
        except TimeoutError:
            detail = f"no complete answer within {request.timeout_s:g} s"
            raise self.failure(request, place.broker, Reason.TIMEOUT, detail) from None
        except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
            raise NotSentError(error) from error
        except httpcore.NetworkError as error:
            raise _BrokenError(str(error)) from None
        except (httpcore.ProtocolError, UnicodeError) as error:
            if isinstance(error, httpcore.RemoteProtocolError) and error.__cause__ is None:  # h11 has no complaint
                raise _BrokenError("closed without an answer") from None
            detail = f"the answer is not complete HTTP ({first_line(self.mask.text(str(error)))})"
            raise self.failure(request, place.broker, Reason.BAD_ANSWER, detail) from None

    @asynccontextmanager
    async def _connected(self, base: str) -> AsyncIterator[httpcore.AsyncHTTPConnection]:
        """Yield a connection from the broker's own pool, because a shared pool would be slow to search."""
        idle = self._idle.setdefault(base, [])
        while idle:
            self._kept -= 1
            connection = idle.pop()
            if _can_be_used_again(connection):
                break
            await connection.aclose()
        else:
            origin = _url(base).origin
            connection = httpcore.AsyncHTTPConnection(origin, self._ssl, keepalive_expiry=_KEPT_SECONDS)
        try:
            yield connection
        finally:
            room = self._kept < MOST_KEPT or base == self._connection.seeds[0]
            if room and _can_be_used_again(connection):
                self._kept += 1
                idle.append(connection)
            else:
                await connection.aclose()

    async def _stream(
        self, request: Request, place: Place, token: str, deadline: asyncio.Timeout
    ) -> tuple[int, str, bytes, bool]:
        reads, url = request.method == "GET", _url(place.url(request))
        headers = [("Host", urlsplit(place.base).netloc), *self._headers.items()]
        if token:
            # Brokers with strictAuthMethod=true require the method.
            headers += [("Authorization", f"Bearer {token}"), ("X-Pulsar-Auth-Method-Name", "token")]
        if not reads:
            headers.append(("Content-Type", "application/json"))
        async with (
            self._connected(place.base) as connection,
            connection.stream(
                request.method,
                url,
                headers=headers,
                content=None if reads else request.body,
                extensions={"timeout": {"connect": self._connection.connect_timeout_s}},
            ) as response,
        ):
            most = self.most_bytes(request) if 200 <= response.status < 300 else MAX_ERROR_BYTES
            content, cut = await self._read(response, most, deadline)
        location = next((value for name, value in response.headers if name.lower() == b"location"), b"")
        return response.status, self.mask.body(location).decode(errors="replace"), self.mask.body(content), cut

    async def _read(self, response: httpcore.Response, most: int, deadline: asyncio.Timeout) -> tuple[bytes, bool]:
        """Read a body; waiting for other long bodies (`_LONG_AT_ONCE`) does not count as time."""
        chunks: list[bytes] = []
        size = 0
        async with AsyncExitStack() as turn:
            async for chunk in response.aiter_stream():
                if size <= _SHORT_BYTES < size + len(chunk):
                    left = (deadline.when() or 0.0) - asyncio.get_running_loop().time()
                    deadline.reschedule(None)
                    await turn.enter_async_context(self._long_slots)
                    deadline.reschedule(asyncio.get_running_loop().time() + left)
                chunks.append(chunk)
                size += len(chunk)
                if size > most:
                    break
        return b"".join(chunks)[:most], size > most
