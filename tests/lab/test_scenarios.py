from pathlib import Path

import numpy as np
import pytest
from lab.experiments.__main__ import main
from lab.experiments.building import build
from lab.experiments.scenario import Scenario, ScenarioError, load, load_all

from pulsar_simulator.minutes.simulation import Simulation

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
        ("cores = 4", "cores = 0", "brokers.0.cores"),
        ('placed = "even"', 'placed = "load"', "load: needed"),
        ("throughput_mib = 10", "throughput_mib = 10\n[[changes]]\nminute = 1\nstop = [7]", "broker 7 is named"),
        ("throughput_mib = 10", "throughput_mib = 10\n[[changes]]\nminute = 20\nstop = [1]", "minute 20 is not"),
        ("minutes = 20", "minutes = 20\nunload_cost = {seconds = 1}", "unload_cost.seconds"),
        ("minutes = 20", "minutes = 20\nsettings = {usage_diference = 0}", "usage_diference"),
        ('title = "t"', "title = ", "line 2"),
    ],
)
def test_a_wrong_scenario_is_refused_with_file_and_key(change, to, named, tmp_path, capsys):
    file = scenario(tmp_path, SOUND.replace(change, to, 1))
    with pytest.raises(ScenarioError) as refused:
        load(file)
    assert "mine.toml: " in str(refused.value)
    assert named in str(refused.value)
    assert main(["--scenarios", str(tmp_path), "--output", str(tmp_path / "out")]) == 2
    assert named in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def without_pauses(name: str) -> Scenario:
    given = load_all()[name]
    return given.model_copy(
        update={"bundles": tuple(group.model_copy(update={"on_off": None}) for group in given.bundles)}
    )


@pytest.mark.parametrize("name", load_all())
def test_a_shipped_scenario_starts_as_it_says(name):
    given = without_pauses(name)
    spec = build(given, 1, direct=False)
    assert sorted(spec.brokers.names) == list(spec.brokers.names)
    assert sorted(spec.workload.bundles.names) == list(spec.workload.bundles.names)
    simulation = Simulation(spec)
    for _ in range(10):
        simulation.run_minute()
    assert simulation.truth is not None
    scores = simulation.truth.score(spec.brokers)[spec.is_started]
    if given.load:
        assert scores == pytest.approx(np.array(given.load)[spec.is_started], abs=4)
    assert scores.max() < 100
