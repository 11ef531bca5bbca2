"""Links from the tasks *validate* and *replay* to the pages with their results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from airflow.sdk import BaseOperatorLink
from airflow.sdk.configuration import conf

from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer_airflow.suites import page_of

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator


PREFIX = "/pulsar_rebalancer"
"""Path prefix for this package's pages on the API server."""


def page_address(dag_id: str, run_id: str, folder: str) -> str:
    """Return the URL of a page on the API server; only its path if `[api] base_url` is not set."""
    return _server() + page_path(dag_id, run_id, folder).removeprefix(urlsplit(_server()).path)


def page_path(dag_id: str, run_id: str, folder: str) -> str:
    dag, run, name = (quote(part, safe="") for part in (dag_id, run_id, folder))
    return f"{base_path()}{PREFIX}/dags/{dag}/runs/{run}/validation/{name}"


def base_path() -> str:
    """Return the API server's base path; empty for the root."""
    return urlsplit(_server()).path


def _server() -> str:
    return str(conf.get("api", "base_url", fallback="") or "").rstrip("/")


class ValidationLink(BaseOperatorLink):
    """The link to a run's validation result. Airflow requests the link when the task ends, even if it failed."""

    name = "Validation result"

    def get_link(self, operator: BaseOperator, *, ti_key: Any) -> str:
        """Return the path of the page; empty if the task wrote no page."""
        run = StoragePath(str(getattr(operator, "run", None) or ""))
        if not run.uri or not page_of(run).exists():
            return ""
        return page_path(ti_key.dag_id, ti_key.run_id, run.name)


class ReplayLink(BaseOperatorLink):
    """The link to a replay's report. Airflow requests the link when the task ends."""

    name = "Replay report"

    def get_link(self, operator: BaseOperator, *, ti_key: Any) -> str:
        """Return the path of the report; empty if the task wrote no report."""
        name = str(getattr(operator, "report_of", ""))
        return report_path(ti_key.dag_id, ti_key.run_id, name) if name else ""


def report_path(dag_id: str, run_id: str, name: str) -> str:
    dag, run, folder = (quote(part, safe="") for part in (dag_id, run_id, name))
    return f"{base_path()}{PREFIX}/dags/{dag}/runs/{run}/replay/{folder}"
