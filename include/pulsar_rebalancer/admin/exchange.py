"""Exchange a request and its answer with one broker: bounded in time, number and size."""

from __future__ import annotations

import asyncio
import logging
import resource
import ssl
from collections import defaultdict
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import httpcore

from pulsar_rebalancer.admin.answers import failure, first_line
from pulsar_rebalancer.admin.connection import address_in
from pulsar_rebalancer.admin.token_mask import TokenMask
from pulsar_rebalancer.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pulsar_rebalancer.admin.connection import AdminConnection
    from pulsar_rebalancer.errors import AdminError

logging.getLogger("httpcore").setLevel(logging.INFO)  # below, it writes headers, which may hold a token

MAX_ERROR_BYTES = 64 * 1024
"""Of an error's body no more is read: it is only quoted."""
TOPIC_NAMES = 4
"""How many times as long as others an answer with names of topics may be: 32 MiB are some 300,000 of a namespace."""
TOPIC_STATS = 32
"""The same for statistics of single topics: 256 MiB are some 100,000 of a broker."""
_SHORT_BYTES = 1024 * 1024
"""Up to here all answers under way are read side by side: Pulsar's metadata store holds no longer report by itself."""
_LONG_AT_ONCE = 8
"""Of longer answers so many are read on at once: brokers that send too much must not fill the memory together."""
OF_ONE_BROKER = 32
"""Of all requests under way so many may be at one address: a cluster's thousand namespaces are asked of one broker."""
MOST_KEPT = max(384, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)
"""Connections that are kept for the next request, beside those to the first seed, which is asked most: a process often
may open no more than 1,024 files."""
_KEPT_SECONDS = 15
"""A connection is kept from one round of questions to the next; brokers close one that is idle for 30 s."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request.

    Attributes:
        method: GET, PUT, POST or DELETE.
        path: absolute, percent-encoded.
        query: encoded, without the question mark.
        timeout_s: seconds for one hop.
        follow: whether redirects are followed; otherwise they are a `bad_answer`.
        on_412: reason code of an answer 412.
        size: how many times as long as `max_answer_bytes` the answer may be.
        body: what is sent with it, JSON; nothing with a GET.
        chosen: brokerId that an authoritative redirect goes to, whatever broker it names; empty: the one named.
    """

    method: str
    path: str
    query: str
    timeout_s: float
    follow: bool = True
    on_412: Reason = Reason.BAD_RANGE
    size: int = 1
    body: bytes = b""
    chosen: str = ""

    @property
    def what(self) -> str:
        """Return the method and path, for messages."""
        return f"{self.method} {self.path}"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a hop goes: the base URL, the query there, and the name of the broker for messages."""

    base: str
    query: str
    broker: str

    def url(self, request: Request) -> str:
        """Return the URL of the request there."""
        return f"{self.base}{request.path}" + (f"?{self.query}" if self.query else "")


class NotSentError(Exception):
    """No connection: the broker has seen nothing of the request; `reason` is a reason code."""

    def __init__(self, error: BaseException) -> None:
        while error.__cause__ is not None:  # httpcore and anyio wrap what the system said
            error = error.__cause__
        super().__init__(first_line(str(error)) or type(error).__name__)
        refused = isinstance(error, ssl.SSLCertVerificationError)
        self.reason = Reason.CERTIFICATE_REFUSED if refused else Reason.UNREACHABLE


class _BrokenError(Exception):
    """The connection broke before a whole answer came: the broker may have seen the request."""


def _url(text: str) -> httpcore.URL:
    """Return a URL; a redirect may hold what no request line may."""
    return httpcore.URL(quote(text, safe="/?:@!$&'()*+,;=-._~%[]"))


def _can_be_used_again(connection: httpcore.AsyncHTTPConnection) -> bool:
    """Return whether the last answer ended well, and nothing follows it that httpcore would take for the next one."""
    if not connection.is_idle() or connection.has_expired():
        return False
    http11: Any = connection._connection
    return not http11._h11_state.trailing_data[0]


class Exchange:
    """Sends requests with the credentials of a connection to whatever address it is told.

    Args:
        connection: how the brokers are reached.

    Raises:
        SettingsError: a certificate file of the connection cannot be used.
    """

    def __init__(self, connection: AdminConnection) -> None:
        self._connection = connection
        # Redirects, proxies and a .netrc of the environment are unknown here: none may see or add credentials.
        headers = {"User-Agent": "pulsar-rebalancer", "Accept": "application/json, */*;q=0.5"}
        # Sizes are bounded as they come: nothing is unpacked.
        headers["Accept-Encoding"] = "identity"
        if connection.token is not None:
            headers["Authorization"] = f"Bearer {connection.token.get_secret_value()}"
            # Brokers with strictAuthMethod=true want the method named.
            headers["X-Pulsar-Auth-Method-Name"] = "token"
        self._headers = headers
        self.mask = TokenMask(connection.token)
        self._ssl = connection.ssl_context()
        self._idle: dict[str, list[httpcore.AsyncHTTPConnection]] = {}
        self._kept = 0
        self._slots = asyncio.Semaphore(connection.concurrency)
        self._slots_of: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(OF_ONE_BROKER))
        self._long_slots = asyncio.Semaphore(_LONG_AT_ONCE)

    async def close(self) -> None:
        """Close the connections that were kept."""
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
        """Return the error of a request (`answers.failure`)."""
        return failure(self.mask, reason, request.what, broker, detail, status, sent=sent)

    def most_bytes(self, request: Request) -> int:
        """Return how long the answer may be."""
        return self._connection.max_answer_bytes * request.size

    async def ask(self, request: Request, place: Place) -> tuple[int, str, bytes, bool]:
        """Send a request and read its answer; a GET whose connection was reset is sent once more.

        Returns:
            Status, where a redirect leads, body, and whether the body is only the beginning of a longer one.

        Raises:
            NotSentError: no connection.
            AdminError: `timeout`, `unreachable` or `bad_answer`.
        """
        try:
            return await self._once(request, place)
        except _BrokenError as error:
            if request.method != "GET":
                raise self._broken(request, place, error) from None
        try:
            return await self._once(request, place)
        except _BrokenError as error:
            raise self._broken(request, place, error) from None

    def _broken(self, request: Request, place: Place, error: Exception) -> AdminError:
        detail = f"the connection broke before an answer ({error})"
        if request.method != "GET":
            detail += "; the broker may have carried it out"
        return self.failure(request, place.broker, Reason.UNREACHABLE, detail)

    async def _once(self, request: Request, place: Place) -> tuple[int, str, bytes, bool]:
        if not address_in(place.base):  # a template made it of a broker's name
            detail = f"{first_line(place.base)} is no address: check the connection's address_template"
            raise self.failure(request, place.broker, Reason.BAD_ANSWER, detail)
        limit = self._connection.connect_timeout_s + request.timeout_s
        try:
            # The slot is awaited before the clock starts.
            async with self._slots_of[place.base], self._slots, asyncio.timeout(limit) as deadline:
                return await self._stream(request, place, deadline)
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
            detail = f"the answer is no complete HTTP ({first_line(self.mask.text(str(error)))})"
            raise self.failure(request, place.broker, Reason.BAD_ANSWER, detail) from None

    @asynccontextmanager
    async def _connected(self, base: str) -> AsyncIterator[httpcore.AsyncHTTPConnection]:
        """Yield a connection to one broker for one request at a time.

        A pool that requests share would look through all of its connections for each of them.
        """
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

    async def _stream(self, request: Request, place: Place, deadline: asyncio.Timeout) -> tuple[int, str, bytes, bool]:
        reads, url = request.method == "GET", _url(place.url(request))
        headers = [("Host", urlsplit(place.base).netloc), *self._headers.items()]
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
            found, cut = await self._read(response, most, deadline)
        location = next((value for name, value in response.headers if name.lower() == b"location"), b"")
        return response.status, self.mask.body(location).decode(errors="replace"), self.mask.body(found), cut

    async def _read(self, response: httpcore.Response, most: int, deadline: asyncio.Timeout) -> tuple[bytes, bool]:
        """Read a body; the wait for a turn to read on a long one does not count towards the deadline."""
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
