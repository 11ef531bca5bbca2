"""Each rule of the cluster in steps of a minute, by a scene as small as it can be."""

from dataclasses import replace

import numpy as np
import pytest

from pulsar_simulator.load import Cost
from pulsar_simulator.minutes.machines import BrokerColumns, ClusterRules, RunSpec
from pulsar_simulator.minutes.simulation import Simulation, Unload
from pulsar_simulator.minutes.workload import BundleColumns, Workload

STILL = ClusterRules(
    cpu_noise=0.0, unload_cpu_seconds=0.0, reconnect_cpu_seconds=0.0, cost=Cost(per_message=1e-4, per_byte=0.0)
)
RATE = 1000.0  # of each bundle, msg/s in and the same out: 20 percent of a core


def scene(rules: ClusterRules) -> Simulation:
    """Two brokers of one core each; three of four bundles are on the first."""
    shape = {"msg_rate_in": RATE, "msg_size": 100.0, "fan_out": 1.0, "cost": 1.0, "noise": 0.0, "daily": 0.0}
    columns = {name: np.full(4, value) for name, value in (shape | {"peak": 0.0, "trend": 0.0}).items()}
    bundles = BundleColumns(names=tuple(f"t/n/{i}" for i in range(4)), clients=np.full(4, 4), **columns)
    brokers = BrokerColumns(("b0:8080", "b1:8080"), np.full(2, 100.0), np.full(2, 1e6), np.zeros(2))
    started = np.array([True, True])
    return Simulation(RunSpec(brokers, Workload(bundles), np.array((0, 0, 0, 1)), started, rules, (), (), 1))


def test_an_unload_costs_a_dip_and_a_storm_of_clients_then_it_is_over() -> None:
    rules = replace(STILL, unload_seconds=6.0, unload_cpu_seconds=3.0, reconnect_cpu_seconds=1.5)
    simulation = scene(rules)
    simulation.run_minute()
    simulation.unload([Unload(0, 1)])
    during, after = simulation.run_minute(), simulation.run_minute()
    assert [during.owner[0], after.owner[0]] == [1, 1]
    assert [during.rates.msg_rate_in[0], after.rates.msg_rate_in[0]] == pytest.approx([0.9 * RATE, RATE])
    # 20 of its own, 18 of the bundle, 3 s in a minute for its arrival, and four clients of 1.5 s.
    assert list(during.brokers.cpu) == pytest.approx([40 + 5, 20 + 18 + 5 + 10])
    assert list(after.brokers.cpu) == pytest.approx([40, 40])
