"""The pages that Airflow shows beside a DAG."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsar_rebalancer.choices import Strategy
from pulsar_rebalancer_airflow.hook import PulsarAdminHook

if TYPE_CHECKING:
    from pulsar_rebalancer.clusters import ClusterEntry
    from pulsar_rebalancer.settings import Settings

_MODES = {
    "off": "nothing is asked of the brokers",
    "observe": "every run decides and explains, nothing is moved",
    "auto": "what is decided is carried out",
}


def rebalance_page(entry: ClusterEntry, root: str) -> str:
    """Markdown: what a run does, by which settings, and how to force one."""
    settings = entry.settings
    return f"""### Load of Pulsar cluster `{entry.name}`

Mode **{settings.mode}**: {_MODES[settings.mode.value]}.

Every {settings.interval_seconds:g} s: *collect* asks the brokers, *validate* judges the data, *decide* chooses
bundles and their destinations by {settings.strategy}, *record* commits what it keeps, *gate* opens or says why not,
*unload* moves bundles and reads their owners back, *report* says what landed where.

| setting | value |
|---|---|
| connection | `{settings.connection}` (type `{PulsarAdminHook.conn_type}`), Spark: `{settings.spark_connection}` |
| strategy | {settings.strategy}, placement {settings.names_destinations} |
{_thresholds(settings)}| grace period of a moved bundle | {settings.grace_period_minutes:g} min |
| runs and state | `{root}/{entry.name}` |

Load-balancer settings that the clusters file does not give are those of the live brokers; each run's
`plan/summary.json` names the value and origin of every setting. What *validate* found opens as a page from the task's
link *Validation result*.

**To force a balance now**, trigger the DAG and fill in *Force* with the reason. A forced run waits for no hits and
counts none; it obeys the mode, the caps and the validation all the same. With AvgShedder it acts on every pair whose
gap reaches *Force threshold*.

**Backfills are refused**, because a live cluster has no past that could be balanced: a run judges, and moves, what the
brokers carry at that moment.
"""


def _thresholds(settings: Settings) -> str:
    if settings.strategy is not Strategy.AVG:
        return ""
    return f"""| low threshold | {settings.low_threshold:g} points, {settings.hit_count_low} hits |
| high threshold | {settings.high_threshold:g} points, {settings.hit_count_high} hits |
| share of a difference that is moved | {settings.max_unload_percentage:g} |
"""


def state_page(entry: ClusterEntry, root: str) -> str:
    """Markdown: what each action does."""
    folder = f"{root}/{entry.name}/state"
    return f"""### What is kept between the runs of cluster `{entry.name}`

Hit counters, the last recorded plan, and the bundles moved within the grace period.

| action | what it does |
|---|---|
| show | logs a summary |
| export | writes everything to `{folder}/export-<time>.json` |
| reset | counters and means start anew; bundles moved lately stay in their grace period |
| restore | takes the newest `{folder}/decision-<number>.json`, or the file that is named |

Reset and restore need a reason. A plan that is under way at that moment becomes stale and is not carried out.
"""


def broken_page(entry: ClusterEntry) -> str:
    """Markdown: what is wrong with an entry."""
    return f"""### The entry `{entry.name}` of the clusters file cannot be used

```
{entry.error.replace("`", "'")}
```

The other clusters are not affected. Correct the entry; the DAG is replaced when the file is parsed again.
"""
