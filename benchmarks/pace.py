"""What moves cost their clients at a fixed and at an adaptive pace: `python -m benchmarks.pace`, an hour.

Moves all bundles from one real broker to another, and prints what it measured. It is no part of docs/performance.md,
whose parts are measured together.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from tests.pulsar.admin import Admin, topics_in_bundles
from tests.pulsar.cluster import PulsarCluster
from tests.pulsar.distribution import DistributionError, from_dependencies
from tests.pulsar.events import await_that
from tests.pulsar.load import Load

from benchmarks.measure import BenchmarkError, Comparison, Taken, alternately, median
from benchmarks.trials import options_of
from pulsar_rebalancer.admin import AdminConnection, PulsarAdmin
from pulsar_rebalancer.admin.topic_statistics import clients_in, topics_in
from pulsar_rebalancer.carry_out.harm_meter import WATCHED_S, HarmMeter
from pulsar_rebalancer.carry_out.move_executor import carry_out_moves
from pulsar_rebalancer.carry_out.pace import AdaptivePace
from pulsar_rebalancer.config.settings import MOST_MOVES, Settings
from pulsar_rebalancer.run.plan import Move

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.pulsar.distribution import Distribution

    from pulsar_rebalancer.run.harm import Harm
    from pulsar_rebalancer.run.outcome import MoveOutcome

VERSION = "4.2.4"
NAMESPACE = "tests/pace"
TOPICS, RATE = 4, 2.0
"""Topics of a bundle, each with a producer, and messages per second of each."""

BUNDLES, MANY_BUNDLES = 64, 512
"""A wave of the second number has one topic per bundle: it is long enough that its first moves do not decide."""

SHORT_US = 10_000
"""CPU quota of brokers that are short of it, microseconds in 100 ms."""

WARMING = 20
"""First moves of a wave, which do not count where brokers are short of CPU."""

AUTO = "auto"
"""A pace with the default of `max_client_gap_seconds`; `auto 0.5` has another one."""

_RETRIES, _TIMEOUT_SECONDS = 2, 60


class _Kind(NamedTuple):
    """A kind of wave.

    Attributes:
        topics: topics per bundle.
        throttle: number of moves after which the brokers lack CPU: the source, and from the start the destination too;
            None if they never do.
    """

    paces: tuple[str, ...]
    bundles: int = BUNDLES
    topics: int = TOPICS
    throttle: int | None = None


KINDS = {
    "idle brokers": _Kind((AUTO, "1", "4", "8", "16", "32"), MANY_BUNDLES, 1),
    "brokers short of CPU": _Kind((AUTO, "4"), throttle=0),
    "a broker throttled midway": _Kind((AUTO, "4"), throttle=BUNDLES // 2),
    "max_client_gap_seconds on brokers short of CPU": _Kind(
        ("auto 0.5", "auto 1", "auto 2", "auto 4", "auto 8"), throttle=0
    ),
}


class _Wave(NamedTuple):
    """The moves of one wave.

    Attributes:
        gaps: seconds for which clients of each move were away, in the order in which moves ended.
        throttled_at: number of moves that had ended when a broker was throttled.
        again: number of moves whose bundle was unloaded more than once.
        astray: number of moves whose bundle is not on its destination.
    """

    seconds: float
    gaps: list[float]
    throttled_at: int
    again: int
    astray: int


def main() -> None:
    """Measure waves at each pace for each kind of wave."""
    parser = options_of("benchmarks.pace", __doc__ or "")
    parser.add_argument("--only", default="", metavar="TEXT", help="kinds of waves whose names begin with this (all)")
    parser.add_argument("--repetitions", type=int, default=5, help="number of waves at each pace (5)")
    given = parser.parse_args()
    for comparison in measure(given.repetitions, given.only):
        figures = ", ".join(f"{pace} {median(taken):.2f}" for pace, taken in comparison.taken.items())
        print(f"{comparison.name}: {figures}; {comparison.remark}", flush=True)


def measure(repetitions: int, only: str) -> Iterator[Comparison]:
    """Move all bundles from broker to broker at each pace in turn, while a producer is connected to each."""
    try:
        pulsar = from_dependencies(VERSION)
    except DistributionError as error:
        raise BenchmarkError(str(error)) from error
    for name, kind in KINDS.items():
        if name.startswith(only):
            with tempfile.TemporaryDirectory() as folder:
                yield _compared(pulsar, Path(folder), name, kind, repetitions)


def _compared(pulsar: Distribution, folder: Path, name: str, kind: _Kind, repetitions: int) -> Comparison:
    with PulsarCluster(pulsar, folder, cgroups=True) as cluster, Admin(cluster) as admin:
        ranges = admin.create_namespace(NAMESPACE, kind.bundles)
        found = topics_in_bundles(NAMESPACE, ranges, kind.topics)
        topics = {f"{NAMESPACE}/{one}": names for one, names in found.items()}
        rates = dict.fromkeys((name for names in topics.values() for name in names), RATE)
        with Load(cluster, rates, folder / "load.log") as load:
            load.start()
            scene = _Scene(cluster, admin, topics, kind)
            scene.wave("4", throttled=False)
            return scene.comparison(name, repetitions)


class _Scene:
    """All bundles on one broker after another."""

    def __init__(self, cluster: PulsarCluster, admin: Admin, topics: dict[str, list[str]], kind: _Kind) -> None:
        self._kind = kind
        self._cluster = cluster
        self._admin = admin
        self._topics = topics
        self._next = 0

    def comparison(self, name: str, repetitions: int) -> Comparison:
        """Compare paces: by seconds of the wave on idle brokers, else by the 95th percentile of gaps."""
        waves: dict[str, list[_Wave]] = {pace: [] for pace in self._kind.paces}

        def subject(pace: str) -> Callable[[], Taken]:
            def moved() -> Taken:
                wave = self.wave(pace)
                waves[pace].append(wave)
                p95 = float(np.percentile(wave.gaps[max(wave.throttled_at, WARMING) :], 95))
                print(
                    f"  {name}, {pace}: {wave.seconds:.1f} s, gap {p95:.2f} s, "
                    f"{wave.again} unloaded again, {wave.astray} astray",
                    file=sys.stderr,
                )
                return Taken(wave.seconds if self._kind.throttle is None else p95)

            return moved

        taken = alternately({pace: subject(pace) for pace in self._kind.paces}, repetitions)
        remark = "; ".join(
            f"{pace}: {statistics.median(wave.seconds for wave in of_pace):.1f} s, "
            f"{sum(wave.again for wave in of_pace)} unloaded again, {sum(wave.astray for wave in of_pace)} astray"
            for pace, of_pace in waves.items()
        )
        return Comparison(name, taken, remark=remark)

    def wave(self, pace: str, *, throttled: bool = True) -> _Wave:
        """Move all bundles to the next broker at a pace, on brokers that lack CPU as the kind says."""
        throttle = self._kind.throttle if throttled else None
        self._gather()
        ids = self._cluster.broker_ids
        source, self._next = self._next, (self._next + 1) % len(ids)
        moves = [
            Move(bundle=bundle, source=ids[source], destination=ids[self._next], wave=0, traffic=1.0, measure="rate")
            for bundle in self._topics
        ]
        throttled_at = 0
        ended: list[str] = []

        def on_outcome(outcome: MoveOutcome) -> None:
            nonlocal throttled_at
            ended.append(outcome.bundle)
            if throttle and len(ended) == throttle:
                throttled_at = throttle
                self._cluster.set_cpu_quota(self._next, SHORT_US)

        if throttle == 0:
            for broker in (source, self._next):
                self._cluster.set_cpu_quota(broker, SHORT_US)
        begun = time.monotonic()
        outcomes, harms = asyncio.run(_carried_out(self._cluster.web_url(0), moves, pace, on_outcome))
        seconds = time.monotonic() - begun
        for broker in (source, self._next):
            self._cluster.set_cpu_quota(broker, None)
        unknown = [bundle for bundle in ended if bundle not in harms or harms[bundle].unknown]
        if len(unknown) > len(moves) // 4:
            raise BenchmarkError(f"the gaps of {len(unknown)} moves are unknown: {harms.get(unknown[0])}")
        gaps = [harms[bundle].clients_seconds or WATCHED_S for bundle in ended if bundle not in unknown]
        again, astray = sum(end.attempts > 1 for end in outcomes), sum(not end.ok for end in outcomes)
        return _Wave(seconds, gaps, throttled_at, again, astray)

    def _gather(self) -> None:
        """Have the present broker own all bundles, each with its producer."""
        wanted = self._cluster.broker_ids[self._next]
        for bundle, (topic, *_) in self._topics.items():
            if self._admin.owner(bundle) != wanted:
                namespace, _, bundle_range = bundle.rpartition("/")
                self._admin.move(namespace, bundle_range, topic, self._next)

        def known() -> bool:
            """Return whether the broker's statistics have all producers: moves are measured by them."""
            stats = self._admin.get("broker-stats/topics", broker=self._next)
            found = [topics_in(stats, bundle) for bundle in self._topics]
            return all(
                sum(any(clients_in(one) or ()) for one in topics.values()) == self._kind.topics for topics in found
            )

        await_that(known)


async def _carried_out(
    seed: str, moves: list[Move], pace: str, on_outcome: Callable[[MoveOutcome], None]
) -> tuple[list[MoveOutcome], dict[str, Harm]]:
    harms: dict[str, Harm] = {}
    adaptive, _, limit = pace.partition(" ") if pace.startswith(AUTO) else ("", "", "")
    gap_seconds = float(limit or Settings().max_client_gap_seconds)
    async with PulsarAdmin(AdminConnection(seeds=(seed,))) as admin:
        outcomes = await carry_out_moves(
            admin.bundles,
            moves,
            concurrency=MOST_MOVES if adaptive else int(pace),
            retries=_RETRIES,
            timeout_seconds=_TIMEOUT_SECONDS,
            on_outcome=on_outcome,
            meter=HarmMeter(admin, moves, harms.__setitem__),
            pace=AdaptivePace(gap_seconds) if adaptive else None,
        )
    return outcomes, harms


if __name__ == "__main__":
    main()
