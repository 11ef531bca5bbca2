"""Control of the simulation over HTTP, under /simulation/: true state, faults, load, leader and brokers."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pulsar_simulator.faults import LARGEST
from pulsar_simulator.refusal import Refusal, read_json

if TYPE_CHECKING:
    from starlette.requests import Request

    from pulsar_simulator.cluster import Cluster


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
            Route("/simulation/load", self.load, methods=["POST"]),
            Route("/simulation/leader", self.leader, methods=["POST"]),
            Route("/simulation/brokers/{broker}/{action}", self.broker, methods=["POST"]),
        ]

    async def state(self, request: Request) -> Response:
        """Return loads, scores, owners, the destinations that the leader has stored, and faults."""
        faults = [asdict(fault) for fault in self._cluster.faults.all()]
        return JSONResponse({**self._cluster.state(), "faults": faults})

    async def add_fault(self, request: Request) -> Response:
        """Add a fault. The body contains the attributes of `faults.Fault`; `kind` is required."""
        body = await self._body(request)
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

    async def load(self, request: Request) -> Response:
        """Multiply the load by the `factor` in the body.

        The body may contain `bundle`, or `broker` for all bundles of a broker. Without them, all bundles are changed.
        """
        body = await self._body(request)
        factor = body.get("factor")
        if not isinstance(factor, int | float) or not 0 <= factor <= LARGEST:
            raise Refusal(400, f"factor must be a number from 0 to {LARGEST:g}, got {factor!r}")
        self._cluster.scale_load(factor, bundle=body.get("bundle"), broker=body.get("broker"))
        return Response(status_code=204)

    async def leader(self, request: Request) -> Response:
        """Change the leader. The body contains `broker`, the new leader."""
        self._cluster.change_leader((await self._body(request)).get("broker", ""))
        return Response(status_code=204)

    async def broker(self, request: Request) -> Response:
        """Kill, start or restart a broker. The path contains the brokerId and the action."""
        actions = {
            "kill": self._cluster.kill,
            "start": self._cluster.start_broker,
            "restart": self._cluster.restart,
        }
        action = actions.get(request.path_params["action"])
        if action is None:
            raise Refusal(404, f"No such action: {request.path_params['action']}; there are {', '.join(actions)}")
        await run_in_threadpool(action, request.path_params["broker"])
        return Response(status_code=204)

    async def _body(self, request: Request) -> dict[str, Any]:
        body = read_json(await request.body())
        if not isinstance(body, dict):
            raise Refusal(400, "The body must be a JSON object")
        for key, find in (("broker", self._cluster.membership.find), ("bundle", self._cluster.topology.index)):
            name = body.get(key)
            if not isinstance(name, str | None):
                raise Refusal(400, f"{key} must be a text, got {name!r}")
            if name is not None:
                find(name)
        return body
