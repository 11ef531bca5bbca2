"""Send requests only to the brokers of one cluster: every redirect is checked before it is followed."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Self
from urllib.parse import parse_qsl, unquote, urlencode, urljoin, urlsplit

from pulsar_rebalancer.errors import AdminError
from pulsar_rebalancer.names import is_broker_id
from pulsar_rebalancer.pulsar.answers import BrokerAnswer, first_line
from pulsar_rebalancer.pulsar.connection import AdminConnection, address_of, address_or_empty
from pulsar_rebalancer.pulsar.exchange import Exchange, NotSentError, Request, Target
from pulsar_rebalancer.pulsar.tokens import Tokens
from pulsar_rebalancer.reasons import Reason


class KnownAddresses:
    def __init__(self, connection: AdminConnection) -> None:
        self._connection = connection
        self.set_brokers(())

    def set_brokers(self, brokers: Iterable[str]) -> None:
        self._brokers = frozenset(broker.lower() for broker in brokers if is_broker_id(broker))
        connection = self._connection
        self._bases: dict[str, set[str]] = {}
        own = (*connection.seeds, *connection.address_map.values(), *map(connection.base_url, self._brokers))
        for base in own:
            if address := address_or_empty(base):
                self._bases.setdefault(address, set()).add(base)

    def knows_host(self, address: str) -> bool:
        known = (*self._brokers, *self._bases, *self._connection.address_map)
        return address.rpartition(":")[0] in {other.rpartition(":")[0] for other in known}

    def base_url_and_path(self, address: str, path: str) -> tuple[str, str] | None:
        """Return an address's base URL and the path below it; None if the address is not a broker's."""
        mapped = self._connection.address_map.get(address)
        if mapped is not None:
            return mapped, path
        if address in self._brokers:
            return self._connection.base_url(address), path
        for base in sorted(self._bases.get(address, ()), key=len, reverse=True):
            prefix = urlsplit(base).path
            if path.startswith(f"{prefix}/"):
                return base, path[len(prefix) :]
        return None


_log = logging.getLogger(__name__)

MAX_HOPS = 5
_MAX_ASKED_AFTER_SEEDS = 2
"""Number of known brokers to try if no seed answers. Each host that is down costs one timeout."""
_REDIRECT_STATUSES = (301, 302, 307, 308)


class Transport:
    def __init__(self, connection: AdminConnection) -> None:
        self.connection = connection
        self.tokens = Tokens(connection)
        self.mask = self.tokens.mask
        self._exchange = Exchange(connection, self.mask)
        self._hosts = list(connection.seeds)
        self._silent_until: dict[str, float] = {}
        self.addresses = KnownAddresses(connection)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._exchange.close()

    async def get(
        self,
        path: str,
        query: Mapping[str, object] | Sequence[tuple[str, object]] = (),
        *,
        broker: str = "",
        follow: bool = True,
        on_412: Reason = Reason.NOT_FOUND,
        size: int = 1,
        destination: str = "",
    ) -> BrokerAnswer:
        timeout_s = self.connection.read_timeout_s
        request = Request("GET", path, urlencode(query), timeout_s, follow, on_412, size, redirect_broker=destination)
        return await self.send(request, broker)

    async def put(
        self,
        path: str,
        query: Mapping[str, object] | None = None,
        *,
        on_412: Reason = Reason.RANGE_GONE,
        timeout_s: float | None = None,
        body: bytes = b"",
    ) -> None:
        """Send a request that changes the cluster; `timeout_s` defaults to the read timeout."""
        timeout_s = self.connection.read_timeout_s if timeout_s is None else timeout_s
        await self.send(Request("PUT", path, urlencode(query or {}), timeout_s, reason_for_412=on_412, body=body))

    async def brokers(self) -> list[str]:
        brokers = (await self.get("/admin/v2/brokers")).brokers()
        self.set_brokers(brokers)
        return brokers

    def set_brokers(self, brokers: Iterable[str]) -> None:
        """Allow redirects to these brokers, and send requests to them if no seed answers."""
        known = [broker.lower() for broker in brokers if is_broker_id(broker)]
        self.addresses.set_brokers(known)
        bases = dict.fromkeys((*self.connection.seeds, *map(self.connection.base_url, known)))
        # Keeps the order of known hosts: hosts that failed recently come last.
        self._hosts = list(dict.fromkeys([*(host for host in self._hosts if host in bases), *bases]))

    async def send(self, request: Request, broker: str = "") -> BrokerAnswer:
        """Send a request and return the response after all redirects.

        If `broker` is empty, the request goes to the first seed, or known broker, that accepts a connection; a
        GET goes to the first that also answers it. Raises AdminError with any reason code of the API.
        """
        if self.connection.read_only and request.method != "GET":
            name = broker or address_of(self.connection.seeds[0])
            raise self._exchange.error(request, name, Reason.READ_ONLY, "the connection is read-only; nothing was sent")
        if broker and not is_broker_id(broker):
            detail = "the brokerId is not of the form host:port; nothing was sent"
            raise self._exchange.error(request, broker, Reason.NOT_FOUND, detail)
        if broker:
            target = Target(self.connection.base_url(broker), request.query, broker)
            return await self._follow_hops(request, target, *await self._ask_target(request, target))
        return await self._ask_seeds(request)

    async def _ask_seeds(self, request: Request) -> BrokerAnswer:
        """Send a request to the first host that accepts a connection, and follow its redirects.

        If this host times out, breaks the connection or returns 5xx, only a GET goes to the next host: another
        request may have been carried out. Later requests try this host last.
        """
        refused: list[str] = []
        reasons, failed = set(), list[AdminError]()
        for host in self._hosts[: len(self.connection.seeds) + _MAX_ASKED_AFTER_SEEDS]:
            target = Target(host, request.query, address_of(host))
            try:
                answer, location = await self._ask_with_token(request, target)
            except NotSentError as error:
                refused.append(f"{target.broker} ({error})")
                reasons.add(error.reason)
            except AdminError as error:
                if error.reason not in (Reason.TIMEOUT, Reason.UNREACHABLE):
                    raise
                if error.reason == Reason.TIMEOUT:
                    self._silent_until[host] = time.monotonic() + request.timeout_s
                failed.append(error)
            else:
                if answer.status < HTTPStatus.INTERNAL_SERVER_ERROR:
                    return await self._follow_hops(request, target, answer, location)
                failed.append(answer.as_error(request.reason_for_412))
            self._move_host_to_end(host)
            if failed and request.method != "GET":
                break
        if failed:
            raise failed[0]
        first = address_of(self.connection.seeds[0])
        # With mixed reasons, a host that is only down may be back at the next attempt.
        reason = reasons.pop() if len(reasons) == 1 else Reason.UNREACHABLE
        raise self._exchange.error(request, first, reason, f"no connection to {', '.join(refused)}", was_sent=False)

    def _move_host_to_end(self, host: str) -> None:
        if host in self._hosts:  # the list of brokers may have changed since
            self._hosts.remove(host)
            self._hosts.append(host)

    async def _follow_hops(self, request: Request, target: Target, answer: BrokerAnswer, location: str) -> BrokerAnswer:
        seen = set()
        while answer.status in _REDIRECT_STATUSES and location and request.follows_redirects:
            seen.add(target.url(request))
            target = await self._redirect_target(request, answer, target.url(request), location)
            if target.url(request) in seen or len(seen) > MAX_HOPS:
                detail = f"brokers redirected the request in a loop or more than {MAX_HOPS} times"
                raise self._exchange.error(request, target.broker, Reason.BAD_ANSWER, detail)
            answer, location = await self._ask_target(request, target)
        return self._checked_answer(request, answer)

    async def _ask_target(self, request: Request, target: Target) -> tuple[BrokerAnswer, str]:
        if request.method == "GET" and time.monotonic() < self._silent_until.get(target.base_url, 0.0):
            # A broker that hangs costs one wait, not a second one after that for it as a seed.
            detail = "this request was not sent, because the broker did not answer the previous request in time"
            raise self._exchange.error(request, target.broker, Reason.TIMEOUT, detail, was_sent=False)
        try:
            return await self._ask_with_token(request, target)
        except NotSentError as error:
            detail = f"no connection ({error})"
            raise self._exchange.error(request, target.broker, error.reason, detail, was_sent=False) from None

    async def _ask_with_token(self, request: Request, target: Target) -> tuple[BrokerAnswer, str]:
        """Renew a rejected token and ask again: a request with a 401 was not applied (RFC 9110, 15.5.2)."""
        token = await self.tokens.get(target.broker)
        answer, location = await self._send_once(request, target, token)
        if answer.is_unauthenticated:
            refused, token = token, await self.tokens.get(target.broker, rejected_token=token)
            if token != refused:
                answer, location = await self._send_once(request, target, token)
        if answer.is_unauthenticated:
            raise self._exchange.error(request, target.broker, Reason.UNAUTHORIZED, "answered 401", answer.status)
        return answer, location

    async def _send_once(self, request: Request, target: Target, token: str) -> tuple[BrokerAnswer, str]:
        status, location, body, cut = await self._exchange.ask_with_retry(request, target, token)
        _log.debug("%s at %s: %d", request.request_line, target.broker, status)
        return BrokerAnswer(request.request_line, target.broker, status, body, self.mask, cut), location

    def _checked_answer(self, request: Request, answer: BrokerAnswer) -> BrokerAnswer:
        if not 200 <= answer.status < 300:
            raise answer.as_error(request.reason_for_412)
        if answer.is_cut_off:
            raise answer.bad_body(f"the answer is longer than {self._exchange.max_response_bytes(request)} bytes")
        return answer

    async def _redirect_target(self, request: Request, answer: BrokerAnswer, from_url: str, location: str) -> Target:
        """Check a redirect's target; only its host and query are used, never its scheme."""
        try:
            location = urljoin(from_url, location)
            address, parts = address_of(location), urlsplit(location)
        except ValueError:
            raise answer.bad_body("the broker redirected the request to an invalid address") from None
        known = self.addresses.base_url_and_path(address, parts.path)
        if known is None:
            await self._refresh_brokers(request)
            known = self.addresses.base_url_and_path(address, parts.path)
        if known is None:
            detail = f"the broker redirected to {first_line(address)}, outside the cluster; nothing was sent there"
            raise self._exchange.error(request, answer.broker, Reason.FOREIGN_ADDRESS, detail, answer.status)
        base, path = known
        if unquote(path) != unquote(request.path):
            raise answer.bad_body(f"the broker redirected to another path, {first_line(path)}; nothing was sent there")
        if request.redirect_broker and ("authoritative", "true") in parse_qsl(parts.query):
            return Target(self.connection.base_url(request.redirect_broker), parts.query, request.redirect_broker)
        return Target(base, parts.query, address)

    async def _refresh_brokers(self, request: Request) -> None:
        """Read the broker list again, in case a redirect's target has joined; keep it if redirected."""
        asked = Request("GET", "/admin/v2/brokers", "", request.timeout_s, follows_redirects=False)
        try:
            self.set_brokers((await self._ask_seeds(asked)).brokers())
        except AdminError as error:
            if error.status not in _REDIRECT_STATUSES:
                raise
