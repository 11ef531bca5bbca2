"""A pairing shedder from outside through the application: its hits are kept from run to run, and its pair fires."""

from datetime import timedelta

import pytest
from tests import outside_shedder
from tests.spark_apps.pulsar_rebalancer_spark import runs

from pulsar_rebalancer.decide.run_input import RunInput
from pulsar_rebalancer.errors import SettingsError
from pulsar_rebalancer.run import plan
from pulsar_rebalancer.strategies.shedders.registry import STRATEGIES_VARIABLE
from pulsar_rebalancer_spark.rebalance import decide_run

PATH = outside_shedder.PATH


def decided(spark, root, run):
    return decide_run(lambda: spark, RunInput.read(run.uri))


def test_outside_shedder_collects_hits_and_fires(spark, tmp_path, monkeypatch):
    monkeypatch.setenv(STRATEGIES_VARIABLE, PATH)
    own, state, found = {"gap": 40.0, "times": 2}, None, []
    for number in range(2):
        at = runs.NOW + timedelta(minutes=number)
        content = runs.tables("east", 4, 10, seed=number)
        run = runs.make(tmp_path, content, state=state, at=at, strategy=PATH, strategy_settings=own)
        found.append(decided(spark, tmp_path, run))
        state = plan.read_plan_state(run)
        assert bool(state.hits) is (number == 0)
    waiting, fired = found
    assert (waiting.bundles_taken, waiting.hits, waiting.pairs_over) == (0, (1, 0), 1)
    assert (fired.bundles_taken, fired.hits, fired.pairs_fired) == (1, (2, 0), 1)
    assert fired.resolved.settings.strategy_settings == own
    assert fired.sentence.startswith("the outermost two are ")
    (move,) = plan.verified_actions(run, fired).moves
    assert (move.source, move.destination) == ("broker-00003.pulsar:8080", "broker-00000.pulsar:8080")


def test_unlisted_shedder_is_refused(spark, tmp_path, monkeypatch):
    monkeypatch.delenv(STRATEGIES_VARIABLE, raising=False)
    run = runs.make(tmp_path, runs.tables("east", 4, 10), strategy=PATH)
    with pytest.raises(SettingsError, match=f"strategy {PATH} is not listed in the option strategies"):
        decided(spark, tmp_path, run)
