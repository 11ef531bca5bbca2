"""How a simulated cluster is balanced, and how far that is from a real one."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from lab.experiments.run import minute_of, true_scores
from tests.pulsar.costs import Costs
from tests.pulsar.rebalancing import Run

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.replay.balancer import Balancer
from pulsar_rebalancer.replay.columns import Roster
from pulsar_simulator.load import Cost
from pulsar_simulator.minutes.machines import BrokerColumns, ClusterRules, RunSpec
from pulsar_simulator.minutes.simulation import Simulation, Unload
from pulsar_simulator.minutes.workload import BundleColumns, Workload

_NIC = 1e6

# How far a prediction may be from what happens.
HOT_SCORE_PERCENT = 30
OTHER_SCORE_POINTS = 10  # what the low threshold ignores; host samples of a busy machine differ by 5
TOTAL_SCORE_PERCENT = 25
WAITED_SAMPLES = 2  # each of the two hits may meet a value that a broker has not renewed
LASTED_MINUTES = 3
MOVED_BUNDLES = 5
SHARE_POINTS = 15


class Course(NamedTuple):
    """How a cluster was balanced.

    Attributes:
        waited: samples before the one after which bundles first moved.
        lasted: minutes from the first move to the last.
        moved: bundles moved, each time.
        bundles: on each broker at the end, most first.
        before: scores of the brokers when bundles first moved, percent, highest first.
        after: scores of the brokers at the end, percent, highest first.
    """

    waited: int
    lasted: float
    moved: list[int]
    bundles: list[int]
    before: list[float]
    after: list[float]


def scores_of(run: Run) -> list[float]:
    """Scores of real brokers, percent, highest first."""
    return _in_order(100 * row["cpu_usage"] / row["cpu_limit"] for row in run.table("brokers"))


def bundles_of(run: Run, namespace: str) -> list[int]:
    held = [row["broker"] for row in run.table("bundles") if row["bundle"].startswith(f"{namespace}/")]
    return sorted((held.count(row["broker"]) for row in run.table("brokers")), reverse=True)


def predicted(
    costs: Costs, cpu_limit: float, rate: float, held: Sequence[int], settings: dict[str, Any], minutes: int
) -> Course:
    """The course of three simulated brokers that begin with so many bundles each, all of one rate (msg/s)."""
    brokers = BrokerColumns(
        names=("a", "b", "c"), cpu_limit=np.full(3, cpu_limit), nic=np.full(3, _NIC), base_cpu=np.full(3, costs.idle)
    )
    count = sum(held)
    bundles = BundleColumns(
        names=tuple(f"tests/load/0x{number:08x}_0x{number + 1:08x}" for number in range(count)),
        msg_rate_in=np.full(count, rate),
        msg_size=np.full(count, 100.0),
        clients=np.ones(count, dtype=np.int64),
        cost=np.ones(count),
        **{name: np.zeros(count) for name in ("fan_out", "noise", "daily", "peak", "trend")},
    )
    rules = ClusterRules(cpu_noise=0, busy_cpu=costs.busy, cost=Cost(per_message=costs.message / 100, per_byte=0))
    owner = np.repeat(np.arange(3), held)
    simulation = Simulation(RunSpec(brokers, Workload(bundles), owner, np.ones(3, dtype=bool), rules))
    balancer = Balancer(Roster(brokers.names, bundles.names), Settings(**settings))
    moved, before = dict[int, int](), list[float]()
    for minute in range(minutes):
        moves = balancer.choose_moves(minute_of(simulation.run_minute(), brokers))
        if moves:
            moved[minute] = len(moves)
            before = before or _in_order(true_scores(simulation))
            simulation.unload(Unload(move.bundle_index, move.broker_index) for move in moves)
    return Course(
        waited=min(moved, default=minutes),
        lasted=max(moved, default=minutes) - min(moved, default=minutes),
        moved=list(moved.values()),
        bundles=sorted(np.bincount(simulation.owner, minlength=3).tolist(), reverse=True),
        before=before,
        after=_in_order(true_scores(simulation)),
    )


def misses(prediction: Course, real: Course) -> list[str]:
    """Return what is further from the real course than a prediction may be."""
    compared: list[tuple[str, list[float], list[float], float]] = [
        ("hot score before", prediction.before[:1], real.before[:1], HOT_SCORE_PERCENT / 100 * real.before[0]),
        ("other scores before", prediction.before[1:], real.before[1:], OTHER_SCORE_POINTS),
        ("total before", [sum(prediction.before)], [sum(real.before)], TOTAL_SCORE_PERCENT / 100 * sum(real.before)),
        ("total after", [sum(prediction.after)], [sum(real.after)], TOTAL_SCORE_PERCENT / 100 * sum(real.after)),
        ("samples waited", [prediction.waited], [real.waited], WAITED_SAMPLES),
        ("minutes lasted", [prediction.lasted], [real.lasted], LASTED_MINUTES),
        ("bundles moved", [sum(prediction.moved)], [sum(real.moved)], MOVED_BUNDLES),
        ("shares of the bundles", _shares(prediction), _shares(real), SHARE_POINTS),
    ]
    return [
        f"{subject}: predicted {said}, real {seen}, may differ by {most:.1f}"
        for subject, said, seen, most in compared
        if len(said) != len(seen) or any(abs(a - b) > most for a, b in zip(said, seen, strict=True))
    ]


def _shares(course: Course) -> list[float]:
    """Percent of the bundles on each broker at the end."""
    return [100 * held / sum(course.bundles) for held in course.bundles]


def _in_order(scores: Any) -> list[float]:
    return sorted((round(float(score), 1) for score in scores), reverse=True)
