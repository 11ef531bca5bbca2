from datetime import timedelta

import pytest
from tests.spark_apps.pulsar_rebalancer_spark import runs

from pulsar_rebalancer.config.field_types import Overrule, Strategy
from pulsar_rebalancer.decide.run_input import RunInput
from pulsar_rebalancer.decide.stays import BundleFacts
from pulsar_rebalancer.isolation import IsolationPolicy, Policies
from pulsar_rebalancer.state import (
    DecisionState,
    HitCount,
    KeptDestination,
    MovesState,
    ShedderState,
    StrategyState,
    Unload,
)


def given(root, **documents):
    run = runs.make(root, runs.tables("east", 3, 3), **documents)
    return RunInput.read(run.uri)


def test_a_brokers_last_unload_counts(tmp_path):
    unloads = {
        f"t/n/{number}": Unload(at=runs.NOW - timedelta(seconds=s), plan_id="p", source=source, destination="z")
        for number, (source, s) in enumerate([("a", 90), ("a", 30), ("b", 60)])
    }
    found = given(tmp_path, moves=MovesState(unloads=unloads), strategy=Strategy.TRANSFER)
    assert found.seconds_since_unload == {"a": 30.0, "b": 60.0}


@pytest.mark.parametrize("strategy", [Strategy.AVG, Strategy.THRESHOLD])
def test_a_broker_without_persistent_topics_is_left_out_of_pairs_alone(tmp_path, strategy):
    names = [f"broker-{n:05}.pulsar:8080" for n in range(3)]
    policies = Policies(
        isolation=(IsolationPolicy(name="vip", namespaces=("vip/.*",), primary=("broker-00001.*",)),),
        without_persistent=(names[0], names[1]),
    )
    brokers = given(tmp_path, policies=policies, strategy=strategy).brokers
    left_out = {each.broker: each.left_out for each in brokers if each.left_out}
    assert left_out == ({names[0]: "no_persistent_topics"} if strategy is Strategy.AVG else {})


def test_a_bundle_whose_destination_the_leader_may_remember_is_passed_over_for_that(tmp_path):
    """Within the grace period: a later move of the bundle names its own destination in the place of that one."""

    def failed(minutes):
        return Unload(at=runs.NOW - timedelta(minutes=minutes), plan_id="p", source="a", destination="z")

    kept = KeptDestination(at=runs.NOW, plan_id="p", destination="z", owner="a")
    moves = MovesState(
        unloads={"t/n/1": failed(1), "t/n/2": failed(1), "t/n/3": failed(31)},
        kept_destinations={"t/n/1": kept, "t/n/3": kept},
    )
    run = given(tmp_path, moves=moves)
    assert BundleFacts.of_run(run, run.settings).move_reasons == {
        "t/n/1": "destination_kept",
        "t/n/2": "recently_unloaded",
    }
    assert BundleFacts.of_run(run, run.settings, {Overrule.GRACE_PERIOD}).move_reasons == {}


@pytest.mark.parametrize(
    ("strategy", "stored"),
    [
        ("", StrategyState(ShedderState(hits={"a:1": HitCount(1, 2)}))),
        (Strategy.AVG, StrategyState(ShedderState(hits={"a:1": HitCount(1, 2)}))),
        (Strategy.THRESHOLD, StrategyState()),
    ],
)
def test_state_of_another_strategy_is_not_used(tmp_path, strategy, stored):
    state = DecisionState(strategy=strategy, hits={"a:1": HitCount(1, 2)})
    assert given(tmp_path, state=state).strategy_state == stored
