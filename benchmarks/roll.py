"""What rolling restarts cost clients, next to a plain SIGTERM of each broker: `python -m benchmarks.roll`, an hour.

Three real brokers with a CPU quota each, persistent topics, a producer and a consumer on every bundle. Before each
trial, the same number of bundles is on each broker. Trials alternate: a roll through the cluster's DAGs, in which this
program restarts the broker that the roll asks for; each broker stopped by SIGTERM and started, awaited as a roll awaits
it; and once a roll in which no bundle returns. The strategy itself moves nothing in any of them.

A finished trial is written to benchmarks/roll_results.json and docs/rolling-restarts.md at once.
"""

from __future__ import annotations

from benchmarks.real_cluster import BROKERS, RealCluster, real_cluster, say

# isort: split

import argparse
import sys
import tempfile
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.integration.airflow_world import World, dags
from tests.pulsar.load import Load
from tests.pulsar.test_by_hand import connection

from benchmarks.conditions import commit, machine
from benchmarks.measure import BenchmarkError
from benchmarks.roll_results import JUDGED_AFTER_S, ROLL, SIGTERM, STAY, TRIALS, RollTrial
from benchmarks.trials import messages
from pulsar_rebalancer.decide.by_hand.rolling import REPORTS
from pulsar_rebalancer.run.outcome import Outcome as Written
from pulsar_rebalancer.state.roll_document import Phase, Roll

if TYPE_CHECKING:
    from tests.integration.airflow_world import Outcome

RATES = {"modular": 16.0, "extensible": 19.0}
"""Messages per second of each bundle: without the return of bundles, the range stays above 30 points."""

PACE_SECONDS = 5
"""From the start of one run to that of the next."""

SETTINGS: dict[str, Any] = {
    "mode": "auto",
    "interval_seconds": PACE_SECONDS,
    "state_max_gap": 1000,
    "max_plan_age_seconds": 3600,
    "max_shown_plan_age_seconds": 3600,
    "unload_timeout_seconds": 90,
    # Lookups of two clients lead bundles astray (apache/pulsar#24884), above all where brokers are short of CPU.
    "unload_concurrency": 1,
    "unload_retries": 5,
    # Whatever moves belongs to the roll.
    "hit_count_low": 10_000,
    "hit_count_high": 10_000,
    # The first host samples of a broker that restarted show the CPU of its start.
    "overloaded_threshold": 100,
    "roll_wait_minutes": 60,
}


def main(arguments: list[str]) -> None:
    """Make the trials that are asked for, and keep each as soon as it is finished."""
    given = _options(arguments)
    order = [ROLL, SIGTERM, STAY, *[ROLL, SIGTERM] * (given.trials - 1)]
    kept = [trial for trial in TRIALS.read() if given.go_on or trial.manager != given.manager]
    for trial in kept:
        if trial.manager == given.manager and trial.kind in order:
            order.remove(trial.kind)
    say(f"{given.manager}: {', '.join(order)}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with (
            real_cluster(folder, given.bundles, extensible=given.manager == "extensible") as real,
            dags(given.manager, folder, connection(real.brokers), **SETTINGS) as root,
        ):
            scene = _Scene(given, folder, real, World(given.manager, root))
            for kind in order:
                kept.append(scene.trial(kind))
                TRIALS.write(kept)


def _options(arguments: list[str]) -> argparse.Namespace:
    summary, _, rest = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.roll", description=summary.partition(":")[0], epilog=rest
    )
    parser.add_argument("--manager", choices=tuple(RATES), default="modular", help="(modular)")
    parser.add_argument("--trials", type=int, default=5, help="rolls, and restarts by SIGTERM (5)")
    parser.add_argument("--go-on", action="store_true", help="keep the trials of an earlier run, and make the others")
    parser.add_argument("--bundles", type=int, default=48, help="of the cluster (48)")
    parser.add_argument("--rate", type=float, help="messages per second of each bundle (16; extensible: 19)")
    parser.add_argument("--quota", type=int, default=40, help="of each broker, percent of a core (40)")
    given = parser.parse_args(arguments)
    given.rate = given.rate or RATES[given.manager]
    return given


