"""The other shedders through the pipeline: what they choose, placement and policies beside them."""

import re
from dataclasses import replace
from itertools import count

import pyarrow as pa
import pytest
from tests.vectors import histories
from tests.vectors.rows import decided_by

from pulsar_rebalancer.decide.sources.strategy import StrategyInput
from pulsar_rebalancer.isolation import IsolationPolicy, Policies
from pulsar_rebalancer.names import namespace_of
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.bundle_columns import SAMPLE_SCHEMA, Bundles
from pulsar_rebalancer.run.tables import broker_samples
from pulsar_rebalancer.state import WHOLE_CLUSTER, HitCount, StrategyState
from pulsar_rebalancer.strategies.sample import COUNTED

FILES = {
    "ThresholdShedder": "ThresholdShedder",
    "ThresholdShedderLower": "ThresholdShedder",
    "OverloadShedder": "OverloadShedder",
    "UniformLoadShedder": "UniformLoadShedder",
    "TransferShedder": "TransferShedder",
}
PLACED = {"taken", "same_broker", "no_destination", "policy_forbids"}
"""What the shedder chose, whatever placement made of it."""


def test_decides_as_pulsars_own_classes():
    unfinished = [(name, history) for name in FILES for history in histories.read(name)]
    state: dict[str, StrategyState] = {}
    checked = dict.fromkeys(FILES, 0)
    for number in count():
        unfinished = [(name, history) for name, history in unfinished if len(history.steps) > number]
        if not unfinished:
            break
        for name, history in unfinished:
            cluster, step = _cluster(name, history), history.steps[number]
            moves, state[cluster] = _decided(name, history, number, state)
            # TransferShedder asks the filters itself: what they forbid it does not choose.
            chosen = PLACED - {"policy_forbids"} if name == "TransferShedder" else PLACED
            taken = [move for move in moves if move.reason in chosen]
            _compare(
                f"{cluster} step {number}", taken, state[cluster].shedder, step.expected, history.settings.transfer
            )
            checked[name] += 1
    assert checked == {name: sum(len(h.steps) for h in histories.read(name)) for name in FILES}


def _cluster(name, history):
    return f"{name}/{history.name}"


def _case(name, history, number, state):
    step = history.steps[number]
    settings = history.settings.model_copy(update={"strategy": FILES[name]})
    # Only ThresholdShedder's class remembers a broker that is silent.
    listed = history.listed(step, silent=name.startswith("ThresholdShedder"))
    return StrategyInput(
        settings=settings,
        brokers=broker_samples(listed, dict.fromkeys(step.silent, Reason.BROKER_QUARANTINED)),
        bundles=Bundles(pa.Table.from_pylist(list(step.bundles), schema=SAMPLE_SCHEMA)),
        hit_rules=COUNTED,
        strategy_state=state.get(_cluster(name, history), StrategyState()),
        policies=_policies(step),
        seconds_since_unload=step.unloaded_brokers,
    )


def _policies(step):
    """What filters take away in a history, as isolation policies: one for every namespace."""
    if not any(step.removed.values()):
        return Policies()
    hosts = {row["broker"]: row["broker"].rpartition(":")[0] for row in step.brokers}
    policies = []
    for namespace in sorted({namespace_of(row["bundle"]) for row in step.bundles}):
        left = [re.escape(host) for broker, host in hosts.items() if broker not in step.removed.get(namespace, ())]
        policies.append(IsolationPolicy(name=namespace, namespaces=(re.escape(namespace),), primary=tuple(left)))
    return Policies(isolation=tuple(policies))


def _decided(name, history, number, state):
    """Moves and what is kept, the same if nobody reads the decisions."""
    given = _case(name, history, number, state)
    decided, brief = decided_by(given), decided_by(replace(given, may_omit_decisions=True))
    assert (brief.taken_moves, brief.strategy_state) == (decided.taken_moves, decided.strategy_state)
    return decided.moves, decided.strategy_state


def _compare(where, taken, state, expected, transfer):
    if "moves" in expected:
        # Without transfer the class names no destination, and placement does.
        wanted = sorted((m["from"], m["bundle"], m["to"] or "") for m in expected["moves"])
        moves = sorted((m.source, m.bundle, m.destination if transfer else "") for m in taken)
        assert moves == wanted, where
        assert state.hits.get(WHOLE_CLUSTER, HitCount()).low == expected["hits"], where
    else:
        chosen = [move._replace(reason=Reason.TAKEN) for move in taken]
        assert histories.unload_of(chosen) == expected["unload"], where
    for average, theirs in (("loads", "load"), ("loads", "ema"), ("throughputs", "tputEMA")):
        if theirs in expected:
            assert getattr(state, average) == pytest.approx(expected[theirs], abs=1e-9), where
