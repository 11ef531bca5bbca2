"""The DAGs that look after a cluster without balancing it: daily upkeep of its files, and the hand-over to Pulsar."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING
from zlib import crc32

from airflow.sdk import DAG, CronTriggerTimetable, Param

from pulsar_rebalancer_airflow.dag_defaults import COMMON
from pulsar_rebalancer_airflow.operators import HandoverOperator, MaintainOperator
from pulsar_rebalancer_airflow.operators.handover import ACTIONS

if TYPE_CHECKING:
    from pulsar_rebalancer.clusters import ClusterEntry

_LONGEST = timedelta(hours=6)

_FIRST_MINUTE, _MINUTES = 60, 240
"""Upkeep begins between 01:00 and 05:00 UTC: the day before is over, and its last runs have ended."""


def upkeep_dags(entry: ClusterEntry, root: str) -> list[DAG]:
    """The DAGs `pulsar_maintenance__<cluster>` and `pulsar_handover__<cluster>`."""
    return [_maintenance_dag(entry, root), _handover_dag(entry, root)]


def daily_schedule(cluster: str) -> str:
    """Cron expression of a cluster's upkeep, UTC: the minute follows from the name, so that clusters are spread."""
    hour, minute = divmod(_FIRST_MINUTE + crc32(cluster.encode()) % _MINUTES, 60)
    return f"{minute} {hour} * * *"


def _maintenance_dag(entry: ClusterEntry, root: str) -> DAG:
    with DAG(
        f"pulsar_maintenance__{entry.name}",
        description=f"Compacts and removes old files of cluster {entry.name}",
        doc_md=_maintenance_page(entry, root),
        schedule=CronTriggerTimetable(daily_schedule(entry.name), timezone="UTC"),
        **COMMON,
        dagrun_timeout=_LONGEST,
        params={
            "dry_run": Param(
                True,
                type="boolean",
                title="Dry run",
                description="only say what would go, with counts and bytes; scheduled runs always act",
            )
        },
        tags={"pulsar", "maintenance", entry.name},
        default_args={"retries": 1, "retry_delay": timedelta(minutes=5)},
        # Without it a deployment that pauses new DAGs fills its disk.
        is_paused_upon_creation=False,
    ) as dag:
        MaintainOperator(task_id="maintain", entry=entry, root=root)
    return dag


def _handover_dag(entry: ClusterEntry, root: str) -> DAG:
    with DAG(
        f"pulsar_handover__{entry.name}",
        description=f"Takes the balancing of cluster {entry.name} over from Pulsar, or hands it back",
        doc_md=_handover_page(entry, root),
        schedule=None,
        **COMMON,
        params={
            "action": Param("show", type="string", enum=list(ACTIONS), title="Action"),
            "reason": Param(
                "",
                type=["null", "string"],
                maxLength=500,
                title="Reason",
                description="why; needed for take_over and hand_back",
            ),
        },
        tags={"pulsar", "handover", entry.name},
        # It never runs by itself, and has to be there when the balancing must go back.
        is_paused_upon_creation=False,
    ) as dag:
        HandoverOperator(task_id="handover", entry=entry, root=root, execution_timeout=timedelta(minutes=10))
    return dag


def _maintenance_page(entry: ClusterEntry, root: str) -> str:
    settings, folder = entry.settings, f"{root}/{entry.name}"
    compacted, kept, history = (
        f"{days} d" if days else never
        for days, never in (
            (settings.compact_after_days, "never"),
            (settings.retention_days, "for ever"),
            (settings.history_days, "for ever"),
        )
    )
    return f"""### Files of cluster `{entry.name}`

Every day at a fixed minute (UTC). A manual run only says what would go, unless *Dry run* is off.

| setting | value | what it is about |
|---|---|---|
| `compact_after_days` | {compacted} | when the run folders of a day become one table per kind |
| `retention_days` | {kept} | how long run folders that could not be compacted stay, and exports of the state |
| `history_days` | {history} | how long the tables stay |

The tables are `{folder}/history/<kind>/date=YYYY-MM-DD.parquet`; a run's folder goes once its rows were counted there.
The kinds are `cluster`, `brokers`, `bundles`, `decisions`, `moves`, and `runs` with every document of a run (settings,
state, validation, summary, outcome) as JSON. The column `run` joins them.

Never touched: runs of today, a run without an outcome that is younger than a day, the run whose plan the state holds,
files that the state points to, links, and whatever the rebalancer did not write.
"""


def _handover_page(entry: ClusterEntry, root: str) -> str:
    dag_id = f"pulsar_handover__{entry.name}"
    return f"""### Who balances cluster `{entry.name}`

While Pulsar's own shedding is on, two balancers would fight: every run decides and explains, and its gate stays closed.

| action | what it does |
|---|---|
| show | reads `loadBalancerSheddingEnabled` from every broker |
| take_over | sets it to `false` on all brokers, so that the rebalancer alone moves bundles |
| hand_back | sets it to `true` on all brokers, so that Pulsar balances again |

The value is read back from every broker. A change needs a reason, a connection that is not read-only and a
super-user; who, why and when is kept in `{root}/{entry.name}/state/change-<time>-<action>.json`.

```
airflow dags trigger {dag_id} --conf '{{"action": "hand_back", "reason": "..."}}'
airflow dags trigger {dag_id} --conf '{{"action": "take_over", "reason": "..."}}'
```
"""
