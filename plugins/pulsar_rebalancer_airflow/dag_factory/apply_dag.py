"""The DAG in which a person approves a plan; there is one in mode `approve`."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from pulsar_rebalancer.config.enums import Mode
from pulsar_rebalancer_airflow.dag_factory.defaults import begun_by_hand
from pulsar_rebalancer_airflow.dag_factory.docs import page
from pulsar_rebalancer_airflow.locations import APPLY_DAG
from pulsar_rebalancer_airflow.operators import ApplyOperator, ApproveOperator, EndOlderOperator, ShowAwaitingOperator

if TYPE_CHECKING:
    from airflow.sdk import DAG

    from pulsar_rebalancer.config.clusters_file import ClusterEntry

_SHOWN = "{{{{ ti.xcom_pull(task_ids='show')['{part}'] }}}}"


def apply_dags(entry: ClusterEntry, root: str) -> list[DAG]:
    """Return the DAG `pulsar_apply__<cluster>`; none in another mode than `approve`."""
    settings = entry.settings
    if settings.mode is not Mode.APPROVE:
        return []
    with begun_by_hand(
        APPLY_DAG,
        entry,
        "approval",
        description=f"Shows the plan of cluster {entry.name} that waits for a person, and has it carried out",
        doc_md=page("apply", entry),
        # Each run asks about one plan; one that a person begins, which Airflow insists on, shows nothing. No question
        # waits behind another: a newer one ends it.
        allowed_run_types=("manual", "operator_triggered"),
        max_active_runs=8,
    ) as dag:
        EndOlderOperator(task_id="end_older", cluster=entry.name)
        show = ShowAwaitingOperator(task_id="show", entry=entry, root=root)
        approve = ApproveOperator(
            task_id="approve",
            entry=entry,
            root=root,
            subject=_SHOWN.format(part="subject"),
            body=_SHOWN.format(part="body"),
            # An answer within a second of the question fails the task in Airflow 3.3.
            retries=2,
            retry_delay=timedelta(seconds=1),
        )
        show >> approve >> ApplyOperator(task_id="carry_out", entry=entry, root=root, max_active_tis_per_dag=1)
    return [dag]
