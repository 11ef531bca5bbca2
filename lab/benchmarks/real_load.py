"""Balance real brokers under a scripted load, and keep the runs: `python -m lab.benchmarks.real_load FOLDER`.

Three real brokers with unequal CPU quotas, persistent topics, a producer and a consumer on every bundle; at first half
of the bundles are on the smallest broker. The script plays bundles of different size, a burst of some of them every ten
minutes, and one broker restarted by SIGTERM after half an hour; there is a run a minute. FOLDER is the storage root of
these runs, which replays read; `load.json` there has the messages and the waits of each topic's clients.
"""

from __future__ import annotations

from lab.benchmarks.real_cluster import BROKERS, RealCluster, real_cluster, say

# isort: split

import argparse
import json
import shutil
import sys
import tempfile
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.integration.airflow_world import World, dags
from tests.pulsar.costs import settled_cpu
from tests.pulsar.load import Load
from tests.pulsar.rebalancing import connection
from tests.pulsar.throttling import await_host_samples

from lab.benchmarks.conditions import commit, machine
from lab.benchmarks.scripted_load import scripted
from pulsar_rebalancer.run.outcome import Outcome
from pulsar_rebalancer.run.plan import Summary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.pulsar.load import TopicReport

CLUSTER = "real"
BUNDLES, RATE, SEED = 48, 900.0, 1
"""Of the script; the rate is of all bundles together, in msg/s."""

QUOTAS = (20, 24, 28)
"""Of the brokers, percent of a core."""

HOMES = (0, 1, 0, 2)
"""Brokers that bundles begin on, in turns."""

RESTARTED, RESTART_MINUTE = 1, 30
"""The broker that is restarted, and when: never in a shorter script."""

INTERVAL_SECONDS = 60
"""Brokers measure their CPU and compute their rates at this interval: Pulsar's defaults."""

SETTINGS: dict[str, Any] = {
    "interval_seconds": INTERVAL_SECONDS,
    "host_usage_interval_minutes": INTERVAL_SECONDS / 60,
    # A bundle has a few messages a second.
    "min_unload_message": 10,
    # Loopback has no bandwidth: brokers report that of the machine's network card.
    "bandwidth_in_weight": 0,
    "bandwidth_out_weight": 0,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Play the script once, and keep what it left."""
    given = _options(arguments)
    decides = {"strategy": given.strategy, "mode": "auto"} if given.strategy else {"mode": "observe"}
    with (
        tempfile.TemporaryDirectory() as name,
        real_cluster(Path(name), BUNDLES, homes=HOMES, stats_seconds=INTERVAL_SECONDS) as real,
    ):
        folder, sources, at = Path(name), commit(), datetime.now(UTC)
        rates = scripted(BUNDLES, given.minutes, RATE, SEED).tolist()
        script = [dict(zip(real.topics.values(), row, strict=True)) for row in rates]
        with (
            dags(CLUSTER, folder, connection(real.brokers), **SETTINGS, **decides) as root,
            Load(real.brokers, script[0], folder / "load.log", batching=False, steady=True, subscribed=True) as load,
        ):
            load.start()
            for broker, quota in zip(BROKERS, QUOTAS, strict=True):
                real.brokers.set_cpu_quota(broker, 1000 * quota)
            settled_cpu(real.brokers, len(BROKERS))
            # The first sample is also of the time before.
            await_host_samples(real.admin, 2)
            touched = _play(script, real, World(CLUSTER, root), load)
            reports: dict[str, TopicReport] = load.report()
        shutil.copytree(root, given.folder, dirs_exist_ok=True)
    topics = {topic: asdict(report) | {"restarted": topic in touched} for topic, report in reports.items()}
    where = {"at": at.isoformat(), "commit": sources, "machine": machine(), **decides, "minutes": given.minutes}
    (given.folder / "load.json").write_text(json.dumps({**where, "topics": topics}, indent=1), encoding="utf-8")


def _play(script: Sequence[dict[str, float]], real: RealCluster, world: World, load: Load) -> set[str]:
    """Play the script, and return the topics of the broker that was restarted."""
    touched: set[str] = set()
    begun = time.monotonic()
    for minute, rates in enumerate(script):
        load.change(rates)
        if minute == RESTART_MINUTE:
            restarted, owners = real.brokers.broker_ids[RESTARTED], real.owners()
            touched = {topic for bundle, topic in real.topics.items() if owners[bundle] == restarted}
            real.restart(RESTARTED)
        _run(world, minute)
        time.sleep(max(0.0, begun + INTERVAL_SECONDS * (minute + 1) - time.monotonic()))
    return touched


def _run(world: World, minute: int) -> None:
    run = world.run()
    if run.state != "success":
        say(f"  {minute}: the run ended {run.state}: {run.xcom('validate', 'failure') or run.states}")
    elif (summary := Summary.find(run.folder)) and (outcome := Outcome.find(run.folder)):
        low, high = summary.score_min or 0.0, summary.score_max or 0.0
        say(f"  {minute}: {summary.brokers} brokers, {low:.0f} to {high:.0f}; {summary.sentence} {outcome.verdict}")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    summary, _, rest = (__doc__ or "").partition(":")
    parser = argparse.ArgumentParser(prog="python -m lab.benchmarks.real_load", description=summary, epilog=rest)
    parser.add_argument("folder", type=Path, help="folder for the runs and load.json")
    parser.add_argument("--strategy", help="strategy that moves bundles (default: none moves)")
    parser.add_argument("--minutes", type=int, default=60, help="length of the script in minutes (60)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
