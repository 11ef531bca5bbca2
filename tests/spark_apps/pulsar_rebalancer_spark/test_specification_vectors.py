"""The other shedders through the Spark application: every history is a cluster, all of them run at once."""

from __future__ import annotations

import re
from itertools import count

import pyarrow as pa
import pytest
from tests.vectors import histories

from pulsar_rebalancer.names import namespace_of
from pulsar_rebalancer.policies.cluster_policies import Policies
from pulsar_rebalancer.policies.isolation import IsolationPolicy
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.state.model import HitCount
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer.strategies import rows
from pulsar_rebalancer.strategies.bundles import COLUMNS
from pulsar_rebalancer.strategies.kept import WHOLE_CLUSTER, KeptState
from pulsar_rebalancer.strategies.pipeline import RunContext
from pulsar_rebalancer.strategies.sample import COUNTED
from pulsar_rebalancer_spark import specification, tables

FILES = {
    "ThresholdShedder": "ThresholdShedder",
    "ThresholdShedderLower": "ThresholdShedder",
    "OverloadShedder": "OverloadShedder",
    "UniformLoadShedder": "UniformLoadShedder",
    "TransferShedder": "TransferShedder",
}
HELD = pa.schema([pa.field("cluster", pa.string()), *COLUMNS])
PLACED = {"taken", "same_broker", "no_destination", "policy_forbids"}
"""What the shedder chose, whatever placement made of it."""


def test_decides_as_pulsars_own_classes(spark, tmp_path):
    unfinished = [(name, history) for name in FILES for history in histories.read(name)]
    kept: dict[str, KeptState] = {}
    checked = dict.fromkeys(FILES, 0)
    for number in count():
        unfinished = [(name, history) for name, history in unfinished if len(history.steps) > number]
        if not unfinished:
            break
        cases = {_cluster(name, history): _case(name, history, number, kept) for name, history in unfinished}
        answers = _decided(spark, tmp_path, unfinished, number, cases)
        for name, history in unfinished:
            cluster, step = _cluster(name, history), history.steps[number]
            moves, kept[cluster] = answers[cluster]
            # TransferShedder asks the filters itself: what they forbid it does not choose.
            chosen = PLACED - {"policy_forbids"} if name == "TransferShedder" else PLACED
            taken = [move for move in moves if move.reason in chosen]
            _compare(f"{cluster} step {number}", taken, kept[cluster].shedder, step.expected, history.settings.transfer)
            checked[name] += 1
    assert checked == {name: sum(len(h.steps) for h in histories.read(name)) for name in FILES}


def _cluster(name, history):
    return f"{name}/{history.name}"


def _case(name, history, number, kept):
    step = history.steps[number]
    settings = history.settings.model_copy(update={"strategy": FILES[name]})
    return RunContext(
        settings=settings,
        counting=COUNTED,
        kept=kept.get(_cluster(name, history), KeptState()),
        policies=_policies(step),
        left_out=dict.fromkeys(step.silent, Reason.BROKER_QUARANTINED),
        unloaded_brokers=step.unloaded_brokers,
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


def _decided(spark, folder, unfinished, number, contexts):
    """Moves and what is kept, by cluster."""
    bundles = StoragePath(str(folder / "bundles.parquet"))
    brokers, held = {}, []
    for name, history in unfinished:
        cluster, step = _cluster(name, history), history.steps[number]
        # Only ThresholdShedder's class remembers a broker that is silent.
        listed = history.listed(step, silent=name.startswith("ThresholdShedder"))
        brokers[cluster] = rows.broker_samples(listed, contexts[cluster].left_out)
        held += [row | {"cluster": cluster} for row in step.bundles]
    bundles.write_table(pa.Table.from_pylist(held, schema=HELD))
    read = tables.read(spark, [bundles], HELD).repartition(3)
    answers = specification.decide_clusters(brokers, read, contexts).cache()
    moves = {cluster: [] for cluster in contexts}
    for row in specification.moves(answers).collect():
        moves[row["cluster"]].append(rows.move(row.asDict()))
    decided = specification.decisions(answers)
    answers.unpersist()
    return {cluster: (moves[cluster], decided[cluster].kept) for cluster in contexts}


def _compare(where, taken, kept, expected, transfer):
    if "moves" in expected:
        # Without transfer the class names no destination, and placement does.
        wanted = sorted((m["from"], m["bundle"], m["to"] or "") for m in expected["moves"])
        moves = sorted((m.source, m.bundle, m.destination if transfer else "") for m in taken)
        assert moves == wanted, where
        assert kept.hits.get(WHOLE_CLUSTER, HitCount()).low == expected["hits"], where
    else:
        chosen = [move._replace(reason=Reason.TAKEN) for move in taken]
        assert histories.unload_of(chosen) == expected["unload"], where
    for average, theirs in (("loads", "load"), ("loads", "ema"), ("throughputs", "tputEMA")):
        if theirs in expected:
            assert getattr(kept, average) == pytest.approx(expected[theirs], abs=1e-9), where
