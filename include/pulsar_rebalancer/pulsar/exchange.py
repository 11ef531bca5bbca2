"""Send a request to one broker and read its response, with limits on time, concurrency and size."""

from __future__ import annotations

import asyncio
import logging
import resource
import ssl
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from itertools import chain
from urllib.parse import quote

import httpx

from pulsar_rebalancer.errors import AdminError
from pulsar_rebalancer.pulsar.answers import TokenMask, admin_error, first_line
from pulsar_rebalancer.pulsar.connection import AdminConnection, address_or_empty
from pulsar_rebalancer.reasons import Reason

logging.getLogger("httpcore").setLevel(logging.INFO)  # below that level it logs headers, which may hold a token

MAX_ERROR_BYTES = 64 * 1024
"""Maximum bytes read of an error response, which is only quoted in a message."""
TOPIC_NAMES_SIZE = 4
"""Multiplies `max_answer_bytes` for a namespace's topic names: the resulting 32 MiB hold about 300,000 names."""
TOPIC_STATS_SIZE = 32
"""Multiplies `max_answer_bytes` for a broker's topic statistics: the resulting 256 MiB hold about 100,000 topics."""
_SHORT_ANSWER_BYTES = 1024 * 1024
"""Maximum bytes of a short response. The value is Pulsar's default limit for a load report."""
_MAX_CONCURRENT_LONG = 8
"""Maximum number of responses above `_SHORT_ANSWER_BYTES` that are read concurrently, to limit memory use."""
MAX_PER_ADDRESS = 32
"""Maximum concurrent requests per address. Requests about a thousand namespaces could all go to one broker."""
MAX_IDLE_CONNECTIONS = max(384, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)
"""Maximum number of idle connections, not counting the first host: many systems limit a process to 1,024 files."""
_ONE_IDLE_CONNECTION = httpx.Limits(max_keepalive_connections=1, keepalive_expiry=15)  # brokers close them after 30 s
_HEADERS = {
    "User-Agent": "pulsar-rebalancer",
    "Accept": "application/json, */*;q=0.5",
    "Accept-Encoding": "identity",  # a compressed answer could be larger than its limit
}


@dataclass(frozen=True, slots=True)
class Request:
    """One request to a broker.

    Attributes:
        path: absolute path, percent-encoded.
        query: encoded query, without the question mark.
        timeout_s: maximum seconds for one hop.
        follows_redirects: True to follow redirects; otherwise a redirect raises `bad_answer`.
        reason_for_412: reason code for a response with status 412.
        size_factor: factor for `max_answer_bytes`.
        body: JSON to send; a GET has none.
        redirect_broker: brokerId to which authoritative redirects are sent instead; empty to follow them unchanged.
    """

    method: str
    path: str
    query: str
    timeout_s: float
    follows_redirects: bool = True
    reason_for_412: Reason = Reason.RANGE_GONE
    size_factor: int = 1
    body: bytes = b""
    redirect_broker: str = ""

    @property
    def request_line(self) -> str:
        return f"{self.method} {self.path}"


@dataclass(frozen=True, slots=True)
class Target:
    base_url: str
    query: str
    broker: str

    def url(self, request: Request) -> str:
        return f"{self.base_url}{request.path}" + (f"?{self.query}" if self.query else "")


class NotSentError(Exception):
    """No connection could be made, so the broker did not receive the request. `reason` is a reason code."""

    def __init__(self, cause: BaseException) -> None:
        while inner := cause.__cause__ or cause.__context__:  # httpx and anyio wrap the system's error
            cause = inner
        super().__init__(first_line(str(cause)) or type(cause).__name__)
        refused = isinstance(cause, ssl.SSLCertVerificationError)
        self.reason = Reason.CERTIFICATE_REFUSED if refused else Reason.UNREACHABLE


