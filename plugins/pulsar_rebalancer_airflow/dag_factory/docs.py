"""The pages that Airflow shows beside a DAG."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pulsar_rebalancer.replay.replay_request import DEFAULT_GRID
from pulsar_rebalancer.strategies.shedders.registry import placement_of, profile_of
from pulsar_rebalancer_airflow.hooks.pulsar_admin import PulsarAdminHook
from pulsar_rebalancer_airflow.locations import BY_HAND_DAG, CONTROL_DAG, REBALANCE_DAG

if TYPE_CHECKING:
    from pulsar_rebalancer.config.clusters_file import ClusterEntry
    from pulsar_rebalancer.config.settings import Settings

_MODES = {
    "off": "nothing is asked of the brokers",
    "observe": "every run decides and explains, nothing is moved",
    "approve": "what is decided waits for a person, who approves it in `pulsar_apply__`",
    "auto": "what is decided is carried out",
}


def rebalance_page(entry: ClusterEntry, root: str) -> str:
    """Return Markdown: what a run does, by which settings, and how to force one."""
    settings = entry.settings
    return f"""### Load of Pulsar cluster `{entry.name}`

Mode **{settings.mode}**: {_MODES[settings.mode.value]}.

Every {settings.interval_seconds:g} s: *collect* asks the brokers, *validate* judges the data, *decide* chooses
bundles and their destinations by {settings.strategy}, *record* commits what it keeps, *gate* opens or says why not,
*unload* moves bundles and reads their owners back, *report* says what landed where.

| setting | value |
|---|---|
| connection | `{settings.connection}` (type `{PulsarAdminHook.conn_type}`), Spark: `{settings.spark_connection}` |
| strategy | {settings.strategy}, placement {placement_of(settings)} |
{_thresholds(settings)}| grace period of a moved bundle | {settings.grace_period_minutes:g} min |
| runs and state | `{root}/{entry.name}` |

Load-balancer settings that the clusters file does not give are those of the live brokers; each run's
`plan/summary.json` names the value and origin of every setting. What *validate* found opens as a page from the task's
log (its address) and the link *Validation result* in the task's tab *Details*.

**To force a balance now**, trigger the DAG and fill in *Force* with the reason. A forced run waits for no hits and
counts none; it obeys the mode, the caps and the validation all the same. Where brokers are paired, it acts on every
pair whose gap reaches *Force threshold*.

**Backfills are refused**, because a live cluster has no past that could be balanced: a run judges, and moves, what the
brokers carry at that moment.
"""


def _thresholds(settings: Settings) -> str:
    thresholds = profile_of(settings).thresholds(settings)
    rows = [f"| {kind} threshold | {gap:g} points, {hits} hits |\n" for kind, (gap, hits) in thresholds.items()]
    share = f"| share of a difference that is moved | {settings.max_unload_percentage:g} |\n"
    return "".join([*rows, share] if rows else [])


def by_hand_page(entry: ClusterEntry) -> str:
    """Return Markdown: how to ask for moves, and how a plan is carried out."""
    dag_id, minutes = f"{BY_HAND_DAG}{entry.name}", entry.settings.max_shown_plan_age_seconds / 60
    return f"""### Moves, splits and drains of cluster `{entry.name}` by hand

Trigger the DAG and fill in *Action* and its fields. The run makes a plan and shows it (log and XCom of the task
*plan*): what moves, whom it disturbs, the score of each broker before and after. It moves nothing.

Trigger it again with the plan's hash alone to carry out that plan, within {minutes:g} minutes and in mode `auto`:

```
airflow dags trigger {dag_id} --conf '{{"plan": "<hash>"}}'
```

A run of `{REBALANCE_DAG}{entry.name}` then asks the brokers anew, leaves out what no longer holds, and goes through the
same gate as every run. A pause, a hold and Pulsar's own shedding cannot be overruled. Who asked is Airflow's user.

`release` acts without a plan. The plan of a drain marks the broker; the runs that follow move its bundles.
"""


def replay_page(entry: ClusterEntry, root: str) -> str:
    """Return Markdown: what is compared, and where the report is."""
    grid = ",\n ".join(map(json.dumps, DEFAULT_GRID))
    return f"""### What would other settings have done with cluster `{entry.name}`?

Trigger the DAG. Without any change it takes the last 24 hours of recorded runs through the current settings and those
of the form's grid, in closed loop: a bundle that a variant moved carries its recorded load to the broker where the
variant put it. Nothing is asked of the brokers, and nothing is moved.

