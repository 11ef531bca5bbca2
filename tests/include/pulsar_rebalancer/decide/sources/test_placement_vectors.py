"""Placements through the pipeline: every history is a cluster whose busiest broker sheds what is asked for.

That broker is no candidate. Of each ask the candidates are an isolation policy, and the destination has to be one of
those that Pulsar's own class draws from. AvgShedder's plans do not come this way: its pairs name destinations.
"""

import re
from itertools import count

import pyarrow as pa
import pytest
from tests.vectors import placements
from tests.vectors.rows import decided_by

from pulsar_rebalancer.config.field_types import Placement, Strategy
from pulsar_rebalancer.decide.sources.strategy import StrategyInput
from pulsar_rebalancer.isolation import IsolationPolicy, Policies
from pulsar_rebalancer.names import namespace_of
from pulsar_rebalancer.run.bundle_columns import SAMPLE_SCHEMA, Bundles
from pulsar_rebalancer.run.tables import broker_samples
from pulsar_rebalancer.state import PlacementState, StrategyState
from pulsar_rebalancer.strategies.sample import COUNTED

BUSY = "busy:8080"
PLACEMENTS = {
    "LeastLongTermMessageRate": ("LeastLongTermMessageRate", 454),
    "LeastResourceUsageWithWeight": ("LeastResourceUsageWithWeight", 476),
    "ExtensibleLeastResourceUsageWithWeight": ("LeastResourceUsageWithWeight", 475),
}


def asked(number):
    return f"asked/n{number:04}/0x00000000_0xffffffff"


def bundle(cluster, broker, name, **values):
    return {"cluster": cluster, "broker": broker, "bundle": name, "long_term_msg_rate": 0.0} | values


def brokers_and_bundles(placement, history, step):
    brokers = [row | {"cluster": history.name} for row in step.brokers]
    if placement != "ExtensibleLeastResourceUsageWithWeight":
        brokers = [row | {"load_average": None} for row in brokers]
    brokers.append({"cluster": history.name, "broker": BUSY, "bundles": len(step.asks) + 1, "msg_rate_in": 1e9})
    # The busiest are shed first: in the order of the asks.
    bundles = [
        bundle(history.name, BUSY, asked(number), msg_rate=float(len(step.asks) - number))
        for number in range(len(step.asks))
    ]
    for broker, rate in step.rates.items():
        held = [
            (f"all/of/{broker}", rate),
            *((name, step.of_bundle.get(name, 0.0)) for name in step.preallocated[broker]),
        ]
        bundles += [bundle(history.name, broker, name, long_term_msg_rate=float(rate)) for name, rate in held]
    return brokers, bundles


def strategy_input(placement, history, step, state):
    brokers, bundles = brokers_and_bundles(placement, history, step)
    given = {"strategy": Strategy.UNIFORM, "placement": Placement(PLACEMENTS[placement][0]), "min_unload_message": 0}
    if placement == "LeastResourceUsageWithWeight":
        # An overloaded choice is made once more, which moves the averages on: the vectors ask once.
        given["overloaded_threshold"] = 1e9
    policies = [
        IsolationPolicy(
            name=f"ask-{number}",
            namespaces=(re.escape(namespace_of(asked(number))),),
            primary=tuple(re.escape(broker.rpartition(":")[0]) for broker in ask.candidates),
        )
        for number, ask in enumerate(step.asks)
    ]
    settings = history.settings.model_copy(update=given)
    tables = settings, broker_samples(brokers, {}), Bundles(pa.Table.from_pylist(bundles, schema=SAMPLE_SCHEMA))
    return StrategyInput(*tables, COUNTED, state, Policies(isolation=tuple(policies)), seed="run-1")


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_places_as_pulsars_own_class(placement):
    unfinished, checked = placements.read(placement), 0
    state = {history.name: StrategyState() for history in unfinished}
    for number in count():
        unfinished = [history for history in unfinished if len(history.steps) > number]
        if not unfinished:
            break
        for history in unfinished:
            decided = decided_by(strategy_input(placement, history, history.steps[number], state[history.name]))
            moves = {move.bundle: move for move in decided.moves}
            where, asks = f"{history.name} step {number}", history.steps[number].asks
            for position, ask in enumerate(asks):
                move = moves[asked(position)]
                assert (move.reason, move.destination in ask.eligible) == ("taken", True), where
                checked += 1
            # Pulsar keeps brokers that are gone until it is told so, which the histories never do.
            assert decided.strategy_state is not None
            before, after = state[history.name].placement.averages, decided.strategy_state.placement.averages
            state[history.name] = StrategyState(placement=PlacementState(averages={**before, **after}))
            if asks[-1].ema is not None:
                averages = state[history.name].placement.averages
                assert averages == pytest.approx(asks[-1].ema, abs=1e-9, rel=0), where
    assert checked == PLACEMENTS[placement][1]