class Exchange:
    """Sends requests with credentials; callers make sure that the address belongs to the cluster."""

    def __init__(self, connection: AdminConnection, mask: TokenMask) -> None:
        self._connection = connection
        self.mask = mask
        self._ssl = connection.ssl_context()
        self._idle: defaultdict[str, list[httpx.AsyncHTTPTransport]] = defaultdict(list)
        self._kept = 0
        self._slots = asyncio.Semaphore(connection.concurrency)
        self._slots_of: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(MAX_PER_ADDRESS))
        self._long_slots = asyncio.Semaphore(_MAX_CONCURRENT_LONG)

    async def close(self) -> None:
        for transport in chain.from_iterable(self._idle.values()):
            await transport.aclose()

    def error(
        self,
        request: Request,
        broker: str,
        reason: Reason,
        detail: str,
        status: int | None = None,
        *,
        was_sent: bool = True,
    ) -> AdminError:
        return admin_error(self.mask, reason, request.request_line, broker, detail, status, was_sent=was_sent)

    def max_response_bytes(self, request: Request) -> int:
        return self._connection.max_answer_bytes * request.size_factor

    async def ask_with_retry(self, request: Request, target: Target, token: str) -> tuple[int, str, bytes, bool]:
        """Send a request and read the response; a GET is retried once if the connection breaks.

        Returns:
            HTTP status, the location of a redirect, the body, and True if the body was cut off.

        Raises:
            NotSentError: no connection could be made.
            AdminError: `timeout`, `unreachable` or `bad_answer`.
        """
        try:
            return await self._ask_once(request, target, token)
        except AdminError as error:
            if error.reason != Reason.UNREACHABLE or request.method != "GET":
                raise
        return await self._ask_once(request, target, token)

    async def _ask_once(self, request: Request, target: Target, token: str) -> tuple[int, str, bytes, bool]:
        if not address_or_empty(target.base_url):  # made from a template and a broker's name
            detail = f"{first_line(target.base_url)} is not an address: check the connection's address_template"
            raise self.error(request, target.broker, Reason.BAD_ANSWER, detail)
        limit = self._connection.connect_timeout_s + request.timeout_s
        try:
            # The time spent waiting for a slot does not count.
            async with self._slots_of[target.base_url], self._slots, asyncio.timeout(limit) as deadline:
                return await self._send_and_read(request, target, token, deadline)
        except TimeoutError:
            reason, detail = Reason.TIMEOUT, f"no complete answer within {request.timeout_s:g} s"
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise NotSentError(error) from error
        except (httpx.NetworkError, httpx.ProtocolError, httpx.InvalidURL, UnicodeError) as error:
            error_text = first_line(self.mask.hide(str(error)))
            if isinstance(error, httpx.NetworkError) or error_text.startswith("Server disconnected"):
                reason, detail = Reason.UNREACHABLE, f"the connection broke before the answer came ({error_text})"
                if request.method != "GET":
                    detail += "; the broker may have carried out the request"
            else:
                reason, detail = Reason.BAD_ANSWER, f"the answer is not a complete HTTP response ({error_text})"
        raise self.error(request, target.broker, reason, detail)

    async def _send_and_read(
        self, request: Request, target: Target, token: str, deadline: asyncio.Timeout
    ) -> tuple[int, str, bytes, bool]:
        # A redirect can be unencoded.
        url = quote(target.url(request), safe="/?:@!$&'()*+,;=-._~%[]")
        headers = dict(_HEADERS)
        if token:
            # Brokers with strictAuthMethod=true require the method.
            headers |= {"Authorization": f"Bearer {token}", "X-Pulsar-Auth-Method-Name": "token"}
        if request.method != "GET":
            headers["Content-Type"] = "application/json"
        content = None if request.method == "GET" else request.body
        timeout = {"timeout": {"connect": self._connection.connect_timeout_s}}
        asked = httpx.Request(request.method, url, headers=headers, content=content, extensions=timeout)
        async with (
            self._transport_to(target.base_url) as transport,
            aclosing(await transport.handle_async_request(asked)) as response,
        ):
            most = self.max_response_bytes(request) if response.is_success else MAX_ERROR_BYTES
            body, cut = await self._read_body(response, most, deadline)
        location = self.mask.hide(response.headers.get("Location", ""))
        return response.status_code, location, self.mask.hide_bytes(body), cut

    @asynccontextmanager
    async def _transport_to(self, base_url: str) -> AsyncIterator[httpx.AsyncHTTPTransport]:
        """Yield a transport with one idle connection or none, because a pool of all connections is slow to search.

        A transport, unlike a client, ignores redirects, cookies, the environment's proxies and .netrc: none of
        them may see or add credentials.
        """
        idle = self._idle[base_url]
        if idle:
            self._kept -= 1
            transport = idle.pop()
        else:
            transport = httpx.AsyncHTTPTransport(verify=self._ssl, trust_env=False, limits=_ONE_IDLE_CONNECTION)
        try:
            yield transport
        finally:
            if self._kept < MAX_IDLE_CONNECTIONS or base_url == self._connection.seeds[0]:
                self._kept += 1
                idle.append(transport)
            else:
                await transport.aclose()

    async def _read_body(self, response: httpx.Response, limit: int, deadline: asyncio.Timeout) -> tuple[bytes, bool]:
        """Read a body; waiting for other long bodies (`_MAX_CONCURRENT_LONG`) does not count as time."""
        body = bytearray()
        async with AsyncExitStack() as turn:
            async for chunk in response.aiter_raw():
                if len(body) <= _SHORT_ANSWER_BYTES < len(body) + len(chunk):
                    left = (deadline.when() or 0.0) - asyncio.get_running_loop().time()
                    deadline.reschedule(None)
                    await turn.enter_async_context(self._long_slots)
                    deadline.reschedule(asyncio.get_running_loop().time() + left)
                body += chunk
                if len(body) > limit:
                    break
        return bytes(body[:limit]), len(body) > limit
