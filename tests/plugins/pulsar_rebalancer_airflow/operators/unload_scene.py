from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from tests.airflow_context import MemoryState, context
from tests.airflow_runs import CLUSTER, make_run, move_row

from pulsar_rebalancer.run.plan import Summary
from pulsar_rebalancer.state import DecisionState
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer_airflow.operators import UnloadWaveOperator
from pulsar_simulator.cluster import Cluster
from pulsar_simulator.serve import RunningCluster

Moves = list[dict[str, Any]]


def unload(run: str, state: Any, wave: int = 0, **present: Any) -> dict[str, int]:
    settings = {"mode": "auto", "connection": "pulsar_test"} | present
    operator = UnloadWaveOperator(task_id="unload", cluster=CLUSTER, settings=settings, run=run, wave=wave)
    return operator.execute(context(CLUSTER, state))


@dataclass
class UnloadScene:
    served: RunningCluster
    storage: ClusterStorage
    state: MemoryState
    monkeypatch: pytest.MonkeyPatch

    @property
    def cluster(self) -> Cluster:
        return self.served.cluster

    def moves(self, count: int) -> Moves:
        report = {b: self.cluster.load_report(b)["lastStats"] for b in self.cluster.active_brokers()}
        brokers = sorted(report)
        rows: Moves = []
        ranges: set[str] = set()
        for number, source in enumerate(brokers):
            for name, stats in report[source].items():
                hash_range = name.rpartition("/")[2]
                if stats["topics"] and hash_range not in ranges and not name.startswith("pulsar/"):
                    ranges.add(hash_range)
                    destination = brokers[(number + 1) % len(brokers)]
                    rows.append(move_row(len(rows), source, destination) | {"bundle": name})
        return rows[:count]

    def run(self, moves: Moves, **given: Any) -> StoragePath:
        run = make_run(self.storage, moves, **given)
        document = (run / "plan" / "state.json").read_json()
        self.state.set(DecisionState.KEY, document | {"plan_hash": Summary.read(run).hash})
        self.state.writes.clear()
        return run

    def unload(self, run: StoragePath, wave: int = 0, **present: Any) -> dict[str, int]:
        return unload(run.uri, self.state, wave, **present)

    def third(self, move: dict[str, Any]) -> str:
        return next(b for b in self.cluster.active_brokers() if b not in (move["source"], move["destination"]))

    def place_on_a_third(self, move: dict[str, Any]) -> None:
        third, topology = self.third(move), self.cluster.topology
        self.cluster.unload(move["bundle"], third)
        assert self.cluster.lookup(topology.topics(topology.index(move["bundle"]))[0]) == third

    def all_on(self, moves: Moves, where: str) -> bool:
        return all(self.cluster.owner(move["bundle"]) == move[where] for move in moves)

    def before_unloads(self, act: Callable[[str], Any]) -> None:
        """Call this with the bundle before the brokers see a hop of its unload."""
        real = self.cluster.unload_via

        def unload_via(at: int, namespace: str, hash_range: str, destination: str | None = None) -> Any:
            act(f"{namespace}/{hash_range}")
            return real(at, namespace, hash_range, destination)

        self.monkeypatch.setattr(self.cluster, "unload_via", unload_via)
