"""The DAGs next to the one that balances: manual plans, approval, control, rolling restarts, replay, upkeep, watch."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zlib import crc32

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, CronTriggerTimetable, DeltaTriggerTimetable

from pulsar_rebalancer.config.clusters_file import ClusterEntry
from pulsar_rebalancer.config.field_types import Mode
from pulsar_rebalancer.run.plan import LONGEST_RUN
from pulsar_rebalancer_airflow.dag_factory.params import (
    by_hand_params,
    control_params,
    maintenance_params,
    page,
    replay_params,
    roll_params,
)
from pulsar_rebalancer_airflow.operators import (
    ApproveOperator,
    CarryOutApprovedOperator,
    CarryOutOperator,
    CollectForPlanOperator,
    ControlOperator,
    FormOperator,
    MaintainOperator,
    OrderOperator,
    PlanByHandOperator,
    ReplayOperator,
    RollOperator,
    ValidateOperator,
    WatchOperator,
)

COMMON: dict[str, Any] = {
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
    given = {"is_paused_upon_creation": False, "tags": {"pulsar", tag or kind, entry.name}, **COMMON, **own}
    return DAG(f"pulsar_{kind}__{entry.name}", doc_md=page(kind, entry), schedule=schedule, **given)


def apply_dag(entry: ClusterEntry, root: str) -> DAG:
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
        dagrun_timeout=LONGEST_RUN,
        default_args={"execution_timeout": timedelta(minutes=5)},
        params=by_hand_params(),
    ) as dag:
        form = FormOperator(task_id="form", cluster=entry.name, shows="collect", acts="carry_out")
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
        description=f"Pauses and stops runs of cluster {entry.name}, and manages its state",
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


_LONGEST = timedelta(hours=6)

_FIRST_MINUTE, _MINUTES = 60, 240
"""Upkeep begins between 01:00 and 05:00 UTC, when the last runs of the previous day have ended."""


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
        dagrun_timeout=_LONGEST,
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


_LONGEST_STEP = 30.0
"""Maximum time between two steps, in seconds."""


def roll_dag(entry: ClusterEntry, root: str) -> DAG:
    step = min(entry.settings.interval_seconds / 4, _LONGEST_STEP)
    with cluster_dag(
        "roll",
        entry,
        "rolling restart",
        description=f"Restarts brokers of cluster {entry.name} one after the other, after showing what will happen",
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


_SHORTEST = timedelta(minutes=1)


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
        schedule=DeltaTriggerTimetable(max(step, _SHORTEST)),
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
