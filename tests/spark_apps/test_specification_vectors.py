"""The other shedders through the Spark application: every history is a cluster, all of them run at once."""

from __future__ import annotations

import re
from itertools import count

import pyarrow as pa
import pytest
from tests.vectors import histories

from pulsar_rebalancer.isolation import IsolationPolicy
from pulsar_rebalancer.policies import Policies
from pulsar_rebalancer.snapshot import BROKERS, BUNDLES, namespace_of
from pulsar_rebalancer.storage import Folder
from pulsar_rebalancer.strategies.avg_shedder import COUNTED
from pulsar_rebalancer.strategies.judging import Case
from pulsar_rebalancer_spark import specification, tables

FILES = {
    "ThresholdShedder": "ThresholdShedder",
    "ThresholdShedderLower": "ThresholdShedder",
    "OverloadShedder": "OverloadShedder",
    "UniformLoadShedder": "UniformLoadShedder",
    "TransferShedder": "TransferShedder",
}
JUDGED = pa.schema(
    [*BUNDLES, ("reason", pa.string()), *((name, pa.float64()) for name in ("msg_rate", "msg_throughput"))]
)
PLACED = {"taken", "same_broker", "no_destination", "policy_forbids"}
"""What the shedder chose, whatever placement made of it."""


def test_decides_as_pulsars_own_classes(spark, tmp_path):
    unfinished = [(name, history) for name in FILES for history in histories.read(name)]
    kept: dict[str, dict] = {}
    checked = dict.fromkeys(FILES, 0)
    for number in count():
        unfinished = [(name, history) for name, history in unfinished if len(history.steps) > number]
        if not unfinished:
            break
        cases = {_cluster(name, history): _case(name, history, number, kept) for name, history in unfinished}
        answers = _judged(spark, tmp_path, unfinished, number, cases)
        for name, history in unfinished:
            cluster, step = _cluster(name, history), history.steps[number]
            answer = answers[cluster]
            kept[cluster] = answer["rest"][0]["kept"]
            # TransferShedder asks the filters itself: what they forbid it does not choose.
            chosen = PLACED - {"policy_forbids"} if name == "TransferShedder" else PLACED
            taken = [move for move in answer["move"] if move["reason"] in chosen]
            _compare(
                f"{cluster} step {number}", taken, kept[cluster]["shedder"], step.expected, history.settings.transfer
            )
            checked[name] += 1
    assert checked == {name: sum(len(h.steps) for h in histories.read(name)) for name in FILES}


def _cluster(name, history):
    return f"{name}/{history.name}"


def _case(name, history, number, kept):
    step = history.steps[number]
    settings = history.settings.model_copy(update={"strategy": FILES[name]})
    return Case(
        settings=settings,
        counting=COUNTED,
        kept=kept.get(_cluster(name, history), {}),
        policies=_policies(step),
        left_out=dict.fromkeys(step.silent, "broker_quarantined"),
        unloaded_brokers=step.unloaded_brokers,
    )


def _view(name, history, number):
    # Only ThresholdShedder's class remembers a broker that is silent.
    return history.view(history.steps[number], silent=name.startswith("ThresholdShedder"))


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


def _judged(spark, folder, unfinished, number, cases):
    brokers, bundles = Folder(str(folder / "brokers.parquet")), Folder(str(folder / "bundles.parquet"))
    for file, schema, rows in ((brokers, BROKERS, "brokers"), (bundles, JUDGED, "bundles")):
        found = [
            row | {"cluster": _cluster(name, history)}
            for name, history in unfinished
            for row in getattr(_view(name, history, number), rows)
        ]
        file.write_table(pa.Table.from_pylist(found, schema=schema))
    read = tables.read(spark, [brokers], BROKERS).repartition(3), tables.read(spark, [bundles], JUDGED).repartition(3)
    found = {}
    for row in specification.judge(*read, cases).collect():
        kinds = found.setdefault(row["cluster"], {"decision": [], "move": [], "rest": []})
        kinds[row["kind"]].append(specification.document(row))
    return found


def _compare(where, taken, kept, expected, transfer):
    if "moves" in expected:
        # Without transfer the class names no destination, and placement does.
        wanted = sorted((m["from"], m["bundle"], m["to"] or "") for m in expected["moves"])
        moves = sorted((m["source"], m["bundle"], m["destination"] if transfer else "") for m in taken)
        assert moves == wanted, where
        assert kept["hits"] == expected["hits"], where
    else:
        assert histories.unload_of([move | {"taken": True} for move in taken]) == expected["unload"], where
    for average, theirs in (("loads", "load"), ("throughputs", "tputEMA")):
        if theirs in expected:
            assert kept[average] == pytest.approx(expected[theirs], abs=1e-9), where
    if "ema" in expected:
        assert kept["averages"] == pytest.approx(expected["ema"], abs=1e-9), where
