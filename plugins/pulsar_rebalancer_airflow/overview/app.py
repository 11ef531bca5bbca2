"""The FastAPI application that Airflow's API server mounts. Only that server imports this module."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response

from pulsar_rebalancer.errors import RebalancerError
from pulsar_rebalancer_airflow.overview import routes
from pulsar_rebalancer_airflow.replay import replay_web as replay_web
from pulsar_rebalancer_airflow.validation import validation_web

_HEADERS = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "private, no-store"}
"""Headers of all responses; a route may set others."""

# FastAPI's documentation pages would be open to everyone.
app = FastAPI(title="Pulsar rebalancer", docs_url=None, redoc_url=None, openapi_url=None)
app.include_router(validation_web.router)
app.include_router(routes.router)
app.include_router(replay_web.router)


@app.middleware("http")
async def with_headers(request: Request, respond: Callable[[Request], Awaitable[Response]]) -> Response:
    """Respond with the headers of all responses."""
    response = await respond(request)
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)
    return response


@app.exception_handler(RebalancerError)
def unreadable(_: Request, error: Exception) -> JSONResponse:
    """Respond with 503 and an explanation if the clusters file, the storage root or a run's file cannot be read."""
    return JSONResponse({"detail": str(error)}, status_code=503)
