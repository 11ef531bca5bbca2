"""One run: a scenario, a variant and a seed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lab.experiments.building import build
from lab.experiments.measures import Curve, Measures, Recorder
from pulsar_rebalancer.config.pulsar_settings import FIELD_OF_PULSAR_NAME
from pulsar_rebalancer.replay.balancer import Balancer
from pulsar_rebalancer.replay.columns import NOBODY, Roster
from pulsar_rebalancer.replay.minute import BrokerLoads, Minute
from pulsar_rebalancer.strategies.shedders.registry import validate
from pulsar_rebalancer.texts import error_line
from pulsar_simulator.minutes.simulation import Simulation, Unload

if TYPE_CHECKING:
    from lab.experiments.scenario import Scenario
    from lab.experiments.variants import Variant
    from pulsar_rebalancer.config.settings import Settings
    from pulsar_rebalancer.replay.columns import Floats
    from pulsar_simulator.load import Rates
    from pulsar_simulator.minutes.machines import BrokerColumns, Report, RunSpec


MEASURED = ("cpu", "bandwidth_in", "bandwidth_out")
"""Resources of a simulated broker."""


class Run(NamedTuple):
    """A run and its results."""

    scenario: str
    variant: str
    seed: int
    measures: Measures
    curve: Curve


class StrategyError(Exception):
    """A strategy raised an exception; the text has the minute, and the exception's type and text."""


def run(scenario: Scenario, variant: Variant, seed: int) -> Run:
    """Let the variant balance the scenario's cluster to its end.

    Raises:
        StrategyError: the strategy raised an exception.
    """
    own = variant.settings.model_dump(mode="json", exclude_unset=True)
    given = {FIELD_OF_PULSAR_NAME.get(name, name): value for name, value in scenario.settings.items()}
    settings = validate(own | given, label=scenario.name)
    recorder = Recorder(scenario.disturbed_at)
    balance(build(scenario, seed, direct=variant.direct), settings, scenario.minutes, recorder)
    return Run(scenario.name, variant.name, seed, recorder.measures(), recorder.curve())


def balance(spec: RunSpec, settings: Settings, minutes: int, recorder: Recorder) -> None:
    """Let the strategy of the settings balance a cluster for some minutes, and record it."""
    balancer = Balancer(Roster(spec.brokers.names, spec.workload.bundles.names), settings, spec.seed)
    scores = np.zeros(len(spec.brokers.names))

    def place(bundle: int, candidates: list[int]) -> int | None:
        chosen = balancer.place_bundle(bundle, candidates)
        if chosen is not None:
            recorder.placed(chosen, scores, simulation.alive)
        return chosen

    simulation = Simulation(spec, place)
    for _ in range(minutes):
        report = simulation.run_minute()
        scores = true_scores(simulation)
        minute = minute_of(report, spec.brokers)
        without_broker = float(simulation.down @ spec.workload.bundles.clients)
        carried = minute.broker_loads.traffic[2] + minute.broker_loads.traffic[3]
        recorder.minute(scores, simulation.alive, carried, without_broker)
        try:
            moves = balancer.choose_moves(minute)
        except BaseException as error:  # a strategy from outside may raise anything
            raise StrategyError(f"minute {report.minute}: {error_line(error)}") from None
        if moves:
            throughput = minute.bundle_loads[2] + minute.bundle_loads[3]
            moved = [move.bundle_index for move in moves]
            sources = report.owner[moved].tolist()
            swapped = [move.is_swapped for move in moves]
            recorder.unloads(report.minute, zip(sources, throughput[moved].tolist(), swapped, strict=True))
            for move in moves:
                if not move.is_swapped:
                    recorder.placed(move.broker_index, scores, simulation.alive)
            simulation.unload(Unload(move.bundle_index, move.broker_index) for move in moves)


def true_scores(simulation: Simulation) -> Floats:
    """Return the brokers' true scores in the last minute, percent."""
    if simulation.truth is None:
        raise RuntimeError("no minute has passed")
    return simulation.truth.score(simulation.spec.brokers)


def minute_of(report: Report, machines: BrokerColumns) -> Minute:
    """Return the data that a balancer has at the end of a simulated minute."""
    said, owned = report.brokers, report.owner[report.owner != NOBODY]
    # A topic in each bundle.
    topics = np.bincount(owned, minlength=len(report.is_registered))
    brokers = BrokerLoads(
        registered=report.is_registered,
        is_reported=report.is_reported,
        report_age_s=report.report_age_s,
        usage=np.array([said.cpu, said.bandwidth_in, said.bandwidth_out]),
        limits=np.stack([machines.cpu_limit, machines.nic, machines.nic]),
        traffic=np.vstack([_rows(said.traffic), topics]),
    )
    bundles = np.vstack([_rows(report.rates), np.ones(len(report.owner))])
    return Minute(report.minute, brokers, report.owner, bundles, MEASURED)


def _rows(rates: Rates) -> Floats:
    return np.array([rates.msg_rate_in, rates.msg_rate_out, rates.msg_throughput_in, rates.msg_throughput_out])
