"""All DAGs of every cluster in the clusters file."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zlib import crc32

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG, CronTriggerTimetable, DeltaTriggerTimetable, TriggerRule, get_parsing_context

from pulsar_rebalancer.config.clusters_file import ClusterEntry
from pulsar_rebalancer.config.field_types import Mode
from pulsar_rebalancer.run.plan import RUN_TIMEOUT
from pulsar_rebalancer.strategies.shedders.registry import load_clusters
from pulsar_rebalancer_airflow.operators import (
    ApproveOperator,
    CarryOutApprovedOperator,
    CarryOutOperator,
    CollectForPlanOperator,
    CollectOperator,
    ControlOperator,
    DecideOperator,
    FormOperator,
    GateOperator,
    MaintainOperator,
    OrderOperator,
    PlanByHandOperator,
    QuestionsOperator,
    RecordOperator,
    RefuseOperator,
    ReplayOperator,
    ReportOperator,
    RollOperator,
    SplitOperator,
    UnloadWaveOperator,
    ValidateOperator,
    WatchOperator,
)
from pulsar_rebalancer_airflow.options import APPLY_DAG, REBALANCE_DAG, clusters_file, entries_by_dag_id, storage_root
from pulsar_rebalancer_airflow.state_store import state_asset
from pulsar_rebalancer_airflow.trigger_forms import (
    broken_entry_doc_md,
    by_hand_params,
    control_params,
    dag_doc_md,
    maintenance_params,
    replay_params,
    roll_params,
    run_params,
)

COMMON_ARGUMENTS: dict[str, Any] = {
    "start_date": datetime(2026, 1, 1, tzinfo=UTC),
    "catchup": False,
    "max_active_runs": 1,
    # No backfill: only the current load of a live cluster can be balanced.
    "allowed_run_types": ("scheduled", "manual"),
}


def cluster_dag(kind: str, entry: ClusterEntry, tag: str = "", schedule: Any = None, **own: Any) -> DAG:
    """Return a DAG for a cluster. It is not paused upon creation.

    `kind` is the prefix of the DAG's id. `tag` is added to the tags `pulsar` and the cluster's name; if
    empty, the kind is added. `own` overrides the common arguments.
    """
    # Paused DAGs would send no alerts and delete no files, so new DAGs start unpaused whatever Airflow's setting is.
    given = {"is_paused_upon_creation": False, "tags": {"pulsar", tag or kind, entry.name}, **COMMON_ARGUMENTS, **own}
    return DAG(f"pulsar_{kind}__{entry.name}", doc_md=dag_doc_md(kind, entry), schedule=schedule, **given)


def approval_dag(entry: ClusterEntry, root: str) -> DAG:
    with cluster_dag(
        "apply",
        entry,
        "approval",
        description=f"Asks a person to approve a plan of cluster {entry.name}, and starts the approved plan",
        # Each run asks about one plan. Airflow requires that operators can start runs as well; such runs ask
        # nothing. No question waits behind another, because a newer question ends the older one.
        allowed_run_types=("manual", "operator_triggered"),
        max_active_runs=8,
        # A run that is pinned to the version of its DAG bundle would keep its question when the mode changes.
        disable_bundle_versioning=True,
    ) as dag:
        if entry.settings.mode is Mode.APPROVE:
            approve = ApproveOperator(
                task_id="approve",
                entry=entry,
                root=root,
                # Only this task writes its document in the state store, so one instance runs at a time.
                max_active_tis_per_dag=1,
                # In Airflow 3.3 the task fails if the answer arrives within a second of the question, or of an attempt
                # that continues with it: on a busy machine, several times in a row.
                retries=5,
                retry_delay=timedelta(seconds=1),
            )
            approve >> CarryOutApprovedOperator(task_id="carry_out", entry=entry, root=root)
        else:
            # A mode change ends an open question: Airflow removes tasks that the latest version of a DAG lacks.
            EmptyOperator(task_id="nobody_is_asked")
    return dag


def by_hand_dag(entry: ClusterEntry, root: str) -> DAG:
    with cluster_dag(
        "by_hand",
        entry,
        "by hand",
        description=f"Moves bundles of cluster {entry.name} on request, after showing the plan",
        # A release must not wait for a plan in progress.
        max_active_runs=16,
        dagrun_timeout=RUN_TIMEOUT,
        default_args={"execution_timeout": timedelta(minutes=5)},
        params=by_hand_params(),
    ) as dag:
        form = FormOperator(task_id="form", cluster=entry.name, show_task="collect", act_task="carry_out")
        collect = CollectForPlanOperator(task_id="collect", entry=entry, root=root)
        run: Any = collect.output
        validate = ValidateOperator(task_id="validate", cluster=entry.name, run=run)
        # Each of these two tasks is the only writer of its documents in the state store: one instance at a time.
        plan = PlanByHandOperator(task_id="plan", cluster=entry.name, root=root, run=run, max_active_tis_per_dag=1)
        form >> collect >> validate >> plan
        form >> CarryOutOperator(task_id="carry_out", entry=entry, root=root, max_active_tis_per_dag=1)
    return dag


def control_dag(entry: ClusterEntry, root: str) -> DAG:
    with cluster_dag(
        "control",
        entry,
        description=f"Pauses and stops runs of cluster {entry.name}, and manages the cluster's state",
        # A stop must not wait for another run, which may wait for bundles in progress.
        max_active_runs=16,
        # Each of the two tasks is the only writer of its documents, so one instance runs at a time.
        default_args={"max_active_tis_per_dag": 1},
        params=control_params(),
    ) as dag:
        # No retry: a late order would overrule a newer one.
        order = OrderOperator(task_id="order", entry=entry, root=root, execution_timeout=timedelta(minutes=1))
        ordered: Any = order.output
        ControlOperator(
            task_id="control", entry=entry, root=root, ordered=ordered, execution_timeout=timedelta(minutes=10)
        )
    return dag


_MAX_UPKEEP_TIME = timedelta(hours=6)

_FIRST_MINUTE, _MINUTES = 60, 240
"""Upkeep begins between 01:00 and 05:00 UTC, after the last runs of the previous day have ended."""


def daily_schedule(cluster: str) -> str:
    """Return the cron expression (UTC) for upkeep; a hash of the cluster's name spreads out start times."""
    hour, minute = divmod(_FIRST_MINUTE + crc32(cluster.encode()) % _MINUTES, 60)
    return f"{minute} {hour} * * *"


