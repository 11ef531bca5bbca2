"""Each rule of the cluster in steps of a minute, by a scene as small as it can be."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from pulsar_simulator.load import Cost
from pulsar_simulator.minutes.machines import BrokerColumns, CpuSpike, Event, Happening, Report, Rules, Spec
from pulsar_simulator.minutes.simulation import Simulation, Unload
from pulsar_simulator.minutes.workload import BundleColumns, Workload

STILL = Rules(
    cpu_noise=0.0, unload_cpu_seconds=0.0, reconnect_cpu_seconds=0.0, cost=Cost(per_message=1e-4, per_byte=0.0)
)
RATE = 1000.0  # of each bundle, msg/s in and the same out: 20 percent of a core


def bundles(count: int = 4, **columns: float) -> BundleColumns:
    shape = {"msg_rate_in": RATE, "msg_size": 100.0, "fan_out": 1.0, "cost": 1.0, "clients": 4}
    shape |= {"noise": 0.0, "daily": 0.0, "peak": 0.0, "trend": 0.0} | columns
    filled = {
        name: np.full(count, value, dtype=np.int64 if name == "clients" else float) for name, value in shape.items()
    }
    return BundleColumns(names=tuple(f"t/n/{i}" for i in range(count)), **filled)


def scene(
    workload: Workload | None = None,
    owner: tuple[int, ...] = (0, 0, 0, 1),
    rules: Rules = STILL,
    cores: tuple[float, ...] = (1.0, 1.0),
    nic: float = 1e6,
    events: tuple[Event, ...] = (),
    spikes: tuple[CpuSpike, ...] = (),
    started: tuple[bool, ...] | None = None,
    seed: int = 1,
) -> Simulation:
    count = len(cores)
    brokers = BrokerColumns(
        tuple(f"b{i}:8080" for i in range(count)), 100.0 * np.array(cores), np.full(count, nic), np.zeros(count)
    )
    return Simulation(
        Spec(
            brokers,
            workload or Workload(bundles(len(owner))),
            np.array(owner),
            np.array(started or (True,) * count),
            rules,
            events,
            spikes,
            seed,
        )
    )


def run(simulation: Simulation, minutes: int) -> list[Report]:
    return [simulation.step() for _ in range(minutes)]


DRAWN: dict[str, tuple[float, Rules, Callable[[Report], float]]] = {
    "traffic": (0.2, STILL, lambda report: report.rates.msg_rate_in[3]),
    "cpu": (0.0, replace(STILL, cpu_noise=0.1), lambda report: report.brokers.cpu[1]),
    "missing": (0.0, replace(STILL, missing=0.1), lambda report: report.reported[1]),
    "late": (0.0, replace(STILL, late=0.2), lambda report: report.age[1]),
    "look-up": (0.0, replace(STILL, session_seconds=0.0, reconnect_seconds=30.0), lambda report: report.owner[0]),
}
"""What is random: noise of the traffic, rules, and where it shows. Nothing else is random beside it."""

STOPS = tuple(Event(minute, minute // 2 % 2, (Happening.STOP, Happening.START)[minute % 2]) for minute in range(300))
"""Each broker in turn is stopped for a minute."""


def history(what: str, seed: int) -> list[float]:
    noise, rules, value = DRAWN[what]
    events = STOPS if what == "look-up" else ()
    simulation = scene(Workload(bundles(noise=noise), seed=seed), rules=rules, seed=seed, events=events)
    return [float(value(report)) for report in run(simulation, 300)]


@pytest.mark.parametrize("what", DRAWN)
def test_equal_seeds_give_equal_runs_and_other_seeds_others(what: str) -> None:
    assert history(what, 1) == history(what, 1)
    assert history(what, 1) != history(what, 2)


def test_an_unload_costs_a_dip_and_a_storm_of_clients_then_it_is_over() -> None:
    rules = replace(STILL, unload_seconds=6.0, unload_cpu_seconds=3.0, reconnect_cpu_seconds=1.5)
    simulation = scene(rules=rules)
    simulation.step()
    simulation.unload([Unload(0, 1)])
    during, after = run(simulation, 2)
    assert [during.owner[0], after.owner[0]] == [1, 1]
    assert [during.rates.msg_rate_in[0], after.rates.msg_rate_in[0]] == pytest.approx([0.9 * RATE, RATE])
    # 20 of its own, 18 of the bundle, 3 s in a minute for its arrival, and four clients of 1.5 s.
    assert list(during.brokers.cpu) == pytest.approx([40 + 5, 20 + 18 + 5 + 10])
    assert list(after.brokers.cpu) == pytest.approx([40, 40])