class _Scene:
    """The cluster, its DAGs, and what the trial under way has seen."""

    def __init__(self, given: argparse.Namespace, folder: Path, real: RealCluster, world: World) -> None:
        self._given = given
        self._folder = folder
        self._real = real
        self._world = world
        self._sources = commit()

    def trial(self, kind: str) -> RollTrial:
        """Restart all brokers once."""
        say(f"{kind}: every bundle goes to its broker")
        self._real.bring_home()
        # What the last trial moved is elsewhere now.
        self._world.run("control", action="reset", reason="another trial")
        self._moves, self._again, self._ranges = Counter[str](), Counter[str](), list[tuple[float, float]]()
        self._restarted_at, self._fresh, self._usage = 0.0, set[str](), dict[str, float]()
        rates = dict.fromkeys(self._real.topics.values(), self._given.rate)
        with Load(
            self._real.brokers, rates, self._folder / "load.log", batching=False, steady=True, subscribed=True
        ) as load:
            load.start()
            for broker in BROKERS:
                self._real.brokers.set_cpu_quota(broker, 1000 * self._given.quota)
            while not self._run():
                pass
            at, begun = datetime.now(UTC), time.monotonic()
            if kind == SIGTERM:
                self._stop_and_start()
            else:
                self._roll(back=kind == ROLL)
            seconds = time.monotonic() - begun
            while kind != SIGTERM and not self._judged:
                self._run()
            reports = load.report()
        gaps = [
            gap
            for bundle, topic in self._real.topics.items()
            for gap in sorted(reports[topic].ack_gaps, reverse=True)[: self._moves[bundle] + self._again[bundle]]
        ]
        say(f"{kind}: longest gap {max(gaps):.2f} s, ranges {self._ranges}, {seconds:.0f} s")
        return RollTrial(
            kind=kind,
            manager=self._given.manager,
            at=at,
            commit=self._sources,
            machine=machine(),
            settings={name: getattr(self._given, name) for name in ("bundles", "rate", "quota")},
            seconds=round(seconds),
            moves=dict(sorted(Counter(self._moves[bundle] for bundle in self._real.topics).items())),
            again=self._again.total(),
            gaps=[round(gap, 3) for gap in sorted(gaps, reverse=True)],
            ranges=self._ranges,
            **messages(reports),
        )

    def _roll(self, *, back: bool) -> None:
        world, restarted = self._world, set[str]()
        shown = world.run("roll", reason="a new kernel")
        plan = shown.xcom("roll") or {}
        if "plan" not in plan:
            raise BenchmarkError(f"no roll was shown: {shown.xcom('roll', 'failure')}")
        roll = world.begin(world.start("roll", plan=plan["plan"]), "roll", last="roll")
        while roll.state == "running":
            now = world.document(Roll)
            say(f"  {now.progress}")
            if now.phase is Phase.RESTARTING and now.broker not in restarted:
                self._restart(self._real.brokers.broker_ids.index(now.broker))
                restarted.add(now.broker)
            if now.phase is Phase.RETURNING and not back:
                world.run("control", action="skip_broker", reason="its bundles stay where they are")
            else:
                self._run()
            roll = world.go_on(roll, last="roll")
        if roll.state != "success":
            raise BenchmarkError(f"the roll ended {roll.state}: {roll.xcom('roll', 'failure')}")

    def _stop_and_start(self) -> None:
        owners = self._real.owners()
        for broker in BROKERS:
            self._restart(broker)
            for _ in range(REPORTS):
                self._run()
            before, owners = owners, self._real.owners()
            self._moves.update(bundle for bundle in owners if owners[bundle] != before[bundle])

    @property
    def _judged(self) -> bool:
        return bool(self._ranges) and self._ranges[-1][0] >= JUDGED_AFTER_S

    def _restart(self, broker: int) -> None:
        self._real.restart(broker)
        self._restarted_at = time.monotonic()
        self._ranges.clear()
        self._fresh.clear()
        self._usage.pop(self._real.brokers.broker_ids[broker], None)

    def _run(self) -> bool:
        """Let the cluster's DAG run and note what it saw and did; return whether it succeeded."""
        begun = time.monotonic()
        run = self._world.run()
        if run.state != "success":
            say(f"  a run ended {run.state}: {run.xcom('validate', 'failure') or run.states}")
        else:
            self._note(run)
        time.sleep(max(0.0, begun + PACE_SECONDS - time.monotonic()))
        return run.state == "success"

    def _note(self, run: Outcome) -> None:
        """Note what has moved, and the range if every broker has measured its CPU again or it is time to judge."""
        written = Written.find(run.folder)
        for move in written.moves if written else ():
            self._moves[move.bundle] += move.attempts > 0
            self._again[move.bundle] += max(0, move.attempts - 1)
        rows = (run.folder / "input" / "brokers.parquet").read_table().to_pylist()
        usage = {row["broker"]: row["cpu_usage"] for row in rows}
        scores = [100 * row["cpu_usage"] / row["cpu_limit"] for row in rows]
        self._fresh |= {broker for broker, cpu in usage.items() if cpu != self._usage.get(broker, cpu)}
        self._usage = usage
        say(f"  run: scores {', '.join(f'{score:.0f}' for score in scores)}; {written.verdict if written else ''}")
        after = time.monotonic() - self._restarted_at if self._restarted_at else 0.0
        if len(self._fresh) == len(BROKERS) or (after >= JUDGED_AFTER_S and not self._judged):
            self._ranges.append((round(after), round(max(scores) - min(scores), 1)))
            self._fresh.clear()


if __name__ == "__main__":
    main(sys.argv[1:])
