"""One ASGI application for all brokers, which distinguishes brokers by local port, checks tokens and applies faults."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route, Router

from pulsar_simulator.brokers import Broker
from pulsar_simulator.cluster import Cluster
from pulsar_simulator.faults import MAX_AMOUNT, Fault, FaultKind, Refusal, read_json
from pulsar_simulator.rest import AdminApi, redirect

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection, Request
    from starlette.types import ASGIApp, Receive, Scope, Send


# What brokers answer to any valid token.
_PATHS_FOR_ALL = re.compile(r"/admin/v2/(brokers/(ready|version)|clusters|namespaces/[^/]+/[^/]+/bundles)")


@dataclass(frozen=True, slots=True, repr=False)
class Auth:
    """The valid tokens.

    Attributes:
        token: the superuser's token.
        user_token: token of a user with limited permissions; empty if there is none.
    """

    token: str
    user_token: str = ""

    def refusal_text(self, request: HTTPConnection) -> str | None:
        """Return None if the request is allowed, else `unauthenticated` or `unauthorized`."""
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme != "Bearer" or not given:
            return "unauthenticated"
        if secrets.compare_digest(given.encode(), self.token.encode()):
            return None
        if self.user_token and secrets.compare_digest(given.encode(), self.user_token.encode()):
            return None if _PATHS_FOR_ALL.fullmatch(request.url.path) else "unauthorized"
        return "unauthenticated"


def new_token() -> str:
    """Return a random token."""
    return secrets.token_urlsafe(32)


def write_token(path: Path, token: str) -> None:
    """Write a token to a file that only its owner can read. An existing file is replaced."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(token)


