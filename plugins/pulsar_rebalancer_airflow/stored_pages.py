"""Shared parts of the routes to stored pages: permissions, the page's cluster, and HTTP headers.

Import this module only in Airflow's API server: it loads Airflow's API, which needs the metadata database.
"""

from __future__ import annotations

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api.security import requires_access_dag
from fastapi import Depends, HTTPException
from fastapi.responses import HTMLResponse

from pulsar_rebalancer.names import CLUSTER_NAME
from pulsar_rebalancer_airflow.validation.page import POLICY

FOR_READERS_OF_LOGS = [Depends(requires_access_dag("GET", DagAccessEntity.TASK_LOGS))]
"""Dependencies of a route: the user must be allowed to read the logs of the DAG `dag_id`."""

_HEADERS = {"Content-Security-Policy": f"{POLICY}; frame-ancestors 'self'; sandbox"}


def cluster_of(dag_id: str, *prefixes: str) -> str | None:
    """Return a DAG's cluster; None if its id is not a known prefix followed by a valid cluster name."""
    cluster = next((dag_id.removeprefix(prefix) for prefix in prefixes if dag_id.startswith(prefix)), "")
    return cluster if CLUSTER_NAME.fullmatch(cluster) else None


def served(page: bytes | None, missing: str) -> HTMLResponse:
    """Return a page as a response with headers that forbid scripts and external resources.

    Raises:
        HTTPException: 404 with the text `missing` if there is no page.
    """
    if page is None:
        raise HTTPException(404, missing)
    return HTMLResponse(page, headers=_HEADERS)
