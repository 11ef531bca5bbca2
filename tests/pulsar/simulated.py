"""What a real cluster went through, once more in the simulated one: the same brokers, bundles and settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from experiments.run import minute_of, true_scores

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.replay.balancer import Balancer
from pulsar_rebalancer.replay.columns import Roster
from pulsar_simulator.load import Cost
from pulsar_simulator.minutes.machines import BrokerColumns
from pulsar_simulator.minutes.simulation import Simulation, Unload
from pulsar_simulator.minutes.spec import Rules, Spec
from pulsar_simulator.minutes.workload import BundleColumns, Workload

if TYPE_CHECKING:
    from tests.pulsar.rebalancing import Run

_NIC = 1e6


class Course(NamedTuple):
    """How a cluster was balanced.

    Attributes:
        waited: samples before the one after which bundles first moved.
        moved: bundles moved, each time.
        bundles: on each broker at the end, most first.
        before: scores of the brokers when bundles first moved, percent, highest first.
        after: likewise at the end.
    """

    waited: int
    moved: list[int]
    bundles: list[int]
    before: list[float]
    after: list[float]


def scores_of(run: Run) -> list[float]:
    """Scores of real brokers, percent, highest first."""
    return _in_order(100 * row["cpu_usage"] / row["cpu_limit"] for row in run.table("brokers"))


def bundles_of(run: Run, namespace: str) -> list[int]:
    """Bundles of a namespace on each broker, most first."""
    held = [row["broker"] for row in run.table("bundles") if row["bundle"].startswith(f"{namespace}/")]
    return sorted((held.count(row["broker"]) for row in run.table("brokers")), reverse=True)


def simulated(first: Run, namespace: str, settings: dict[str, Any], minutes: int) -> Course:
    """The course of a simulated cluster that begins as the real one was in a run.

    What a message costs is what the loaded broker used beyond the idle ones there; all else are the simulation's rules.
    """
    brokers = sorted(first.table("brokers"), key=lambda row: str(row["broker"]))
    rows = [row for row in first.table("bundles") if row["bundle"].startswith(f"{namespace}/")]
    rows.sort(key=lambda row: str(row["bundle"]))
    names = [row["broker"] for row in brokers]
    usage = np.array([row["cpu_usage"] for row in brokers])
    rate = np.array([row["msg_rate_in"] for row in rows])
    idle = float(np.delete(usage, usage.argmax()).mean())
    columns = BrokerColumns(
        names=tuple(names),
        cpu_limit=np.array([row["cpu_limit"] for row in brokers]),
        nic=np.full(len(names), _NIC),
        base_cpu=np.full(len(names), idle),
    )
    bundles = BundleColumns(
        names=tuple(row["bundle"] for row in rows),
        msg_rate_in=rate,
        msg_size=np.full(len(rows), 100.0),
        clients=np.ones(len(rows), dtype=np.int64),
        cost=np.ones(len(rows)),
        **{name: np.zeros(len(rows)) for name in ("fan_out", "noise", "daily", "peak", "trend")},
    )
    rules = Rules(cpu_noise=0, cost=Cost(per_message=(float(usage.max()) - idle) / 100 / float(rate.sum()), per_byte=0))
    owner = np.array([names.index(row["broker"]) for row in rows])
    simulation = Simulation(Spec(columns, Workload(bundles), owner, np.ones(len(names), dtype=bool), rules))
    balancer = Balancer(Roster(columns.names, bundles.names), Settings(**settings))
    waited, moved, before = 0, list[int](), list[float]()
    for _ in range(minutes):
        report = simulation.step()
        moves = balancer.decide(minute_of(report, columns))
        if moves:
            moved.append(len(moves))
            before = before or _in_order(true_scores(simulation))
            simulation.unload(Unload(move.bundle, move.destination) for move in moves)
        waited += not moved
    held = np.bincount(simulation.owner, minlength=len(names)).tolist()
    return Course(waited, moved, sorted(held, reverse=True), before, _in_order(true_scores(simulation)))


def _in_order(scores: Any) -> list[float]:
    return sorted((round(float(score), 1) for score in scores), reverse=True)
