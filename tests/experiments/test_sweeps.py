"""Assumptions from file to the page: what a value changes, which verdicts flip, and what is wrong with a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from experiments.__main__ import CHANGED
from experiments.assumption import Assumption
from experiments.problems import PROBLEMS, judge
from experiments.scenario import ScenarioError
from experiments.sweep_results import Outcome, Sweep, read_all, write
from experiments.sweep_tables import markdown
from experiments.sweeps import main
from tests.experiments.test_problems import results

from experiments import assumption, scenario

if TYPE_CHECKING:
    from pathlib import Path

SCENARIOS = scenario.load_all()
SHIPPED = assumption.load_all()
UNIFORM, THRESHOLD = (
    "UniformLoadShedder + LeastLongTermMessageRate",
    "ThresholdShedder + LeastResourceUsageWithWeight",
)

PAUSES = """
title = "Bundles of the pausing task"
about = "How many it has."
scenarios = ["jitter"]
figures = {jitter = "unload_events"}

[values]
1 = {"bundles.1.count" = 1}
3 = {}
"""


def assumed(**keys: object) -> Assumption:
    given = {"name": "it", "title": "t", "about": "a", "scenarios": ("jitter",), "values": {"1": {}, "2": {}}}
    return Assumption.model_validate(given | keys)


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_assumption_has_the_scenarios_own_value_and_every_value_makes_a_scenario(name: str) -> None:
    given = SHIPPED[name]
    assert given.default(SCENARIOS) in given.values
    swept = [SCENARIOS[one] for one in given.scenarios]
    values = {tuple(given.with_value(label, one).model_dump_json() for one in swept) for label in given.values}
    assert len(values) == len(given.values)


def test_a_value_changes_what_it_names() -> None:
    changes = {"bundles.*.count": "x0.5", "bundles.1.noise": 0.3, "unload_cost.unload_seconds": 9}
    changed = assumed(values={"1": {}, "2": changes}).with_value("2", SCENARIOS["jitter"])
    assert [group.count for group in changed.bundles] == [20, 2, 6]
    assert [group.noise for group in changed.bundles] == [0.05, 0.3, 0.05]
    assert changed.unload_cost.unload_seconds == 9
    assert changed.brokers == SCENARIOS["jitter"].brokers


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"bundles.7.count": 1}, "bundles.7.count"),
        ({"bundels.0.count": 1}, "bundels.0.count"),
        ({"bundles.0.cuont": 1}, "bundles.0.cuont"),
        ({"bundles.0.count": "2"}, "bundles.0.count"),
        ({"bundles.0.count": "xx"}, "bundles.0.count"),
        ({"bundles.0.noise": -1}, "bundles.0.noise"),
    ],
)
def test_what_cannot_be_set_is_refused(changes: dict[str, object], named: str) -> None:
    with pytest.raises(ScenarioError, match=rf"it: 2: jitter.*{named}"):
        assumed(values={"1": {}, "2": changes}).with_value("2", SCENARIOS["jitter"])


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"values": {"1": {"minutes": 7}, "2": {"minutes": 8}}}, "0 values"),
        ({}, "2 values"),
        ({"scenarios": ("no_such",)}, "no_such"),
        ({"figures": {"no_such": "range_end"}}, "no_such"),
    ],
)
def test_one_value_is_the_scenarios_own(keys: dict[str, object], named: str) -> None:
    with pytest.raises(ScenarioError, match=named):
        assumed(**keys).default(SCENARIOS)


def test_from_an_assumption_to_the_verdicts_that_flip(tmp_path: Path) -> None:
    for name in ("jitter", "cpu_spike"):
        text = (scenario.FOLDER / f"{name}.toml").read_text().replace("minutes = 90", "minutes = 40")
        (tmp_path / f"{name}.toml").write_text(text)
    assumptions = tmp_path / "assumptions"
    assumptions.mkdir()
    (assumptions / "pauses.toml").write_text(PAUSES)
    command = ["--seeds", "1", "--processes", "1", "--scenarios", str(tmp_path), "--assumptions", str(assumptions)]
    assert main([*command, "--output", str(tmp_path / "out")]) == 0
    (sweep,) = read_all(tmp_path / "out").values()
    assert (sweep.values, sweep.default, sweep.seeds) == (("1", "3"), "3", (1,))
    assert sweep.flips(UNIFORM, "load jitter") == {"1": "bad"}
    assert sweep.flips(THRESHOLD, "load jitter") == {}
    assert list(sweep.outcomes[UNIFORM]) == ["load jitter"]
    often, seldom = (figure or 0 for figure in sweep.figures["jitter"][UNIFORM])
    assert often > 5 >= seldom
    page = markdown({"pauses": sweep}, assumption.load_all(assumptions))
    assert "**bad**: bundles of the pausing task 1 |" in page
    assert "| 1 | 3 (default) |" in page
    assert main([*command, "nobody"]) == 2


@pytest.mark.parametrize("number", range(len(PROBLEMS)))
def test_a_problem_names_the_scenarios_that_decide_it(number: int) -> None:
    names = PROBLEMS[number].scenarios
    given = {name: results(name)[name] for name in names}
    assert judge(given, "it")[number] is not None
    without = {name: of._replace(measures={"it": of.measures["it"]}) for name, of in given.items()}
    assert (judge(without, "it")[number] is None) == PROBLEMS[number].compared
    for name in names:
        assert judge({key: value for key, value in given.items() if key != name}, "it")[number] is None


def test_flips_are_marked_and_steady_verdicts_counted() -> None:
    flipping: tuple[Outcome, ...] = (Outcome("good", "0 x"), Outcome("bad", "9 x"), Outcome("normal", "2 x"))
    steady: tuple[Outcome, ...] = (Outcome("good", "0 x"), Outcome("good", "1 x"), Outcome("good", "0 x"))
    outcomes = {"a": {"load jitter": flipping}, "b": {"load jitter": steady}, "a, again": {"load jitter": flipping}}
    sweep = Sweep("it", "abc", (1, 2), ("1", "2", "3"), "1", outcomes, {})
    page = markdown({"it": sweep}, {"it": assumed(title="Size of it")})
    assert "| load jitter | a (also: again) | good<br>0 x | **bad**<br>9 x | **normal**<br>2 x |" in page
    assert "1 of 3 verdicts are the same" in page
    assert "good<br>**bad**: size of it 2<br>**normal**: size of it 3" in page
    assert "`abc`" in page


@pytest.mark.parametrize("commit", ["", f"0123456789ab{CHANGED}"])
def test_results_of_changed_sources_are_not_committed(
    commit: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("experiments.sweeps.commit_of_sources", lambda: commit)
    assert main(["--page", "pausing_bundles", "--seeds", "1"]) == 2
    assert "commit these first" in capsys.readouterr().err


def test_an_outcome_is_read_as_it_was_written(tmp_path: Path) -> None:
    outcomes: tuple[Outcome, ...] = (Outcome("good", "0 x"), Outcome("bad", "9 x"))
    sweep = Sweep(
        "it", "abc", (1, 2), ("1", "2"), "1", {"a": {"load jitter": outcomes}}, {"jitter": {"a": (1.5, None)}}
    )
    write(tmp_path, sweep)
    assert read_all(tmp_path) == {"it": sweep}
    file = tmp_path / "it.json"
    file.write_text(file.read_text().replace('"version": 1', '"version": 0'))
    with pytest.raises(ValueError, match=r"it\.json"):
        read_all(tmp_path)
