"""Decide: submit the Spark application that makes a run's plan from its files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pulsar_rebalancer.decide.run_plan import plan_again
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.request import RunRequest
from pulsar_rebalancer.storage.layout import ClusterStorage
from pulsar_rebalancer_airflow.failures import final_unless_passing
from pulsar_rebalancer_airflow.locations import run_folder
from pulsar_rebalancer_airflow.operators.spark_application import SparkApplicationOperator, checked_connection

if TYPE_CHECKING:
    from airflow.sdk import Context


class DecideOperator(SparkApplicationOperator):
    """Submit the application that makes a run's plan: scores, pairs, hits and bundles to move.

    If a run carries out an earlier plan, its plan is the part of the earlier plan that is still valid; no strategy is
    used. A retry makes the same plan from the same input, and overwrites the files of earlier attempts.

    Args:
        cluster: name in the clusters file.
        run: address of the run's folder.
        conn_id: Airflow connection of type `spark` or `spark_connect`.
    """

    def __init__(self, *, cluster: str, root: str, run: Any, conn_id: str, **kwargs: Any) -> None:
        super().__init__(
            application="application",
            application_args=["--root", root, "--run", run],
            failed=Reason.DECIDE_FAILED,
            conn_id=conn_id,
            name="pulsar-rebalancer",
            **kwargs,
        )
        self.cluster = cluster

    def execute(self, context: Context) -> None:
        """Submit the application, and wait for it to finish.

        Raises:
            AirflowFailException: `foreign_run`; `wrong_setting` (see `checked_connection`); an earlier plan was not
                handed over to this run, or is no longer valid (`decide.run_plan.plan_again`).
            AirflowException: the application failed. The message contains the last lines of its output, and the XCom
                `failure` is its reason code. This is retried.
        """
        with final_unless_passing(context):
            _, root, _, address = self.application_args or []
            run = run_folder(context, self.cluster, address)
            if RunRequest.read(run).params.plan:
                summary = plan_again(ClusterStorage(root, self.cluster), run)
                self.log.info("%s; stay: %s", summary.sentence, dict(summary.bundles_passed_over))
                return
            connection = checked_connection(self._conn_id)
        self._submit(context, connection)
