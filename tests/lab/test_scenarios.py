"""Scenario files: the shipped ones are sound, and what is wrong with one is told with file and key."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest
from lab.experiments.__main__ import main
from lab.experiments.building import build
from lab.experiments.run import run
from lab.experiments.scenario import Scenario, ScenarioError, load, load_all
from lab.experiments.variants import VARIANTS

from pulsar_rebalancer.replay.balancer import Balancer
from pulsar_rebalancer.replay.columns import Roster
from pulsar_simulator.minutes.simulation import Simulation
from pulsar_simulator.minutes.spec import Rules

if TYPE_CHECKING:
    from pathlib import Path

SOUND = """
title = "t"
about = "a"
minutes = 20
placed = "even"

[[brokers]]
count = 2
cores = 4

[[bundles]]
count = 4
throughput_mib = 10
"""


def scenario(folder: Path, text: str = SOUND) -> Path:
    file = folder / "mine.toml"
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("change", "to", "named"),
    [
        ("minutes = 20", "minutes = 20\nminuets = 3", "minuets"),
        ("minutes = 20", 'minutes = "long"', "minutes"),
        ("cores = 4", "cores = 0", "brokers.0.cores"),
        ("throughput_mib = 10", "throughput_mib = nan", "bundles.0.throughput_mib"),
        ("count = 4", "count = 4\non_off = {on = 1}", "bundles.0.on_off.off"),
        ('placed = "even"', 'placed = "load"', "load: needed"),
        ('placed = "even"', 'placed = "load"\nload = [10]', "load: 1 figure for 2 brokers"),
        ("minutes = 20", "minutes = 20\n[[changes]]\nminute = 1\nstop = [7]\n", "broker 7 is named"),
        ("minutes = 20", "minutes = 20\n[[changes]]\nminute = 1\nstop = [1, 2]\n", "no broker is left in minute 1"),
        (
            "minutes = 20",
            "minutes = 20\n[[changes]]\nminute = 5\nstop = [2]\n[[changes]]\nminute = 3\nstop = [1]\n",
            "no broker is left in minute 5",
        ),
        ("minutes = 20", "minutes = 20\n[[changes]]\nminute = 20\nstop = [1]\n", "changes: minute 20 is not within"),
        (
            "minutes = 20",
            "minutes = 20\n[[cpu_spikes]]\nminute = 20\nminutes = 2\nbroker = 1\nload = 5\n",
            "cpu_spikes: minute 20",
        ),
        ("minutes = 20", "minutes = 20\nunload_cost = {seconds = 1}", "unload_cost.seconds"),
        ("minutes = 20", "minutes = 20\nunload_cost = {unload_seconds = -1}", "unload_cost.unload_seconds"),
        ("minutes = 20", "minutes = 20\nreports = {late_minutes = 0}", "reports.late_minutes"),
        ("cores = 4", "cores = 4\nstarted = false", "brokers.started"),
        ("minutes = 20", "minutes = 20\ndisturbed_at = 20", "disturbed_at"),
        ("minutes = 20", "minutes = 20\nsettings = {usage_diference = 0}", "usage_diference"),
        ('title = "t"', "title = ", "line 2"),
    ],
)
def test_what_is_wrong_is_told_with_file_and_key(
    change: str, to: str, named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = SOUND.replace(change, to, 1)
    if to.endswith("\n"):  # a table of tables has to come after the plain keys
        text = SOUND.replace(change, change, 1) + to.removeprefix(change)
    file = scenario(tmp_path, text)
    with pytest.raises(ScenarioError) as refused:
        load(file)
    assert "mine.toml: " in str(refused.value)
    assert named in str(refused.value)
    assert main(["--scenarios", str(tmp_path), "--output", str(tmp_path / "out")]) == 2
    assert named in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "arguments", [["nobody"], ["--strategy", "no.such:one"], ["--strategy", f"{sys.__name__}:path"]]
)
def test_what_does_not_exist_is_refused(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario(tmp_path)
    assert main([*arguments, "--scenarios", str(tmp_path), "--output", str(tmp_path / "out")]) == 2
    assert arguments[-1] in capsys.readouterr().err


def without_pauses(name: str) -> Scenario:
    given = load_all()[name]
    return given.model_copy(
        update={"bundles": tuple(group.model_copy(update={"on_off": None}) for group in given.bundles)}
    )


@pytest.mark.parametrize("name", load_all())
def test_a_shipped_scenario_starts_as_it_says(name: str) -> None:
    given = without_pauses(name)
    spec = build(given, 1, direct=False)
    assert sorted(spec.brokers.names) == list(spec.brokers.names)
    assert sorted(spec.workload.bundles.names) == list(spec.workload.bundles.names)
    simulation = Simulation(spec)
    for _ in range(10):
        simulation.step()
    assert simulation.truth is not None
    scores = simulation.truth.score(spec.brokers)[spec.started]
    if given.load:
        assert scores == pytest.approx(np.array(given.load)[spec.started], abs=4)
    assert scores.max() < 100


BALANCED = [name for name, given in load_all().items() if "balanced" in given.about]


@pytest.mark.parametrize("name", BALANCED)
def test_brokers_are_balanced_where_a_scenario_says_so(name: str) -> None:
    for seed in range(1, 11):
        spec = build(without_pauses(name), seed, direct=False)
        simulation = Simulation(spec)
        simulation.step()
        assert simulation.truth is not None
        assert np.ptp(simulation.truth.score(spec.brokers)[spec.started]) < 5


def test_something_happens_in_the_restless_month() -> None:
    until_the_first_deployment_is_over = load_all()["restless_month"].model_copy(update={"minutes": 5100})
    avg = next(variant for variant in VARIANTS if variant.name == "AvgShedder")
    assert run(until_the_first_deployment_is_over, avg, 1).measures.bundles_moved >= 20


def test_some_scenarios_say_balanced() -> None:
    assert "jitter" in BALANCED


def test_a_scenario_may_set_what_unloads_and_traffic_cost_and_how_old_reports_are(tmp_path: Path) -> None:
    keys = "unload_cost = {unload_seconds = 7, reconnect_cpu_seconds = 0.5}\nreports = {late = 0.5, late_minutes = 4}"
    keys += "\nbusy_cpu = 9"
    given = load(scenario(tmp_path, SOUND.replace("minutes = 20", f"minutes = 20\n{keys}")))
    rules = build(given, 1, direct=False).rules
    assert (rules.unload_seconds, rules.reconnect_cpu_seconds, rules.busy_cpu) == (7, 0.5, 9)
    assert (rules.late, rules.late_minutes) == (0.5, 4)
    plain = build(load(scenario(tmp_path)), 1, direct=False).rules
    assert plain == Rules()


def test_settings_may_have_pulsar_s_names(tmp_path: Path) -> None:
    given = load(scenario(tmp_path, SOUND.replace("minutes = 20", "minutes = 20\nsettings = {minUnloadMessage = 5}")))
    for variant in VARIANTS:
        assert run(given, variant, 1).measures.bundles_moved == 0


def test_a_task_s_bundles_are_the_same_whatever_other_tasks_have() -> None:
    given = load_all()["cold_start"]
    first, second, third = given.bundles
    fewer = given.model_copy(update={"bundles": (first, second.model_copy(update={"count": 3}), third)})
    columns, changed = (build(each, 1, direct=False).workload.bundles for each in (given, fewer))
    for name in ("msg_rate_in", "cost", "peak"):
        before, after = getattr(columns, name), getattr(changed, name)
        assert list(before[:40]) == list(after[:40])
        assert list(before[-12:]) == list(after[-12:])


@pytest.mark.parametrize("placed", ["random", "placement"])
def test_the_first_owners_differ_with_the_seed(placed: str, tmp_path: Path) -> None:
    text = SOUND.replace('placed = "even"', f'placed = "{placed}"').replace("count = 4", "count = 40")
    given = load(scenario(tmp_path, text))
    owners = []
    for seed in (1, 2):
        spec = build(given, seed, direct=False)
        balancer = Balancer(Roster(spec.brokers.names, spec.workload.bundles.names), VARIANTS[0].settings, seed)
        owners.append(Simulation(spec, balancer.place).step().owner)
    assert list(owners[0]) != list(owners[1])


def test_a_scenario_differs_by_its_seed_alone(tmp_path: Path) -> None:
    given = load(scenario(tmp_path))
    first, again, other = (build(given, seed, direct=False).workload.bundles.msg_rate_in for seed in (1, 1, 2))
    assert list(first) == list(again)
    assert list(first) != list(other)
