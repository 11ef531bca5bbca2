from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from lab.experiments.run import minute_of
from lab.families import family_page
from lab.families.__main__ import main
from lab.families.contestants import AVG, GAIN, contestants
from lab.families.drawing_clusters import draw
from lab.families.family import Family, load_all
from lab.families.family_results import read_all
from lab.families.family_run import run

from pulsar_rebalancer.strategies.shedders.registry import STRATEGIES_VARIABLE
from pulsar_simulator.minutes.simulation import Simulation

FAMILIES = load_all()
SHORT = """
title = "t"
about = "a"
kind = "KIND"
seeds = [7]
minutes = 15

[brokers]
count = [3, 3]

[[topics]]
per_broker = 6
cost_spread = 0.8
"""


def files(folder: Path) -> Path:
    for name, kind in (("mine", "training"), ("theirs", "sealed")):
        (folder / f"{name}.toml").write_text(SHORT.replace("KIND", kind), encoding="utf-8")
    return folder


def short(family: str, minutes: int) -> Family:
    return FAMILIES[family].model_copy(update={"minutes": minutes})


def test_training_and_sealed_families_have_no_seed_in_common():
    training, sealed = (
        {seed for family in FAMILIES.values() if family.kind == kind for seed in family.seeds}
        for kind in ("training", "sealed")
    )
    assert min(len(training), len(sealed)) >= 5
    assert not training & sealed


def test_in_a_deployment_every_broker_restarts_one_after_another():
    spec = draw(short("sealed_deployments", 2880), 7, direct=False)
    there, first = len(spec.brokers.names), spec.events[: 2 * len(spec.brokers.names)]
    assert [event.broker for event in first[::2]] == list(range(there))
    assert [event.event_kind for event in first] == ["stop", "start"] * there
    assert all(stop.minute - start.minute == 8 for start, stop in pairwise(first) if stop.event_kind == "stop")


def test_bundles_of_a_tenant_burst_together():
    rates = draw(short("sealed_tenants", 1440), 7, direct=False).workload.series
    assert rates is not None
    assert (rates.T[:8] == rates.T[0]).all()
    assert (rates.T[8] != rates.T[0]).any()


def test_consumers_that_fall_behind_read_all_that_was_published():
    workload = draw(short("sealed_backlog", 1440), 7, direct=False).workload
    rates = [workload.rates_at(minute) for minute in range(1440)]
    read, published = (np.array([getattr(each, name) for each in rates]) for name in ("msg_rate_out", "msg_rate_in"))
    lagging = np.array([name.startswith("family/load-01") for name in workload.bundles.names])
    assert (read[:, ~lagging] == published[:, ~lagging]).all()
    assert ((read[:, lagging] == 0).mean(axis=0) > 0.5).all()
    assert (published > 0).all()
    assert 0.8 < read[:, lagging].sum() / published[:, lagging].sum() < 1.2
    assert 0 < (read[0, lagging] > 0).mean() < 0.5


def test_a_weekend_is_quieter_and_half_of_the_bundles_appear_later():
    week = draw(short("sealed_week", 5760), 7, direct=False).workload.series
    new = draw(short("sealed_onboarding", 1440), 7, direct=False).workload.series
    assert week is not None
    assert new is not None
    assert (week[:1440].max(axis=0) > 1.3 * week[2880:4320].max(axis=0)).all()
    assert 0.3 < (new[0] == 0).mean() < 0.7
    assert (new[0][new[0] > 0] == 1).all()
    assert (np.diff(new, axis=0) >= 0).all()


def test_no_strategy_is_given_the_costs_of_messages_or_the_slowness_of_brokers():
    family = short("hidden_slow", 5)
    spec = draw(family, 7, direct=False)
    assert spec.brokers.slowness.max() > 1.2  # type: ignore[union-attr]
    report = Simulation(spec).run_minute()
    given = minute_of(report, spec.brokers)
    # The limits are those of the cores; the only trace of the truth is the CPU that is used.
    assert given.broker_loads.limits[0].tolist() == spec.brokers.cpu_limit.tolist()
    values = [given.bundle_loads.ravel(), given.broker_loads.traffic.ravel(), given.broker_loads.limits.ravel()]
    hidden = {*spec.workload.bundles.cost.tolist(), *np.unique(spec.brokers.slowness)[1:].tolist()}
    assert not hidden & set(np.concatenate(values).tolist())


def test_from_files_to_results(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv(STRATEGIES_VARIABLE, "")
    where = ["--families", str(files(tmp_path)), "--output", str(tmp_path / "results"), "--processes", "1"]
    assert main(where) == 0
    (mine,) = read_all(tmp_path / "results" / "training").values()
    assert set(mine.runs) == contestants().keys()
    assert (mine.family, mine.seeds) == ("mine", (7,))
    assert "| AvgShedder |" in capsys.readouterr().out
    assert not (tmp_path / "results" / "sealed").exists()
    own = "tests.lab.test_experiments:every_third"
    assert main([*where, "theirs", "--strategy", own]) == 0
    (theirs,) = read_all(tmp_path / "results" / "sealed").values()
    assert set(theirs.runs) - set(mine.runs) == {own}
    assert main([*where, "others"]) == 2
    assert "no family others; there are mine, theirs" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["training", "sealed"])
def test_committed_results_are_of_committed_sources_and_of_all_contestants(kind):
    committed = read_all(family_page.RESULTS / kind)
    assert committed.keys() == {name for name, family in FAMILIES.items() if family.kind == kind}
    for name, results in committed.items():
        assert list(results.runs) == list(contestants(kind))
        assert set(results.seeds) <= set(FAMILIES[name].seeds)
        assert "changes" not in results.commit


# Together every kind of load, slow brokers, restarts, scaling and lost reports.
@pytest.mark.parametrize("name", ["sealed_backlog", "scaling", "server"])
def test_committed_results_are_what_the_sources_give(name):
    committed, variants = read_all(family_page.RESULTS / FAMILIES[name].kind)[name], contestants()
    for variant in (AVG, GAIN):
        assert run(FAMILIES[name], variants[variant], committed.seeds[0]) == committed.runs[variant][0]
