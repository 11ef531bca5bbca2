"""Build all DAGs for every cluster in the clusters file."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG, CronTriggerTimetable, DeltaTriggerTimetable, TriggerRule, get_parsing_context

from pulsar_rebalancer.config.clusters_file import ClusterEntry
from pulsar_rebalancer.config.field_types import Mode
from pulsar_rebalancer.run.plan import LONGEST_RUN
from pulsar_rebalancer.strategies.shedders.registry import load_clusters
from pulsar_rebalancer_airflow.dag_factory.dags import (
    COMMON,
    apply_dag,
    by_hand_dag,
    cluster_dag,
    control_dag,
    maintenance_dag,
    replay_dag,
    roll_dag,
    watch_dags,
)
from pulsar_rebalancer_airflow.dag_factory.params import broken_page, run_params
from pulsar_rebalancer_airflow.operators import (
    CollectOperator,
    DecideOperator,
    GateOperator,
    QuestionsOperator,
    RecordOperator,
    RefuseOperator,
    ReportOperator,
    SplitOperator,
    UnloadWaveOperator,
    ValidateOperator,
)
from pulsar_rebalancer_airflow.options import APPLY_DAG, REBALANCE_DAG, clusters_file, rebalance_dags, storage_root
from pulsar_rebalancer_airflow.state_store import state_asset

_RETRY_DELAY = timedelta(seconds=5)


def rebalance_dag(entry: ClusterEntry, root: str) -> DAG:
    settings = entry.settings
    with cluster_dag(
        "rebalance",
        entry,
        description=f"Balances the load of Pulsar cluster {entry.name} (mode {settings.mode})",
        schedule=_timetable(settings.interval_seconds),
        # The by-hand and apply DAGs start runs that carry out their plans.
        allowed_run_types=(*COMMON["allowed_run_types"], "operator_triggered"),
        is_paused_upon_creation=None,  # as Airflow is configured
        dagrun_timeout=LONGEST_RUN,
        params=run_params(settings),
        default_args={"retries": 1, "retry_delay": _RETRY_DELAY},
    ) as dag:
        collect = CollectOperator(task_id="collect", entry=entry, root=root, execution_timeout=timedelta(minutes=5))
        run: Any = collect.output
        validate = ValidateOperator(task_id="validate", cluster=entry.name, run=run)
        decide = DecideOperator(
            task_id="decide",
            cluster=entry.name,
            root=root,
            run=run,
            conn_id=settings.spark_connection,
            execution_timeout=timedelta(minutes=15),
        )
        record = RecordOperator(task_id="record", cluster=entry.name, run=run, retries=3)
        gate = GateOperator(task_id="gate", cluster=entry.name, settings=settings, run=run)
        # Airflow serializes the arguments of a mapped task, so they must be JSON.
        present = settings.model_dump(mode="json", exclude_defaults=True)
        # Most plans split nothing: a task mapped over an empty list is skipped without starting a process.
        split = SplitOperator.partial(
            task_id="split",
            cluster=entry.name,
            settings=present,
            run=run,
            gate=gate.task_id,
            inlets=[state_asset(entry.name)],
        ).expand(batch=record.output)
        unload = UnloadWaveOperator.partial(
            task_id="unload",
            cluster=entry.name,
            settings=present,
            run=run,
            inlets=[state_asset(entry.name)],
            max_active_tis_per_dagrun=1,
            trigger_rule=TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS,
        ).expand(wave=gate.output)
        report = ReportOperator(task_id="report", cluster=entry.name, run=run, gate=gate.task_id, settings=settings)
        if settings.mode is Mode.APPROVE:
            questions = QuestionsOperator(task_id="questions", cluster=entry.name)
            ask = TriggerDagRunOperator.partial(
                task_id="ask",
                trigger_dag_id=f"{APPLY_DAG}{entry.name}",
                reset_dag_run=True,
                logical_date=None,
                openlineage_inject_parent_info=False,
            ).expand(trigger_run_id=questions.output)
            gate >> questions >> ask >> report
        collect >> validate >> decide >> record >> gate >> split >> unload >> report
        report.as_teardown(on_failure_fail_dagrun=False)
    return dag


def _timetable(interval_seconds: float) -> CronTriggerTimetable | DeltaTriggerTimetable:
    """Return the timetable. With a one-minute interval, runs start exactly on the minute, for readable ids."""
    if interval_seconds == 60:
        return CronTriggerTimetable("* * * * *", timezone="UTC")
    return DeltaTriggerTimetable(timedelta(seconds=interval_seconds))


_DAGS = (rebalance_dag, by_hand_dag, apply_dag, control_dag, maintenance_dag, replay_dag, roll_dag)


def build_dags(config_path: Path | None = None) -> dict[str, DAG]:
    """Return all DAGs, keyed by id; in a process that runs a task, only those of its cluster.

    `config_path` is None for the configured path. Raises SettingsError if the file as a whole cannot be read;
    an invalid entry yields a single DAG that reports the problem.
    """
    root = storage_root()
    wanted = get_parsing_context().dag_id or ""
    dags: dict[str, DAG] = {}
    for dag_id, entry in rebalance_dags(load_clusters(config_path or clusters_file())).items():
        if wanted and not wanted.endswith(dag_id.removeprefix(REBALANCE_DAG)):
            continue
        made = (
            [_broken_dag(entry, dag_id)]
            if entry.error
            else [*(make(entry, root) for make in _DAGS), *watch_dags(entry)]
        )
        dags.update({dag.dag_id: dag for dag in made})
    return dags


def _broken_dag(entry: ClusterEntry, dag_id: str) -> DAG:
    with DAG(
        dag_id,
        description="This cluster's entry in the clusters file is broken",
        doc_md=broken_page(entry),
        schedule=None,
        **COMMON,
        tags={"pulsar", "rebalance", "broken"},
    ) as dag:
        RefuseOperator(task_id="refuse", reason=entry.error)
    return dag
