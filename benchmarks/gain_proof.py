"""GainShedder and AvgShedder alternately on real brokers: `python -m benchmarks.gain_proof`, eight hours.

Three real brokers with unequal CPU quotas, persistent topics, a producer and a consumer on every bundle; at first half
of the bundles are on the smallest broker. A block plays a script of load: bundles of different size, a burst of some of
them every ten minutes, and one broker restarted by SIGTERM in the middle. The first block moves nothing; AvgShedder and
GainShedder take turns in the others: the same script, an ordinary run each minute, and a state of their own, in which
nothing has been learned.

A finished block is written to benchmarks/gain_results.json and docs/gain-shedder.md at once, and the runs of the first
one to benchmarks/recorded.
"""

from __future__ import annotations

from benchmarks.real_cluster import BROKERS, RealCluster, real_cluster, say

# isort: split

import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.integration.airflow_world import World, dags
from tests.pulsar.costs import settled_cpu
from tests.pulsar.load import Load
from tests.pulsar.test_by_hand import connection
from tests.pulsar.throttling import await_host_samples

from benchmarks.conditions import commit
from benchmarks.gain_recording import AVG, GAIN, INTERVAL_SECONDS, SETTINGS, keep
from benchmarks.gain_results import NONE, TRIALS, Block
from benchmarks.scripted_load import scripted
from benchmarks.trials import facts, options_of
from pulsar_rebalancer.run.outcome import Outcome
from pulsar_rebalancer.run.plan import Summary

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from tests.pulsar.load import TopicReport

BUNDLES, RATE, SEED = 48, 900.0, 1
"""Of the script; the rate is of all bundles together, in msg/s."""

QUOTAS = (20, 24, 28)
"""Of the brokers, percent of a core."""

HOMES = (0, 1, 0, 2)
"""Brokers that bundles begin on, in turns."""

RESTARTED = 1
"""The broker that is restarted in the middle of a block."""


def main(arguments: list[str]) -> None:
    """Play the blocks that are asked for, and keep each as soon as it is finished."""
    given = _options(arguments)
    settings = {"minutes": given.minutes, "bundles": BUNDLES, "rate": RATE, "seed": SEED}
    settings |= {"quotas": [*QUOTAS], "homes": [*HOMES]}
    kept = TRIALS.read() if given.go_on else []
    if any(block.settings != settings for block in kept):
        sys.exit(f"earlier blocks had other settings ({kept[0].settings}): leave out --go-on to begin again")
    order = [NONE, *[AVG, GAIN] * given.blocks][len(kept) :]
    say(f"blocks of {given.minutes} minutes: {', '.join(order) or 'none is missing'}")
    if order:
        with (
            tempfile.TemporaryDirectory() as folder,
            real_cluster(Path(folder), BUNDLES, homes=HOMES, stats_seconds=INTERVAL_SECONDS) as real,
        ):
            scene = _Scene(settings, Path(folder), real)
            for number, strategy in enumerate(order, start=len(kept) + 1):
                kept.append(scene.block(strategy, f"block_{number}"))
                TRIALS.write(kept)


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = options_of("benchmarks.gain_proof", __doc__ or "")
    parser.add_argument("--minutes", type=int, default=60, help="length of each block in minutes (60)")
    parser.add_argument("--blocks", type=int, default=3, help="number of blocks per strategy (3)")
    parser.add_argument("--go-on", action="store_true", help="keep the blocks of an earlier run, and play the others")
    return parser.parse_args(arguments)


class _Scene:
    """The brokers, and what the runs of the block under way have left."""

    def __init__(self, settings: dict[str, Any], folder: Path, real: RealCluster) -> None:
        self._settings = settings
        self._folder = folder
        self._real = real
        self._sources = commit()
        self._script = [
            dict(zip(real.topics.values(), row, strict=True))
            for row in scripted(BUNDLES, settings["minutes"], RATE, SEED).tolist()
        ]

    def block(self, strategy: str, name: str) -> Block:
        """Play the script once.

        Args:
            name: the cluster's name in the clusters file; every block has its own.
        """
        say(f"{name}, {strategy}: every bundle goes to its broker")
        self._real.bring_home()
        self._runs: list[tuple[Summary, Outcome]] = []
        folder = self._folder / name
        folder.mkdir()
        decides = {"mode": "observe"} if strategy == NONE else {"mode": "auto", "strategy": strategy}
        steady, brokers = self._script[0], self._real.brokers
        with (
            dags(name, folder, connection(brokers), **SETTINGS, **decides) as root,
            Load(brokers, steady, folder / "load.log", batching=False, steady=True, subscribed=True) as load,
        ):
            world = World(name, root)
            load.start()
            for broker, quota in zip(BROKERS, QUOTAS, strict=True):
                brokers.set_cpu_quota(broker, 1000 * quota)
            settled_cpu(brokers, len(BROKERS))
            # The first sample is also of the time before.
            await_host_samples(self._real.admin, 2)
            at = datetime.now(UTC)
            touched = self._play(world, load)
            reports = load.report()
        if strategy == NONE:
            keep(world.storage)
        return self._result(strategy, at, reports, touched)

    def _play(self, world: World, load: Load) -> set[str]:
        """Play the script, and return the topics of the broker that was restarted."""
        touched: set[str] = set()
        begun = time.monotonic()
        for minute, rates in enumerate(self._script):
            load.change(rates)
            if minute == len(self._script) // 2:
                restarted = self._real.brokers.broker_ids[RESTARTED]
                owners = self._real.owners()
                touched = {topic for bundle, topic in self._real.topics.items() if owners[bundle] == restarted}
                self._real.restart(RESTARTED)
            self._run(world, minute)
            time.sleep(max(0.0, begun + INTERVAL_SECONDS * (minute + 1) - time.monotonic()))
        return touched

    def _run(self, world: World, minute: int) -> None:
        run = world.run()
        summary, outcome = None, None
        if run.state == "success":
            summary, outcome = Summary.find(run.folder), Outcome.find(run.folder)
        if summary is None or outcome is None:
            say(f"  {minute}: the run ended {run.state}: {run.xcom('validate', 'failure') or run.states}")
            return
        self._runs.append((summary, outcome))
        low, high = summary.score_min or 0.0, summary.score_max or 0.0
        say(f"  {minute}: {summary.brokers} brokers, {low:.0f} to {high:.0f}; {summary.sentence} {outcome.verdict}")

    def _result(self, strategy: str, at: datetime, reports: Mapping[str, TopicReport], touched: set[str]) -> Block:
        complete = [summary for summary, _ in self._runs if summary.brokers == len(BROKERS)]
        attempts = [move.attempts for _, outcome in self._runs for move in outcome.moves if move.attempts]
        longest = {topic: max(report.ack_gaps) for topic, report in reports.items()}
        return Block(
            strategy=strategy,
            settings=self._settings,
            runs=len(self._runs),
            moves=len(attempts),
            again=sum(attempts) - len(attempts),
            ranges=[round(summary.score_range, 1) for summary in complete],
            hottest=[round(summary.score_max or 0.0, 1) for summary in complete],
            gap=round(max(gap for topic, gap in longest.items() if topic not in touched), 3),
            gap_of_restarted=round(max((longest[topic] for topic in touched), default=0.0), 3),
            **facts(at, self._sources, reports),
        )


if __name__ == "__main__":
    main(sys.argv[1:])
