"""The DAGs of every cluster in the clusters file: one that rebalances, others to look after state and files."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, CronTriggerTimetable, DeltaTriggerTimetable

from pulsar_rebalancer.clusters import load_clusters
from pulsar_rebalancer_airflow.dag_defaults import COMMON
from pulsar_rebalancer_airflow.locations import REBALANCE_DAG, clusters_file, storage_root
from pulsar_rebalancer_airflow.maintenance_dag import upkeep_dags
from pulsar_rebalancer_airflow.operators import (
    CollectOperator,
    DecideOperator,
    GateOperator,
    RecordOperator,
    RefuseOperator,
    ReportOperator,
    StateOperator,
    UnloadWaveOperator,
    ValidateOperator,
)
from pulsar_rebalancer_airflow.operators.unload import LONGEST_RUN
from pulsar_rebalancer_airflow.pages import broken_page, rebalance_page, state_page
from pulsar_rebalancer_airflow.params_form import run_params, state_params
from pulsar_rebalancer_airflow.state_store import state_asset
from pulsar_rebalancer_airflow.watch_dag import watch_dags

if TYPE_CHECKING:
    from pathlib import Path

    from pulsar_rebalancer.clusters import ClusterEntry

_RETRY_DELAY = timedelta(seconds=5)


def build_dags(config_path: Path | None = None) -> dict[str, DAG]:
    """The DAGs by id.

    Args:
        config_path: the clusters file; None: the configured one.

    Raises:
        SettingsError: the file as a whole cannot be read. A broken entry gives one DAG that says so instead.
    """
    root = storage_root()
    dags: dict[str, DAG] = {}
    # Whole entries first: a broken name that was made safe must not take the place of one that is in order.
    for entry in sorted(load_clusters(config_path or clusters_file()), key=lambda entry: bool(entry.error)):
        made = (
            [_broken_dag(entry, taken=dags)]
            if entry.error
            else [_rebalance_dag(entry, root), _state_dag(entry, root), *upkeep_dags(entry, root), *watch_dags(entry)]
        )
        dags.update({dag.dag_id: dag for dag in made})
    return dags


def _timetable(interval_seconds: float) -> CronTriggerTimetable | DeltaTriggerTimetable:
    """Every full minute when that is the interval, for run ids that can be read; else steps of the interval."""
    if interval_seconds == 60:
        return CronTriggerTimetable("* * * * *", timezone="UTC")
    return DeltaTriggerTimetable(timedelta(seconds=interval_seconds))


def _rebalance_dag(entry: ClusterEntry, root: str) -> DAG:
    settings = entry.settings
    with DAG(
        f"{REBALANCE_DAG}{entry.name}",
        description=f"Balances the load of Pulsar cluster {entry.name} (mode {settings.mode})",
        doc_md=rebalance_page(entry, root),
        schedule=_timetable(settings.interval_seconds),
        **COMMON,
        dagrun_timeout=LONGEST_RUN,
        params=run_params(settings),
        tags={"pulsar", "rebalance", entry.name},
        default_args={"retries": 1, "retry_delay": _RETRY_DELAY},
    ) as dag:
        collect = CollectOperator(task_id="collect", entry=entry, root=root, execution_timeout=timedelta(minutes=5))
        run: Any = collect.output
        validate = ValidateOperator(task_id="validate", cluster=entry.name, run=run)
        decide = DecideOperator(
            task_id="decide",
            root=root,
            run=run,
            conn_id=settings.spark_connection,
            execution_timeout=timedelta(minutes=15),
        )
        record = RecordOperator(task_id="record", cluster=entry.name, root=root, run=run, retries=3)
        gate = GateOperator(task_id="gate", cluster=entry.name, settings=settings, run=run)
        unload = UnloadWaveOperator.partial(
            task_id="unload",
            cluster=entry.name,
            # A mapped task's arguments are serialized: JSON only.
            standing=settings.model_dump(mode="json", include={"mode", "pause"}),
            run=run,
            inlets=[state_asset(entry.name)],
            max_active_tis_per_dagrun=1,
        ).expand(wave=gate.output)
        report = ReportOperator(task_id="report", cluster=entry.name, run=run, gate=gate.task_id, settings=settings)
        collect >> validate >> decide >> record >> gate >> unload >> report
        report.as_teardown(on_failure_fail_dagrun=False)
    return dag


def _state_dag(entry: ClusterEntry, root: str) -> DAG:
    with DAG(
        f"pulsar_state__{entry.name}",
        description=f"Shows, exports, resets or restores what is kept between the runs of cluster {entry.name}",
        doc_md=state_page(entry, root),
        schedule=None,
        **COMMON,
        is_paused_upon_creation=False,
        params=state_params(),
        tags={"pulsar", "state", entry.name},
    ) as dag:
        StateOperator(task_id="state", cluster=entry.name, root=root)
    return dag


def _broken_dag(entry: ClusterEntry, taken: dict[str, DAG]) -> DAG:
    names = (f"{REBALANCE_DAG}{entry.name}{suffix}" for suffix in ("", *(f"__broken_{n}" for n in range(1, 1000))))
    with DAG(
        next(name for name in names if name not in taken),
        description="This cluster's entry in the clusters file is broken",
        doc_md=broken_page(entry),
        schedule=None,
        **COMMON,
        tags={"pulsar", "rebalance", "broken"},
    ) as dag:
        RefuseOperator(task_id="refuse", reason=entry.error)
    return dag
