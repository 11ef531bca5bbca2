"""What follows from the documents of a run."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.spark_apps import runs

from pulsar_rebalancer.choices import Strategy
from pulsar_rebalancer.isolation import IsolationPolicy
from pulsar_rebalancer.policies import Policies
from pulsar_rebalancer.state import MovesState, Unload
from pulsar_rebalancer_spark.run_input import RunInput


def given(root, **documents):
    run = runs.make(root, runs.tables("east", 3, 3), **documents)
    return RunInput.read(str(root), run.uri)


def test_a_brokers_last_unload_counts(tmp_path):
    unloads = {
        f"t/n/{number}": Unload(at=runs.NOW - timedelta(seconds=s), plan_id="p", source=source, destination="z")
        for number, (source, s) in enumerate([("a", 90), ("a", 30), ("b", 60)])
    }
    found = given(tmp_path, moves=MovesState(unloads=unloads), strategy=Strategy.TRANSFER)
    assert found.case.unloaded_brokers == {"a": 30.0, "b": 60.0}


@pytest.mark.parametrize("strategy", [Strategy.AVG, Strategy.THRESHOLD])
def test_a_broker_without_persistent_topics_is_left_out_of_pairs_alone(tmp_path, strategy):
    names = [f"broker-{n:05}.pulsar:8080" for n in range(3)]
    policies = Policies(
        isolation=(IsolationPolicy(name="vip", namespaces=("vip/.*",), primary=("broker-00001.*",)),),
        without_persistent=(names[0], names[1]),
    )
    case = given(tmp_path, policies=policies, strategy=strategy).case
    assert case.left_out == ({names[0]: "no_persistent_topics"} if strategy is Strategy.AVG else {})
