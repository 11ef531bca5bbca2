"""Maintain: compact the runs of past days, and delete files that are older than the settings allow."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow.sdk.exceptions import AirflowFailException

from pulsar_rebalancer.maintenance.retention import maintain
from pulsar_rebalancer.maintenance.state_files import Needed
from pulsar_rebalancer.state.orders.question import Answers, Question
from pulsar_rebalancer.state.state_documents import DecisionState
from pulsar_rebalancer_airflow.failures import final_unless_passing
from pulsar_rebalancer_airflow.operators.bases import ClusterOperator

if TYPE_CHECKING:
    from airflow.sdk import Context
    from pydantic import JsonValue


class MaintainOperator(ClusterOperator):
    """Compact and delete a cluster's old files. The task's XCom is a report with file counts and sizes in bytes.

    A scheduled run changes files. A manual run only reports what it would change, unless its parameter `dry_run` is
    off. A retry continues where the last attempt stopped. The state store is read but never written.
    """

    def execute(self, context: Context) -> dict[str, JsonValue]:
        """Compact and delete files.

        Returns:
            The report of `pulsar_rebalancer.maintenance`.

        Raises:
            AirflowFailException: the state or a copy of it cannot be read (then nothing is deleted, because any file
                could be in use), or a day's history is damaged (all other days are processed).
        """
        dry_run = context["dag_run"].run_type != "scheduled" and bool(context["params"]["dry_run"])
        with final_unless_passing():
            store, storage = self._store(context), self.storage
            stored = None if store.raw(DecisionState.KEY) is None else store.get(DecisionState)
            needed = Needed.read(storage, stored, {store.answers(Question).plan_id, *store.answers(Answers).plans})
            report = maintain(storage, self.entry.settings, needed, datetime.now(UTC), dry_run=dry_run)
        self.log.info("Upkeep of cluster %s:\n%s", self.entry.name, report.table())
        if report.problems:
            context["ti"].xcom_push("return_value", report.document())
            raise AirflowFailException("; ".join(report.problems))
        return report.document()