def maintenance_dag(entry: ClusterEntry, root: str) -> DAG:
    with cluster_dag(
        "maintenance",
        entry,
        description=f"Compacts and deletes old files of cluster {entry.name}",
        schedule=CronTriggerTimetable(daily_schedule(entry.name), timezone="UTC"),
        dagrun_timeout=_MAX_UPKEEP_TIME,
        params=maintenance_params(),
        default_args={"retries": 1, "retry_delay": timedelta(minutes=5)},
    ) as dag:
        MaintainOperator(task_id="maintain", entry=entry, root=root)
    return dag


def replay_dag(entry: ClusterEntry, root: str) -> DAG:
    with cluster_dag(
        "replay",
        entry,
        description=f"Replays recorded load of cluster {entry.name} with other strategies and settings",
        params=replay_params(),
    ) as dag:
        ReplayOperator(task_id="replay", entry=entry, root=root, execution_timeout=timedelta(hours=6))
    return dag


_MAX_POKE_SECONDS = 30.0
"""Maximum seconds between two checks of a rolling restart's progress."""


def roll_dag(entry: ClusterEntry, root: str) -> DAG:
    step = min(entry.settings.interval_seconds / 4, _MAX_POKE_SECONDS)
    with cluster_dag(
        "roll",
        entry,
        "rolling restart",
        description=f"Restarts brokers of cluster {entry.name} one by one, once a dry run has shown the order",
        # A second roll is refused; it must not wait in the queue and begin at some later time.
        max_active_runs=16,
        params=roll_params(),
    ) as dag:
        RollOperator(
            task_id="roll",
            entry=entry,
            root=root,
            poke_interval=step,
            timeout=timedelta(days=366),
            execution_timeout=timedelta(minutes=5),
            # Only this task writes its document in the state store, so one instance runs at a time.
            max_active_tis_per_dag=1,
            # The roll must continue however an attempt ends, because a broker may be down.
            retries=1000,
            retry_delay=timedelta(seconds=step),
        )
    return dag