class ControlApi:
    """Request handlers. Every broker that accepts connections answers these requests, even if faults affect it.

    A request that can open or close sockets is handled in a thread, which waits for the sockets before it responds.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def routes(self) -> list[Route]:
        """Return all control routes."""
        return [
            Route("/simulation/state", self.state, methods=["GET"]),
            Route("/simulation/faults", self.add_fault, methods=["POST"]),
            Route("/simulation/faults", self.clear_faults, methods=["DELETE"]),
            Route("/simulation/load", self.scale_load, methods=["POST"]),
            Route("/simulation/leader", self.change_leader, methods=["POST"]),
            Route("/simulation/brokers/{broker}/{action}", self.control_broker, methods=["POST"]),
        ]

    async def state(self, request: Request) -> Response:
        """Return loads, scores, owners, the destinations that the leader has stored, and faults."""
        faults = [asdict(fault) for fault in self._cluster.faults.all()]
        return JSONResponse({**self._cluster.state(), "faults": faults})

    async def add_fault(self, request: Request) -> Response:
        """Add a fault. The body contains the attributes of `faults.Fault`; `kind` is required."""
        body = await self._read_document(request)
        try:
            add = partial(self._cluster.faults.add, body.pop("kind", ""), **body)
            fault = await run_in_threadpool(add)
        except (TypeError, ValueError) as error:
            raise Refusal(400, str(error)) from error
        return JSONResponse(asdict(fault))

    async def clear_faults(self, request: Request) -> Response:
        """Remove faults. The query may contain `kind` and `broker`; without them, all faults are removed."""
        query = request.query_params
        await run_in_threadpool(self._cluster.faults.clear, query.get("kind"), query.get("broker"))
        return Response(status_code=204)

    async def scale_load(self, request: Request) -> Response:
        """Multiply the load by the `factor` in the body.

        The body may contain `bundle`, or `broker` for all bundles of a broker. Without them, all bundles are changed.
        """
        body = await self._read_document(request)
        factor = body.get("factor")
        if not isinstance(factor, int | float) or not 0 <= factor <= MAX_AMOUNT:
            raise Refusal(400, f"factor must be a number from 0 to {MAX_AMOUNT:g}, got {factor!r}")
        self._cluster.scale_load(factor, bundle=body.get("bundle"), broker=body.get("broker"))
        return Response(status_code=204)

    async def change_leader(self, request: Request) -> Response:
        """Change the leader. The body contains `broker`, the new leader."""
        self._cluster.change_leader((await self._read_document(request)).get("broker", ""))
        return Response(status_code=204)

    async def control_broker(self, request: Request) -> Response:
        """Kill, start or restart a broker. The path contains the brokerId and the action."""
        actions = {"kill": self._cluster.kill, "start": self._cluster.start_broker, "restart": self._cluster.restart}
        action = actions.get(request.path_params["action"])
        if action is None:
            raise Refusal(404, f"No such action: {request.path_params['action']}; expected {' or '.join(actions)}")
        await run_in_threadpool(action, request.path_params["broker"])
        return Response(status_code=204)

    async def _read_document(self, request: Request) -> dict[str, Any]:
        body = read_json(await request.body())
        if not isinstance(body, dict):
            raise Refusal(400, "The body must be a JSON object")
        for key, find in (("broker", self._cluster.membership.find), ("bundle", self._cluster.topology.index)):
            name = body.get(key)
            if not isinstance(name, str | None):
                raise Refusal(400, f"{key} must be a string, got {name!r}")
            if name is not None:
                find(name)
        return body


STRANGER_URL = "http://stranger.invalid:8080"
"""Address to which `redirect_to_stranger` redirects if the fault has no target."""

_CONTROL_PREFIX = "/simulation/"
_JSON = "application/json"
_CHUNK = b"x" * 65536

_LOGIN_PAGE = """<html>
<head>
<meta http-equiv="Content-Type" content="text/html;charset=ISO-8859-1"/>
<title>Error 401 Authentication required</title>
</head>
<body><h2>HTTP ERROR 401 Authentication required</h2>
<table>
<tr><th>URI:</th><td>/admin/v2</td></tr>
<tr><th>STATUS:</th><td>401</td></tr>
<tr><th>MESSAGE:</th><td>Authentication required</td></tr>
<tr><th>SERVLET:</th><td>org.glassfish.jersey.servlet.ServletContainer</td></tr>
</table>
</body>
</html>
"""

_EXTENSIBLE_REPORT = (
    "\n --- An unexpected error occurred in the server ---\n\nMessage: null\n\nStacktrace:\n\n"
    "java.lang.UnsupportedOperationException\n\tat org.apache.pulsar.broker.loadbalance.extensions."
    "ExtensibleLoadManagerWrapper.generateLoadReport(ExtensibleLoadManagerWrapper.java)\n"
)


class SimulatorApp:
    """The ASGI application.

    Attributes:
        reset: function that resets the connection between a client's port and a broker's port. The server sets it.
    """

    def __init__(self, cluster: Cluster, auth: Auth) -> None:
        self._cluster = cluster
        self._auth = auth
        self._router = Router([*ControlApi(cluster).routes(), *AdminApi(cluster).routes()])
        self.reset: Callable[[int, int], None] = lambda *_: None
        self.ports: dict[int, int] = {}
        """Index of the broker that listens on each local port."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request as the broker that listens on the local port."""
        if scope["type"] != "http":
            raise RuntimeError(f"brokers accept only HTTP, not {scope['type']}")
        index = self.ports[scope["server"][1]]
        broker = self._cluster.membership.brokers[index]
        self._cluster.refresh()
        scope.setdefault("state", {})["broker"] = broker
        request = Request(scope, receive)
        if not self._cluster.reachability.accepts_connections(index):
            await self._cut_connection(request)
            return
        if not scope["path"].startswith(_CONTROL_PREFIX) and await self._apply_connection_faults(request, broker):
            return
        answer: ASGIApp = self._auth_refusal(request) or self._faulty_response(request, broker) or self._router
        await self._send_answer(answer, scope, receive, send)

    async def _cut_connection(self, request: Request) -> None:
        self.reset(request.scope["client"][1], request.scope["server"][1])
        await _wait_for_disconnect(request)

    async def _send_answer(self, answer: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await answer(scope, receive, send)
        except Refusal as error:
            response = JSONResponse({"reason": error.message}, status_code=error.status or 500)
            await response(scope, receive, send)
        except HTTPException as error:
            response = JSONResponse({"reason": f"HTTP {error.status_code} {error.detail}"}, error.status_code)
            await response(scope, receive, send)

    async def _apply_connection_faults(self, request: Request, broker: Broker) -> bool:
        """Apply faults that delay or break a connection; return True if the request must not be answered."""
        faults, where = self._cluster.faults, {"broker": broker.broker_id, "path": request.scope["path"]}
        if faults.take_fault(FaultKind.RESET, **where):
            await self._cut_connection(request)
            return True
        slow = faults.take_fault(FaultKind.SLOW, **where)
        if slow:
            await asyncio.sleep(slow.size)
        if faults.take_fault(FaultKind.SILENT, **where):
            await _wait_for_disconnect(request)
            return True
        return False

    def _auth_refusal(self, request: Request) -> Response | None:
        verdict = self._auth.refusal_text(request)
        if verdict == "unauthenticated":
            return HTMLResponse(_LOGIN_PAGE, 401, {"WWW-Authenticate": "Basic"})
        if verdict == "unauthorized":
            return JSONResponse({"reason": "This operation requires super-user access"}, 401)
        return None

    def _faulty_response(self, request: Request, broker: Broker) -> Response | None:
        """Return the wrong response that a fault specifies; None if no such fault applies."""
        path = request.scope["path"]
        if path.startswith(_CONTROL_PREFIX):
            return None
        for kind, answer in self._faulty_answers().items():
            fault = self._cluster.faults.take_fault(kind, broker=broker.broker_id, path=path)
            if fault is not None:
                return answer(fault, request, broker)
        return None

    def _faulty_answers(self) -> dict[FaultKind, Callable[[Fault, Request, Broker], Response]]:
        return {
            FaultKind.UNAUTHORIZED: lambda *_: HTMLResponse(_LOGIN_PAGE, 401),
            FaultKind.FORBIDDEN: lambda *_: JSONResponse({"reason": "Don't have permission to do this"}, 403),
            FaultKind.REDIRECT_TO_STRANGER: self._foreign_redirect,
            FaultKind.REDIRECT_CIRCLE: self._redirect_loop,
            FaultKind.ERROR_500: lambda *_: JSONResponse({"reason": _EXTENSIBLE_REPORT}, 500),
            FaultKind.NULL_ANSWER: lambda *_: Response("null", media_type=_JSON),
            FaultKind.GARBAGE: lambda *_: Response(bytes(range(256)), media_type=_JSON),
            FaultKind.HALF_JSON: self._half_answer,
            FaultKind.HUGE_ANSWER: lambda fault, *_: StreamingResponse(_huge_answer(int(fault.size)), media_type=_JSON),
        }

    def _foreign_redirect(self, fault: Fault, request: Request, _broker: Broker) -> Response:
        target = (fault.target or STRANGER_URL) + request.scope["path"]
        return Response(status_code=307, headers={"Location": target})

    def _redirect_loop(self, _fault: Fault, request: Request, broker: Broker) -> Response:
        brokers, path = self._cluster.membership.brokers, request.scope["path"]
        following = [*brokers[broker.index + 1 :], *brokers[: broker.index + 1]]
        target = next(
            other
            for other in following
            if other is broker
            or self._cluster.faults.find_fault(FaultKind.REDIRECT_CIRCLE, broker=other.broker_id, path=path)
        )
        return redirect(self._cluster, target.index, path, dict(request.query_params))

    def _half_answer(self, _fault: Fault, _request: Request, broker: Broker) -> Response:
        whole = self._cluster.load_report_json(broker.index)
        return Response(whole[: len(whole) // 2], media_type=_JSON)


async def _wait_for_disconnect(request: Request) -> None:
    """Wait, without responding, until either side closes the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _huge_answer(size: int) -> AsyncIterator[bytes]:
    """Yield a JSON object of about `size` bytes in chunks."""
    yield b'{"padding":"'
    for _ in range(size // len(_CHUNK)):
        yield _CHUNK
    yield b'"}'
