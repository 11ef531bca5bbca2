"""Balance real brokers under a scripted load, block by block: `python -m lab.benchmarks.real_load FOLDER`.

Three real brokers with unequal CPU quotas, persistent topics, a producer and a consumer on every bundle; at first two
thirds of the bundles are on the smallest broker. Bundles differ in size, and some burst every ten minutes; there is a run a
minute. For `--learning` minutes nothing moves and GainShedder learns. Then come three blocks with the same script, from
the same placement: nothing moves; GainShedder; AvgShedder. FOLDER is the storage root of these runs, which replays
read; `load.json` there has the times of the blocks, and the messages and waits of each topic's clients.
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

import httpx
from tests.integration.airflow_world import World, dags
from tests.patience import awaited
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


CLUSTER = "real"
BUNDLES, RATE, SEED = 48, 900.0, 1
"""Of the script; the rate is of all bundles together, in msg/s."""

QUOTAS = (28, 32, 38)
"""Of the brokers, percent of a core."""

HOMES = (0, 1, 0, 0, 2, 0)
"""Brokers that bundles begin on, in turns."""

PAUSE_MINUTES = 4
"""Between blocks, while bundles go back: more than `state_max_gap` intervals, so that hits start again."""

INTERVAL_SECONDS = 60
"""Brokers measure their CPU and compute their rates at this interval: Pulsar's defaults."""

OBSERVED = {"strategy": "GainShedder", "mode": "observe"}

SETTINGS: dict[str, Any] = {
    "interval_seconds": INTERVAL_SECONDS,
    "host_usage_interval_minutes": INTERVAL_SECONDS / 60,
    # Half of the default: a block is short.
    "hit_count_low": 4,
    # Bundles that one block moved may move in the next.
    "grace_period_minutes": PAUSE_MINUTES,
    # A bundle has a few messages a second.
    "min_unload_message": 10,
    # Loopback has no bandwidth: brokers report that of the machine's network card.
    "bandwidth_in_weight": 0,
    "bandwidth_out_weight": 0,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Play the script in each block, and keep what the runs left."""
    given = _options(arguments)
    with (
        tempfile.TemporaryDirectory() as name,
        real_cluster(Path(name), BUNDLES, homes=HOMES, stats_seconds=INTERVAL_SECONDS) as real,
    ):
        folder, sources = Path(name), commit()
        before, script = (
            [
                dict(zip(real.topics.values(), row, strict=True))
                for row in scripted(BUNDLES, minutes, RATE, SEED).tolist()
            ]
            for minutes in (given.learning, given.minutes)
        )
        with Load(real.brokers, script[0], folder / "load.log", batching=False, steady=True, subscribed=True) as load:
            load.start()
            for broker, quota in zip(BROKERS, QUOTAS, strict=True):
                real.brokers.set_cpu_quota(broker, 1000 * quota)
            settled_cpu(real.brokers, len(BROKERS))
            # The first sample is also of the time before.
            await_host_samples(real.admin, 2)
            blocks = [
                _play("learning", before, OBSERVED, real, folder, load),
                _play("no shedding", script, OBSERVED, real, folder, load),
            ]
            for strategy in ("GainShedder", "AvgShedder"):
                load.change(before[-1])
                begun = time.monotonic()
                awaited(lambda: _are_home(real))
                time.sleep(max(0.0, begun + 60 * PAUSE_MINUTES - time.monotonic()))
                blocks.append(_play(strategy, script, {"strategy": strategy, "mode": "auto"}, real, folder, load))
                _keep(folder, given.folder, {"blocks": blocks})
            topics = {topic: asdict(report) for topic, report in load.report().items()}
        _keep(folder, given.folder, {"commit": sources, "machine": machine(), "blocks": blocks, "topics": topics})


def _are_home(real: RealCluster) -> bool:
    """Bring the bundles home; return whether they are: some stray, and a busy broker may be too slow to answer."""
    try:
        real.bring_home()
    except (RuntimeError, httpx.HTTPError) as error:
        say(f"  {error!r:.200}")
        return False
    return True


def _keep(folder: Path, kept: Path, facts: dict[str, Any]) -> None:
    shutil.copytree(folder / "runs", kept, dirs_exist_ok=True)
    (kept / "load.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")


def _play(
    name: str,
    script: Sequence[dict[str, float]],
    decides: dict[str, Any],
    real: RealCluster,
    folder: Path,
    load: Load,
) -> dict[str, str]:
    """Play the script, a run a minute; return the block's name, begin and end."""
    say(name)
    at, begun = datetime.now(UTC), time.monotonic()
    with dags(CLUSTER, folder, connection(real.brokers), **SETTINGS, **decides) as root:
        world = World(CLUSTER, root)
        for minute, rates in enumerate(script):
            load.change(rates)
            _run(world, minute)
            time.sleep(max(0.0, begun + INTERVAL_SECONDS * (minute + 1) - time.monotonic()))
    return {"name": name, "begin": at.isoformat(), "end": datetime.now(UTC).isoformat()}


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
    parser.add_argument("--learning", type=int, default=48, help="minutes before the blocks (48)")
    parser.add_argument("--minutes", type=int, default=15, help="minutes of a block (15)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
