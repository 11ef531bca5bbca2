"""Send requests to the brokers of one cluster: bounded in time, number and size, redirects followed by hand."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import defaultdict
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Self
from urllib.parse import unquote, urlencode, urljoin, urlsplit

import httpx

from pulsar_rebalancer.admin.answers import BrokerAnswer, failure, first_line
from pulsar_rebalancer.admin.connection import address_in, address_of
from pulsar_rebalancer.admin.known_addresses import KnownAddresses
from pulsar_rebalancer.admin.token_mask import TokenMask
from pulsar_rebalancer.errors import AdminError
from pulsar_rebalancer.names import is_broker_id
from pulsar_rebalancer.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from pulsar_rebalancer.admin.connection import AdminConnection

_log = logging.getLogger(__name__)

MAX_HOPS = 5
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
MOST_KEPT = 384
"""Connections that are kept for the next request, beside those to seeds, which are asked most: a process often may open
no more than 1,024 files."""
_LIMITS = httpx.Limits(max_connections=1, keepalive_expiry=15)
"""A connection is kept from one round of questions to the next; brokers close one that is idle for 30 s."""
_REDIRECTS = (301, 302, 307, 308)


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
    """

    method: str
    path: str
    query: str
    timeout_s: float
    follow: bool = True
    on_412: Reason = Reason.BAD_RANGE
    size: int = 1
    body: bytes = b""

    @property
    def what(self) -> str:
        """Return the method and path, for messages."""
        return f"{self.method} {self.path}"


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a hop goes: the base URL, the query there, and the name of the broker for messages."""

    base: str
    query: str
    broker: str

    def url(self, request: Request) -> str:
        return f"{self.base}{request.path}" + (f"?{self.query}" if self.query else "")


class _NotSentError(Exception):
    """No connection: the broker has seen nothing of the request; `reason` is a reason code."""

    def __init__(self, error: httpx.TransportError) -> None:
        super().__init__(first_line(str(error)) or type(error).__name__)
        self.reason = Reason.CERTIFICATE_REFUSED if _is_about_a_certificate(error) else Reason.UNREACHABLE


def _is_about_a_certificate(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error is not None


class _ResetError(Exception):
    """The connection broke before an answer: the broker may have seen the request."""


class Transport:
    """Sends requests with the credentials of a connection, to brokers of its cluster only.

    Args:
        connection: how the brokers are reached.

    Raises:
        SettingsError: a certificate file of the connection cannot be used.
    """

    def __init__(self, connection: AdminConnection) -> None:
        self.connection = connection
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
        self._idle: dict[str, list[httpx.AsyncClient]] = {}
        self._kept = 0
        self._slots = asyncio.Semaphore(connection.concurrency)
        self._slots_of: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(OF_ONE_BROKER))
        self._long_slots = asyncio.Semaphore(_LONG_AT_ONCE)
        self._seeds = list(connection.seeds)
        self.addresses = KnownAddresses(connection)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in chain.from_iterable(self._idle.values()):
            await client.aclose()

    async def get(
        self,
        path: str,
        query: Mapping[str, object] | Sequence[tuple[str, object]] = (),
        *,
        broker: str = "",
        follow: bool = True,
        on_412: Reason = Reason.NOT_FOUND,
        size: int = 1,
    ) -> BrokerAnswer:
        """Read something; see `Request` and `send`."""
        request = Request("GET", path, urlencode(query), self.connection.read_timeout_s, follow, on_412, size)
        return await self.send(request, broker)

    async def write(
        self,
        method: str,
        path: str,
        query: Mapping[str, object] | None = None,
        *,
        on_412: Reason = Reason.BAD_RANGE,
        timeout_s: float | None = None,
        body: bytes = b"",
    ) -> None:
        """Change something, within the read time-out if no other is given; see `Request` and `send`."""
        timeout_s = self.connection.read_timeout_s if timeout_s is None else timeout_s
        await self.send(Request(method, path, urlencode(query or {}), timeout_s, on_412=on_412, body=body))

    async def brokers(self) -> list[str]:
        """Return the brokerIds of the active brokers, sorted; redirects to them are followed from now on."""
        found = (await self.get("/admin/v2/brokers")).brokers()
        self.addresses.know(found)
        return found

    async def send(self, request: Request, broker: str = "") -> BrokerAnswer:
        """Send a request and return the answer of whom it was redirected to.

        Args:
            request: what to send.
            broker: brokerId to ask; the first seed that accepts a connection when empty.

        Raises:
            AdminError: with any reason code of the admin REST API.
        """
        if self.connection.read_only and request.method != "GET":
            target = broker or address_of(self.connection.seeds[0])
            raise failure(
                self.mask, Reason.READ_ONLY, request.what, target, "the connection is read-only, nothing was sent"
            )
        if broker and not is_broker_id(broker):
            detail = "this is no brokerId of the form host:port; nothing was sent"
            raise failure(self.mask, Reason.NOT_FOUND, request.what, broker, detail)
        if broker:
            return await self._chain(request, _Place(self.connection.base_url(broker), request.query, broker))
        return await self._ask_seeds(request)

    async def _ask_seeds(self, request: Request) -> BrokerAnswer:
        refused: list[str] = []
        reasons = set()
        for seed in tuple(self._seeds):
            try:
                return await self._chain(request, _Place(seed, request.query, address_of(seed)), seed=True)
            except _NotSentError as error:
                refused.append(f"{address_of(seed)} ({error})")
                reasons.add(error.reason)
                if seed in self._seeds:  # the next request begins with a seed that may be alive
                    self._seeds.remove(seed)
                    self._seeds.append(seed)
        first = address_of(self.connection.seeds[0])
        # One that is merely down may be back at the next attempt.
        reason = reasons.pop() if len(reasons) == 1 else Reason.UNREACHABLE
        raise failure(self.mask, reason, request.what, first, f"no connection to {', '.join(refused)}", sent=False)

    async def _chain(self, request: Request, place: _Place, *, seed: bool = False) -> BrokerAnswer:
        """Follow a request through its redirects; with `seed`, a first hop without connection is told apart."""
        seen = {place.url(request)}
        for hop in range(MAX_HOPS + 1):
            try:
                status, location, body, cut = await self._hop(request, place)
            except _NotSentError as error:
                if seed and hop == 0:
                    raise
                detail = f"no connection ({error})"
                raise failure(self.mask, error.reason, request.what, place.broker, detail, sent=False) from None
            _log.debug("%s at %s: %d", request.what, place.broker, status)
            answer = BrokerAnswer(request.what, place.broker, status, body, self.mask, cut)
            if not (status in _REDIRECTS and location and request.follow):
                return self._checked(request, answer)
            place = await self._next(request, answer, place.url(request), location)
            if place.url(request) in seen:
                break
            seen.add(place.url(request))
        raise failure(
            self.mask,
            Reason.REDIRECT_LOOP,
            request.what,
            place.broker,
            f"redirected in a circle or over {MAX_HOPS} times",
        )

    def _checked(self, request: Request, answer: BrokerAnswer) -> BrokerAnswer:
        if not 200 <= answer.status < 300:
            raise answer.error(request.on_412)
        if answer.cut:
            raise answer.bad(f"the answer is longer than {self._most_bytes(request)} bytes")
        return answer

    def _most_bytes(self, request: Request) -> int:
        return self.connection.max_answer_bytes * request.size

    async def _next(self, request: Request, answer: BrokerAnswer, came_from: str, location: str) -> _Place:
        """Return where a redirect leads, after it was checked and mapped.

        Brokers redirect by changing host and query only; the scheme is always the connection's own.
        """
        try:
            location = urljoin(came_from, location)
            address, parts = address_of(location), urlsplit(location)
        except ValueError:
            raise answer.bad("redirected to no address") from None
        found = self.addresses.find(address, parts.path)
        if found is None:
            await self._refresh(request)
            found = self.addresses.find(address, parts.path)
        if found is None:
            detail = f"redirected to {first_line(address)}, which is no broker of the cluster; nothing was sent there"
            raise failure(self.mask, Reason.FOREIGN_REDIRECT, request.what, answer.broker, detail, answer.status)
        base, path = found
        if unquote(path) != unquote(request.path):
            raise answer.bad(f"redirected to another path, {first_line(path)}; nothing was sent there")
        return _Place(base, parts.query, address)

    async def _refresh(self, request: Request) -> None:
        """Read the list of brokers: one that joined lately is no stranger.

        Where the list itself is redirected, what is known stays.
        """
        asked = Request("GET", "/admin/v2/brokers", "", request.timeout_s, follow=False)
        try:
            self.addresses.know((await self._ask_seeds(asked)).brokers())
        except AdminError as error:
            if error.status not in _REDIRECTS:
                raise

    async def _hop(self, request: Request, place: _Place) -> tuple[int, str, bytes, bool]:
        """Exchange a request and its answer; a GET whose connection was reset is sent once more."""
        try:
            return await self._exchange(request, place)
        except _ResetError as error:
            if request.method != "GET":
                raise self._broken(request, place, error) from None
        try:
            return await self._exchange(request, place)
        except _ResetError as error:
            raise self._broken(request, place, error) from None

    def _broken(self, request: Request, place: _Place, error: Exception) -> AdminError:
        detail = f"the connection broke before an answer ({error})"
        if request.method != "GET":
            detail += "; the broker may have carried it out"
        return failure(self.mask, Reason.UNREACHABLE, request.what, place.broker, detail)

    async def _exchange(self, request: Request, place: _Place) -> tuple[int, str, bytes, bool]:
        if not address_in(place.base):  # a template made it of a broker's name
            detail = f"{first_line(place.base)} is no address: check the connection's address_template"
            raise failure(self.mask, Reason.BAD_ANSWER, request.what, place.broker, detail)
        limit = self.connection.connect_timeout_s + request.timeout_s
        try:
            # The slot is awaited before the clock starts.
            async with self._slots_of[place.base], self._slots, asyncio.timeout(limit) as deadline:
                return await self._stream(request, place, deadline)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise _NotSentError(error) from error
        except (TimeoutError, httpx.TimeoutException):
            detail = f"no complete answer within {request.timeout_s:g} s"
            raise failure(self.mask, Reason.TIMEOUT, request.what, place.broker, detail) from None
        except (httpx.ReadError, httpx.WriteError) as error:
            raise _ResetError(first_line(str(error)) or type(error).__name__) from error
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
            if "without sending a response" in str(error):
                raise _ResetError(first_line(str(error))) from error
            detail = f"the answer is no complete HTTP ({first_line(str(error))})"
            raise failure(self.mask, Reason.BAD_ANSWER, request.what, place.broker, detail) from None

    @asynccontextmanager
    async def _client(self, base: str) -> AsyncIterator[httpx.AsyncClient]:
        """Yield a client of one broker for one request at a time, with one connection.

        A pool that requests share would look through all of its connections for each of them.
        """
        idle = self._idle.setdefault(base, [])
        if idle:
            self._kept -= 1
        client = idle.pop() if idle else self._new_client()
        try:
            yield client
        finally:
            if self._kept < MOST_KEPT or base in self.connection.seeds:
                self._kept += 1
                idle.append(client)
            else:
                await client.aclose()

    def _new_client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            headers=self._headers,
            verify=self._ssl,
            follow_redirects=False,
            trust_env=False,  # a proxy or a .netrc of the environment must not see or add credentials
            timeout=httpx.Timeout(None, connect=self.connection.connect_timeout_s),
            limits=_LIMITS,
        )

    async def _stream(self, request: Request, place: _Place, deadline: asyncio.Timeout) -> tuple[int, str, bytes, bool]:
        headers = {} if request.method == "GET" else {"Content-Type": "application/json"}
        content = None if request.method == "GET" else request.body
        url = place.url(request)
        async with (
            self._client(place.base) as client,
            client.stream(request.method, url, headers=headers, content=content) as response,
        ):
            ok = response.is_success
            most = self._most_bytes(request) if ok else MAX_ERROR_BYTES
            body, cut = await self._read(response, most, deadline)
            location = response.headers.get("location", "")
            return response.status_code, location, self.mask.body(body), cut

    async def _read(self, response: httpx.Response, most: int, deadline: asyncio.Timeout) -> tuple[bytes, bool]:
        """Read a body; the wait for a turn to read on a long one does not count towards the deadline."""
        chunks: list[bytes] = []
        size = 0
        async with AsyncExitStack() as turn:
            async for chunk in response.aiter_raw():
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