_MIN_WATCH_INTERVAL = timedelta(minutes=1)


def watch_dags(entry: ClusterEntry) -> list[DAG]:
    """Return the DAG `pulsar_watch__<cluster>`; empty if the cluster has no connection for alerts."""
    settings = entry.settings
    if not settings.alert_connection:
        return []
    step = timedelta(seconds=settings.interval_seconds * settings.alert_after_intervals)
    with cluster_dag(
        "watch",
        entry,
        "alerts",
        description=f"Sends an alert when no run of cluster {entry.name} has ended for several intervals",
        schedule=DeltaTriggerTimetable(max(step, _MIN_WATCH_INTERVAL)),
        dagrun_timeout=timedelta(minutes=5),
    ) as dag:
        WatchOperator(
            task_id="watch",
            cluster=entry.name,
            settings=settings,
            execution_timeout=timedelta(minutes=1),
            retries=1,
            retry_delay=timedelta(seconds=5),
        )
    return [dag]


_RETRY_DELAY = timedelta(seconds=5)


def rebalance_dag(entry: ClusterEntry, root: str) -> DAG:
    settings = entry.settings
    with cluster_dag(
        "rebalance",
        entry,
        description=f"Balances the load of Pulsar cluster {entry.name} (mode {settings.mode})",
        schedule=_timetable(settings.interval_seconds),
        # The by-hand and apply DAGs start runs that carry out their plans.
        allowed_run_types=(*COMMON_ARGUMENTS["allowed_run_types"], "operator_triggered"),
        is_paused_upon_creation=None,  # as Airflow is configured
        dagrun_timeout=RUN_TIMEOUT,
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


_DAG_BUILDERS = (rebalance_dag, by_hand_dag, approval_dag, control_dag, maintenance_dag, replay_dag, roll_dag)


def build_dags(config_path: Path | None = None) -> dict[str, DAG]:
    """Return all DAGs, keyed by id; in a process that runs a task, only those of its cluster.

    `config_path` is None for the configured path. Raises SettingsError if the file as a whole cannot be read;
    an invalid entry yields a single DAG that reports the problem.
    """
    root = storage_root()
    wanted = get_parsing_context().dag_id or ""
    dags: dict[str, DAG] = {}
    for dag_id, entry in entries_by_dag_id(load_clusters(config_path or clusters_file())).items():
        if wanted and not wanted.endswith(dag_id.removeprefix(REBALANCE_DAG)):
            continue
        cluster_dags = (
            [_broken_entry_dag(entry, dag_id)]
            if entry.error
            else [*(make(entry, root) for make in _DAG_BUILDERS), *watch_dags(entry)]
        )
        dags.update({dag.dag_id: dag for dag in cluster_dags})
    return dags


def _broken_entry_dag(entry: ClusterEntry, dag_id: str) -> DAG:
    with DAG(
        dag_id,
        description="This cluster's entry in the clusters file is broken",
        doc_md=broken_entry_doc_md(entry),
        schedule=None,
        **COMMON_ARGUMENTS,
        tags={"pulsar", "rebalance", "broken"},
    ) as dag:
        RefuseOperator(task_id="refuse", reason=entry.error)
    return dag