The grid is a list of parts, each of settings with lists of values; all combinations of a part are compared:

```
[{grid}]
```

The log of the task *replay* says what share is done. The report (unloads a day against the range of the brokers'
scores, the current settings and the choice marked) is the run's tab *Balance*, and opens from the link *Replay report*
in the task's tab *Details*; `{root}/{entry.name}/replays` has it with the table of all variants, for `retention_days`.
"""


def maintenance_page(entry: ClusterEntry, root: str) -> str:
    """Return Markdown: what upkeep does, when, and what it never touches."""
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
The kinds are `cluster`, `brokers`, `bundles`, `decisions`, `moves`, `splits`, and `runs` with every document of a run
(settings, state, validation, summary, outcome) as JSON, and the page of its validation result. The column `run` joins
them.

Never touched: runs of today, a run without an outcome that is younger than a day, the run whose plan the state holds,
files that the state points to, links, and whatever the rebalancer did not write.
"""


def control_page(entry: ClusterEntry, root: str) -> str:
    """Return Markdown: what each action does, and the commands for it."""
    dag_id, folder = f"{CONTROL_DAG}{entry.name}", f"{root}/{entry.name}/state"
    return f"""### Control of cluster `{entry.name}`

| action | what it does |
|---|---|
| show | tells what is in force, the state, and Pulsar's own shedding on every broker |
| pause | lets nothing be moved `until` a time, and ends what is under way as stop does; runs decide and explain |
| resume | lifts a pause and a skip; a pause in the clusters file stays |
| skip | lets the next run move nothing |
| stop | lets the run that is under way begin no further bundle; the answer names those that came to their end |
| close_breaker | closes the circuit breaker if it is open |
| take_over | sets `loadBalancerSheddingEnabled` to `false` on all brokers: the rebalancer alone moves bundles |
| hand_back | stops what is under way, and sets it to `true` on all brokers: Pulsar balances again |
| export | writes hit counters, the last plan and what was moved lately to `{folder}/export-<time>.json` |
| reset | counters and means start anew; what was moved or split lately stays protected, pauses and drains stay |
| restore | takes the newest `{folder}/decision-<number>.json`, or the file that is named |

All but show and export need a reason. Who, why and when is kept in `{folder}/change-<time>-<action>.json`. To switch
shedding, the connection must not be read-only. A plan that is under way at a reset or restore is not carried out.

```
airflow dags trigger {dag_id} --conf '{{"action": "pause", "until": "2027-01-02T06:00:00Z", "reason": "..."}}'
airflow dags trigger {dag_id} --conf '{{"action": "hand_back", "reason": "..."}}'
airflow dags trigger {dag_id} --conf '{{"action": "take_over", "reason": "..."}}'
```
"""


def apply_page(entry: ClusterEntry) -> str:
    """Return Markdown: what is asked, and what an answer does."""
    return f"""### Approve a plan of cluster `{entry.name}`

In mode `approve` the newest plan that moves something waits here for {entry.settings.max_awaiting_minutes:g} minutes.
The task *approve* shows it: what moves, the scores before and after, whom it disturbs. Rejected, or without an answer,
nothing is moved, and the very moves that a person rejected are not asked for again for as long. A newer plan takes the
place of one that waits.

Once it is approved, a run of `{REBALANCE_DAG}{entry.name}` asks the brokers anew and carries out what of this plan
still holds, or says why not.
"""


def watch_page(entry: ClusterEntry) -> str:
    """Return Markdown: when the DAG tells what."""
    settings = entry.settings
    return f"""### Do runs of cluster `{entry.name}` come to their end?

When none has for {settings.alert_after_intervals} intervals of {settings.interval_seconds:g} s, the connection
`{settings.alert_connection}` gets one message, and one when runs are back. All other alerts come from the *report*
task of `pulsar_rebalance__{entry.name}`. Keep both DAGs unpaused.

A scheduler that is dead tells nothing. Ask from outside: `python -m pulsar_rebalancer.show.check_age`.
"""


def broken_page(entry: ClusterEntry) -> str:
    """Return Markdown: what is wrong with an entry."""
    return f"""### The entry `{entry.name}` of the clusters file cannot be used

```
{entry.error.replace("`", "'")}
```

The other clusters are not affected. Correct the entry; the DAG is replaced when the file is parsed again.
"""
