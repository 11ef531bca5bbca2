"""Each rule of the cluster in steps of a minute, by a scene as small as it can be."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pulsar_simulator.load import NOBODY, Cost
from pulsar_simulator.minutes.machines import BrokerColumns
from pulsar_simulator.minutes.simulation import Simulation, Unload
from pulsar_simulator.minutes.spec import CpuSpike, Event, Happening, Rules, Spec
from pulsar_simulator.minutes.workload import BundleColumns, OnOff, Spike, Workload

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsar_simulator.minutes.reports import Report

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
    noise, rules, figure = DRAWN[what]
    events = STOPS if what == "look-up" else ()
    simulation = scene(Workload(bundles(noise=noise), seed=seed), rules=rules, seed=seed, events=events)
    return [float(figure(report)) for report in run(simulation, 300)]


@pytest.mark.parametrize("what", DRAWN)
def test_equal_seeds_give_equal_runs_and_other_seeds_others(what: str) -> None:
    assert history(what, 1) == history(what, 1)
    assert history(what, 1) != history(what, 2)


def test_a_minute_is_the_same_whatever_was_asked_before() -> None:
    workload = Workload(bundles(noise=0.2))
    late = workload.at(700).msg_rate_in
    workload.at(3)
    assert (workload.at(700).msg_rate_in == late).all()


def test_a_bundle_waits_equally_long_whatever_was_lost_before() -> None:
    rules = replace(STILL, session_seconds=0.0, reconnect_seconds=20.0)
    calm, busy = (scene(rules=rules, events=(Event(3, 0, Happening.STOP),)) for _ in range(2))
    calm.unload([Unload(1, 1), Unload(2, 1)])  # so that it loses only one of three
    served = [run(simulation, 4)[-1].rates.msg_rate_in[0] for simulation in (calm, busy)]
    assert served[0] == served[1]
    assert 0 < served[0] < RATE


def test_reports_are_disturbed_equally_whatever_moves() -> None:
    rules = replace(STILL, cpu_noise=0.1, late=0.2, missing=0.1)
    still, busy = (scene(rules=rules) for _ in range(2))
    for minute in range(300):
        busy.unload([Unload(minute % 4, minute % 2)])
        one, other = still.step(), busy.step()
        assert list(one.reported) == list(other.reported)
        assert list(one.age) == list(other.age)
        truth = [simulation.truth.cpu for simulation in (still, busy) if simulation.truth is not None]
        fresh = (one.age == 0) & (truth[0] > 0) & (truth[1] > 0) & (truth[0] < 90) & (truth[1] < 90)
        noise = [(report.brokers.cpu / cpu)[fresh] for report, cpu in zip((one, other), truth, strict=True)]
        assert noise[0] == pytest.approx(noise[1])


def test_what_bundles_and_brokers_draw_does_not_depend_on_how_many_others_there_are() -> None:
    few, many = (Workload(bundles(count, noise=0.2)).at(300).msg_rate_in for count in (4, 9))
    assert list(few) == list(many[:4])
    rules = replace(STILL, cpu_noise=0.1, late=0.2, missing=0.1)
    two, three = (run(scene(cores=(1.0,) * count, rules=rules), 50) for count in (2, 3))
    for small, large in zip(two, three, strict=True):
        assert list(small.brokers.cpu) == list(large.brokers.cpu[:2])
        assert list(small.reported) == list(large.reported[:2])
        assert list(small.age) == list(large.age[:2])


ALL = np.arange(4)


@pytest.mark.parametrize(
    ("workload", "minutes", "published", "delivered"),
    [
        (Workload(bundles(daily=0.5, peak=6.0)), (0, 360, 720, 1080), (1, 1.5, 1, 0.5), None),
        (Workload(bundles(trend=0.1)), (0, 1440, 2880), (1, 1.1, 1.2), None),
        (Workload(bundles(), on_off=(OnOff(ALL, 1, 2),)), range(4), (3, 0, 0, 3), None),
        (Workload(bundles(), on_off=(OnOff(ALL, 1, 1, consume_only=True),)), range(3), (1, 1, 1), (2, 0, 2)),
        (Workload(bundles(), spikes=(Spike(ALL[:1], 2, 1, 9.0),)), range(4), (1, 1, 9, 1), None),
        (Workload(bundles(fan_out=3.0)), range(2), (1, 1), (3, 3)),
    ],
    ids=["daily", "trend", "on/off", "consumers on/off", "spike", "fan-out"],
)
def test_traffic_over_time(workload, minutes, published, delivered) -> None:
    rates = [workload.at(minute) for minute in minutes]
    assert [rate.msg_rate_in[0] / RATE for rate in rates] == pytest.approx(published)
    assert [rate.msg_rate_out[0] / RATE for rate in rates] == pytest.approx(delivered or published)
    assert all(rate.msg_throughput_in[0] == 100 * rate.msg_rate_in[0] for rate in rates)


def test_noise_has_the_spread_that_was_asked_for() -> None:
    workload = Workload(bundles(noise=0.1))
    assert np.std([workload.at(minute).msg_rate_in / RATE for minute in range(1024)]) == pytest.approx(0.1, rel=0.1)


def test_cpu_follows_the_bundles_that_a_broker_owns_and_its_cores() -> None:
    cpu = run(scene(cores=(1.0, 2.0)), 1)[0].brokers
    assert cpu.cpu == pytest.approx([60, 20])
    simulation = scene(cores=(1.0, 2.0))
    simulation.step()
    assert simulation.truth is not None
    assert simulation.truth.score(simulation.spec.brokers) == pytest.approx([60, 10])


def test_a_broker_costs_something_as_soon_as_it_has_traffic() -> None:
    simulation = scene(owner=(0, 0), rules=replace(STILL, busy_cpu=5.0))
    assert list(simulation.step().brokers.cpu) == pytest.approx([45, 0], abs=0.1)
    simulation.unload([Unload(0, 1)])
    assert list(simulation.step().brokers.cpu) == pytest.approx([25, 25], abs=0.1)


def test_messages_of_a_dear_bundle_cost_more() -> None:
    assert run(scene(Workload(bundles(cost=1.5))), 1)[0].brokers.cpu == pytest.approx([90, 30])


def test_traffic_costs_more_on_a_slow_broker_whose_report_shows_no_reason() -> None:
    spec = scene().spec
    slow = Simulation(replace(spec, brokers=replace(spec.brokers, slowness=np.array([1.5, 1.0]))))
    (usual,), (slowed,) = run(Simulation(spec), 1), run(slow, 1)
    assert slowed.brokers.cpu == pytest.approx(usual.brokers.cpu * [1.5, 1.0])
    assert slowed.rates.msg_rate_in.tolist() == usual.rates.msg_rate_in.tolist()


def test_a_series_multiplies_the_traffic_minute_by_minute() -> None:
    series = np.array([[1.0, 2.0], [0.0, 3.0]])
    workload = Workload(bundles(2), series=series)
    assert [(workload.at(minute).msg_rate_in / RATE).tolist() for minute in range(3)] == [[1, 2], [0, 3], [0, 3]]
    assert (workload.at(0).msg_rate_out / RATE).tolist() == [1, 2]


def test_bandwidth_follows_the_bytes() -> None:
    report = run(scene(Workload(bundles(fan_out=2.0, msg_rate_in=100.0))), 1)[0]
    assert report.brokers.bandwidth_in == pytest.approx([240, 80])  # 3 x 100 msg/s of 100 bytes, in Kbit/s
    assert report.brokers.bandwidth_out == pytest.approx([480, 160])


@pytest.mark.parametrize(("cores", "nic"), [((0.3, 1.0), 1e6), ((1.0, 1.0), 1200.0)], ids=["cpu", "network"])
def test_a_broker_without_room_lets_less_through(cores, nic) -> None:
    report = run(scene(cores=cores, nic=nic), 1)[0]
    assert report.rates.msg_rate_in == pytest.approx([RATE / 2] * 3 + [RATE])
    assert report.brokers.traffic.msg_rate_in == pytest.approx([1.5 * RATE, RATE])
    assert report.brokers.cpu == pytest.approx([30, 20])


def test_cpu_that_something_else_takes() -> None:
    reports = run(scene(spikes=(CpuSpike(1, 1, 1, 50.0),)), 3)
    assert [report.brokers.cpu[1] for report in reports] == pytest.approx([20, 70, 20])
    assert reports[1].brokers.traffic.msg_rate_in[1] == RATE


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


def test_seconds_in_which_a_bundle_serves_nobody_are_known() -> None:
    rules = replace(STILL, unload_seconds=6.0, session_seconds=90.0, reconnect_seconds=0.0)
    simulation = scene(rules=rules, events=(Event(2, 0, Happening.STOP),))
    down = []
    for minute in range(5):
        if minute == 1:
            simulation.unload([Unload(0, 1)])
        simulation.step()
        down.append(simulation.down.tolist())
    # The second bundle's broker stops after two minutes, and its session ends in the middle of the fourth.
    assert [row[0] for row in down] == [0, 6, 0, 0, 0]
    assert [row[1] for row in down] == [0, 0, 60, 30, 0]
    assert [row[3] for row in down] == [0] * 5


def test_a_destination_that_is_gone_refuses_the_unload() -> None:
    simulation = scene(events=(Event(0, 1, Happening.STOP),))
    run(simulation, 2)
    simulation.unload([Unload(0, 1)])
    assert simulation.step().owner[0] == 0


@pytest.mark.parametrize(("direct", "clients", "owned"), [(False, 4, True), (False, 0, False), (True, 0, True)])
def test_who_has_no_destination_is_placed_by_a_look_up_or_at_once(direct, clients, owned) -> None:
    rules = replace(STILL, direct=direct, unload_seconds=59.9)
    asked: list[list[int]] = []

    def place(bundle: int, candidates: list[int]) -> int:
        asked.append(candidates)
        return 1

    simulation = Simulation(replace(scene(Workload(bundles(clients=clients)), rules=rules).spec), place)
    simulation.step()
    simulation.unload([Unload(0)])
    reports = [simulation.step(), run(simulation, 9)[-1]]
    assert [report.owner[0] == 1 for report in reports] == [owned] * 2
    assert [report.rates.msg_rate_in[0] > 0 for report in reports] == [owned] * 2
    assert asked == ([[0, 1]] if owned else [])


def test_a_broker_that_stops_is_noticed_later_and_its_bundles_are_placed_elsewhere() -> None:
    simulation = scene(rules=replace(STILL, session_seconds=90.0), events=(Event(1, 0, Happening.STOP),))
    before, stopped, noticed, after = run(simulation, 4)
    assert [list(report.registered) for report in (stopped, noticed)] == [[True, True], [False, True]]
    assert [list(report.reported) for report in (before, stopped, after)] == [
        [True, True],
        [False, True],
        [False, True],
    ]
    assert list(stopped.owner) == [0, 0, 0, 1]
    assert stopped.brokers.traffic.msg_rate_in[0] == 0
    assert list(after.owner) == [1, 1, 1, 1]


def test_a_broker_starts_empty_and_is_given_nothing_until_something_moves() -> None:
    simulation = scene(cores=(1.0, 1.0, 1.0), started=(True, True, False), events=(Event(1, 2, Happening.START),))
    before, joined = run(simulation, 2)
    assert [list(before.registered), list(joined.registered)] == [[True, True, False], [True, True, True]]
    assert joined.brokers.cpu[2] == 0
    simulation.unload([Unload(0, 2)])
    assert simulation.step().owner[0] == 2


def test_a_broker_that_restarts_at_once_loses_its_bundles() -> None:
    events = (Event(1, 0, Happening.STOP), Event(1, 0, Happening.START))
    simulation = Simulation(scene(events=events).spec, lambda bundle, candidates: 1)
    _, restarted, after = run(simulation, 3)
    assert list(restarted.registered) == [True, True]
    assert list(after.owner) == [1, 1, 1, 1]


def test_bundles_that_nobody_owns_yet_are_placed_in_the_first_minute() -> None:
    assert sorted(run(scene(owner=(NOBODY,) * 4), 1)[0].owner) == [0, 0, 1, 1]


def test_a_late_report_is_that_of_the_minute_before() -> None:
    workload = Workload(bundles(), spikes=(Spike(ALL, 1, 1, 2.0),))
    first, second = run(scene(workload, rules=replace(STILL, late=1.0)), 2)
    assert list(second.brokers.cpu) == list(first.brokers.cpu) == pytest.approx([60, 20])
    assert list(second.rates.msg_rate_in) == list(first.rates.msg_rate_in)
    assert [list(first.age), list(second.age)] == [[0, 0], [60, 60]]


def test_a_late_report_after_a_late_report_is_a_minute_old_as_well() -> None:
    workload = Workload(bundles(), spikes=(Spike(ALL, 1, 1, 1.2), Spike(ALL, 2, 1, 1.4), Spike(ALL, 3, 1, 1.6)))
    fresh = run(scene(workload), 5)
    late = run(scene(workload, rules=replace(STILL, late=1.0)), 5)
    for before, report in zip(fresh, late[1:], strict=False):
        assert list(report.age) == [60, 60]
        assert list(report.brokers.cpu) == list(before.brokers.cpu)
        assert list(report.brokers.traffic.msg_rate_in) == list(before.brokers.traffic.msg_rate_in)
        assert list(report.rates.msg_rate_in) == list(before.rates.msg_rate_in)


def test_late_reports_may_be_some_minutes_old() -> None:
    workload = Workload(bundles(noise=0.2))
    fresh = run(scene(workload), 8)
    late = run(scene(workload, rules=replace(STILL, late=1.0, late_minutes=3)), 8)
    assert [report.age[0] for report in late] == [0, 60, 120, 180, 180, 180, 180, 180]
    for before, report in zip(fresh, late[3:], strict=False):
        assert list(report.brokers.cpu) == list(before.brokers.cpu)
        assert list(report.rates.msg_rate_in) == list(before.rates.msg_rate_in)


def test_a_missing_report_does_not_come() -> None:
    reports = run(scene(rules=replace(STILL, missing=0.25)), 400)
    assert np.mean([report.reported for report in reports]) == pytest.approx(0.75, abs=0.05)
    assert all(report.registered.all() for report in reports)
