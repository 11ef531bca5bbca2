"""Balance real brokers under a scripted load, block by block: `python -m lab.benchmarks.real_load FOLDER`.

Three real brokers with unequal CPU quotas, persistent topics, a producer and a consumer on every bundle; at first two
thirds of the bundles are on the smallest broker. Bundles differ in size, and some burst every ten minutes; there is a
run a minute. First nothing moves, and GainShedder learns. Then come blocks with the same script, from the same
placement: without shedding, and with each strategy. FOLDER gets the recording, for `real_replay`.
"""

from __future__ import annotations

from lab.benchmarks.real_cluster import BROKERS, RealCluster, real_cluster, say

# isort: split

import argparse
import json
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
from tests.integration.airflow_world import World, dags
from tests.patience import awaited
from tests.pulsar.costs import settled_cpu
from tests.pulsar.load import Load
from tests.pulsar.rebalancing import connection
from tests.pulsar.throttling import await_host_samples

from lab.benchmarks import real_replay
from lab.benchmarks.scripted_load import scripted
from pulsar_rebalancer.config.settings import validate
from pulsar_rebalancer.replay.snapshots import record
from pulsar_rebalancer.run.outcome import Outcome
from pulsar_rebalancer.run.plan import Summary
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer.storage.path import StoragePath

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CLUSTER = "real"
BUNDLES, RATE, SEED = 48, 900.0, 1
"""Of the script; the rate is of all bundles together, in msg/s."""

QUOTAS = (28, 32, 38)
"""Of the brokers, percent of a core."""

HOMES = (0, 1, 0, 0, 2, 0)
"""Brokers that bundles begin on, in turns."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Play the script in each block, keep the recording, and compare the blocks with their replay."""
    given = _options(arguments)
    with (
        tempfile.TemporaryDirectory() as name,
        real_cluster(Path(name), BUNDLES, homes=HOMES, stats_seconds=real_replay.INTERVAL_SECONDS) as real,
    ):
        storage, begun = ClusterStorage(f"{name}/runs", CLUSTER), datetime.now(UTC)
        blocks = list(_blocks(given.learning, given.minutes, real, Path(name)))
        kept = StoragePath(str(given.folder))
        record(storage, validate(real_replay.SETTINGS, label=CLUSTER), begun, datetime.now(UTC), kept)
    (given.folder / real_replay.BLOCKS).write_text(json.dumps(blocks, indent=1), encoding="utf-8")
    for row in real_replay.compare(kept):
        say(str(row))


def _blocks(learning: int, minutes: int, real: RealCluster, folder: Path) -> Iterator[dict[str, str]]:
    rates = scripted(BUNDLES, max(learning, minutes), RATE, SEED).tolist()
    script = [dict(zip(real.topics.values(), row, strict=True)) for row in rates]
    with Load(real.brokers, script[0], folder / "load.log", batching=False, steady=True, subscribed=True) as load:
        load.start()
        for broker, quota in zip(BROKERS, QUOTAS, strict=True):
            real.brokers.set_cpu_quota(broker, 1000 * quota)
        settled_cpu(real.brokers, len(BROKERS))
        # The first sample is also of the time before.
        await_host_samples(real.admin, 2)

        def play(name: str, minutes: int, strategy: str, mode: str) -> dict[str, str]:
            say(name)
            at, begun = datetime.now(UTC), time.monotonic()
            chosen = {**real_replay.SETTINGS, "strategy": strategy, "mode": mode}
            with dags(CLUSTER, folder, connection(real.brokers), **chosen) as root:
                world = World(CLUSTER, root)
                for minute, rates in enumerate(script[:minutes]):
                    load.change(rates)
                    _run(world, minute)
                    time.sleep(max(0.0, begun + real_replay.INTERVAL_SECONDS * (minute + 1) - time.monotonic()))
            return {"name": name, "begin": at.isoformat(), "end": datetime.now(UTC).isoformat()}

        yield play(real_replay.LEARNING, learning, real_replay.STRATEGIES[0], "observe")
        yield play(real_replay.UNSHED, minutes, real_replay.STRATEGIES[0], "observe")
        for strategy in real_replay.STRATEGIES:
            load.change(script[learning - 1])
            begun = time.monotonic()
            awaited(lambda: _are_home(real))
            time.sleep(max(0.0, begun + 60 * real_replay.PAUSE_MINUTES - time.monotonic()))
            yield play(strategy, minutes, strategy, "auto")


def _are_home(real: RealCluster) -> bool:
    """Bring the bundles home; return whether they are: some stray, and a busy broker may be too slow to answer."""
    try:
        real.bring_home()
    except (RuntimeError, httpx.HTTPError) as error:
        say(f"  {error!r:.200}")
        return False
    return True


def _run(world: World, minute: int) -> None:
    run = world.run()
    if run.state != "success":
        say(f"  {minute}: the run ended {run.state}: {run.xcom('validate', 'failure') or run.states}")
    elif (summary := Summary.read_if_exists(run.folder)) and (outcome := Outcome.read_if_exists(run.folder)):
        low, high = summary.score_min or 0.0, summary.score_max or 0.0
        say(f"  {minute}: {summary.brokers} brokers, {low:.0f} to {high:.0f}; {summary.sentence} {outcome.verdict}")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    summary, _, rest = (__doc__ or "").partition(":")
    parser = argparse.ArgumentParser(prog="python -m lab.benchmarks.real_load", description=summary, epilog=rest)
    parser.add_argument("folder", type=Path, help="folder for the recording")
    parser.add_argument("--learning", type=int, default=47, help="minutes before the blocks (47)")
    parser.add_argument("--minutes", type=int, default=15, help="minutes of a block (15)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
