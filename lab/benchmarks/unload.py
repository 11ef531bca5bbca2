"""`unload`: bundles moved at once between real brokers, next to one after the other, as Pulsar moves them itself."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.patience import awaited
from tests.pulsar.admin import Admin, topics_in_bundles
from tests.pulsar.cluster import PulsarCluster
from tests.pulsar.distribution import DistributionError, from_dependencies
from tests.pulsar.load import Load

from lab.benchmarks.measure import BenchmarkError, Comparison, Taken, alternately
from pulsar_rebalancer.carry_out.move_executor import carry_out_moves
from pulsar_rebalancer.pulsar import AdminConnection, BundleAdmin
from pulsar_rebalancer.pulsar.transport import Transport
from pulsar_rebalancer.run.plan import Move

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pulsar_rebalancer.run.outcome import MoveOutcome

VERSION = "4.2.4"
NAMESPACES, RANGES = ("tests/one", "tests/two"), 32
"""Two namespaces with the same hash ranges: all of them are one wave."""

AT_ONCE = (1, 4, 16)
ONE = "one after the other"
_TIMEOUT_SECONDS = 60


def measure(repetitions: int, only: str) -> Iterator[Comparison]:
    """Move all bundles from broker to broker, several at once, while a producer is connected to each."""
    try:
        pulsar = from_dependencies(VERSION)
    except DistributionError as error:
        raise BenchmarkError(str(error)) from error
    with tempfile.TemporaryDirectory() as folder, PulsarCluster(pulsar, Path(folder)) as cluster:
        topics: dict[str, str] = {}
        with Admin(cluster) as admin:
            for namespace in NAMESPACES:
                ranges = admin.create_namespace(namespace, RANGES)
                found = topics_in_bundles(namespace, ranges, 1)
                topics |= {f"{namespace}/{each}": topic for each, (topic,) in found.items()}
            with Load(cluster, dict.fromkeys(topics.values(), 5.0), Path(folder) / "load.log") as load:
                load.start()
                awaited(lambda: all(topic in admin.topics(bundle) for bundle, topic in topics.items()))
                scene = _Scene(cluster, admin, list(topics))
                scene.carried_out(4)  # gathers the bundles on one broker, and warms everybody up
                taken = alternately({str(each): scene.moving(each) for each in AT_ONCE}, repetitions)
    for each in AT_ONCE:
        if only in (name := f"{each} at once"):
            outcomes = scene.outcomes[each]
            yield Comparison(
                name, {"all moves": taken[str(each)], ONE: taken["1"]}, remark=_remark(outcomes, taken[str(each)])
            )


def _remark(outcomes: list[MoveOutcome], taken: list[Taken]) -> str:
    a_second = len(outcomes) / sum(each.seconds for each in taken)
    again = sum(outcome.attempts > 1 for outcome in outcomes)
    missed = sum(not outcome.ok for outcome in outcomes)
    return f"{a_second:.1f} moves a second, {again} unloaded again, {missed} missed"


class _Scene:
    """All bundles on one broker after another."""

    def __init__(self, cluster: PulsarCluster, admin: Admin, bundles: list[str]) -> None:
        self.outcomes: dict[int, list[MoveOutcome]] = {each: [] for each in AT_ONCE}
        self._cluster = cluster
        self._admin = admin
        self._bundles = bundles
        self._next = 0

    def moving(self, at_once: int) -> Callable[[], Taken]:
        """Return what moves all bundles to the next broker, and brings those home that went astray."""

        def moved() -> Taken:
            begun = time.monotonic()
            self.outcomes[at_once] += self.carried_out(at_once)
            seconds = time.monotonic() - begun
            self.gather()
            return Taken(seconds)

        return moved

    def carried_out(self, at_once: int) -> list[MoveOutcome]:
        """Move all bundles to the next broker."""
        ids = self._cluster.broker_ids
        self._next = (self._next + 1) % len(ids)
        destination = ids[self._next]
        owners = {bundle: self._admin.owner(bundle) for bundle in self._bundles}
        moves = [
            Move(bundle=bundle, source=owner, destination=destination, wave=0, traffic=1.0, measure="msg_rate")
            for bundle, owner in owners.items()
            if owner != destination
        ]
        return asyncio.run(_moved(self._cluster.web_url(0), moves, at_once))

    def gather(self) -> None:
        """Have the present broker own all bundles."""
        wanted = self._cluster.broker_ids[self._next]
        for _ in range(10):
            if {self._admin.owner(bundle) for bundle in self._bundles} == {wanted}:
                return
            self._next -= 1
            self.carried_out(1)
        raise BenchmarkError(f"bundles do not stay on {wanted}")


async def _moved(seed: str, moves: list[Move], at_once: int) -> list[MoveOutcome]:
    async with Transport(AdminConnection(seeds=(seed,))) as transport:
        return await carry_out_moves(
            BundleAdmin(transport),
            moves,
            concurrency=at_once,
            timeout_seconds=_TIMEOUT_SECONDS,
            on_outcome=lambda _: None,
        )
