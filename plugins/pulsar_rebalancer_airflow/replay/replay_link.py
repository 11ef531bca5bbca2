"""The link from the replay task to its report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.sdk import BaseOperatorLink

from pulsar_rebalancer_airflow.validation.validation_link import PREFIX, base_path

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator


class ReplayLink(BaseOperatorLink):
    """The link to a replay's report. Airflow requests the link when the task ends."""

    name = "Replay report"

    def get_link(self, operator: BaseOperator, *, ti_key: Any) -> str:
        """Return the path of the report; empty if the task wrote no report."""
        name = str(getattr(operator, "report_of", ""))
        return report_path(ti_key.dag_id, ti_key.run_id, name) if name else ""


def report_path(dag_id: str, run_id: str, name: str) -> str:
    """Return the path of a report on the API server, without a host."""
    dag, run, folder = (quote(part, safe="") for part in (dag_id, run_id, name))
    return f"{base_path()}{PREFIX}/dags/{dag}/runs/{run}/replay/{folder}"
