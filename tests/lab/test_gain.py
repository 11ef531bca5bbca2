"""The proof for GainShedder: parts are really taken away, and goals are judged as they were set."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from lab.experiments.scenario import load
from lab.families import family_page
from lab.families.contestants import AVG, GAIN, contestants
from lab.families.family import load_all
from lab.families.family_results import FamilyResults, read_all
from lab.families.family_run import run
from lab.gain import gain_page
from lab.gain.goals import loses_clearly, verdicts
from lab.gain.parts import MESSAGES, PARTS, RANDOM, SHUFFLED, without
from lab.gain.single_cases import FOLDER, NETWORK, run_case

if TYPE_CHECKING:
    from lab.families.family_results import Figures

FAMILY = load_all()["mix"].model_copy(update={"minutes": 200})
SHEDDER = contestants()[GAIN]


def figures(part: str) -> Figures:
    with without(part):
        return run(FAMILY, SHEDDER, 1)


def test_each_part_changes_what_happens_and_is_there_again_afterwards() -> None:
    everything = figures("")
    assert [part for part in PARTS if figures(part) == everything] == []
    assert figures("") == everything


def test_bytes_serve_better_than_messages_where_the_network_is_the_bottleneck() -> None:
    case = load(FOLDER / f"{NETWORK}.toml").model_copy(update={"minutes": 240})
    bytes_, messages = (run_case(case, SHEDDER, name, 1) for name in (GAIN, MESSAGES))
    assert bytes_.range_mean < 0.8 * messages.range_mean
    assert 0 < bytes_.moves < messages.moves


def results(moves: float, ranges: float, hottest: float, name: str = "f") -> dict[str, FamilyResults]:
    """AvgShedder with 99 moves, a range of 10 and a hottest broker at 70, and GainShedder."""
    usual: Figures = {"moves_per_day": 99.0, "range_mean": 10.0, "hottest_p99": 70.0}
    own: Figures = {"moves_per_day": moves, "range_mean": ranges, "hottest_p99": hottest}
    return {name: FamilyResults(name, "", (1,), {AVG: [usual], GAIN: [own]})}


@pytest.mark.parametrize(
    ("given", "missed"),
    [
        (results(49.0, 9.9, 70.5), []),
        (results(49.2, 9.9, 70.5), [0]),
        (results(59.0, 9.9, 70.5, "held_slow_large"), []),
        (results(59.2, 9.9, 70.5, "held_slow_large"), [0]),
        (results(49.0, 10.0, 70.5), [1]),
        (results(49.0, 9.9, 70.6), [2]),
    ],
)
def test_goals(given: dict[str, FamilyResults], missed: list[int]) -> None:
    found = verdicts({**results(0.0, 1.0, 0.0, "other"), **given}, AVG)
    assert [number for number, verdict in enumerate(found) if verdict.missed] == missed
    assert all(set(verdict.missed) <= given.keys() for verdict in found)


@pytest.mark.parametrize(
    ("moves", "ranges", "loses"), [(110.0, 10.0, True), (100.0, 11.0, True), (107.0, 10.8, False), (98.0, 15.0, False)]
)
def test_a_control_must_be_clearly_worse_and_nowhere_better(moves: float, ranges: float, loses: bool) -> None:
    shown = results(99.0, 10.0, 70.0)["f"]
    control: Figures = {"moves_per_day": moves, "range_mean": ranges, "hottest_p99": 70.0}
    assert loses_clearly({"f": shown._replace(runs=shown.runs | {"control": [control]})}, "control") is loses


def test_committed_results_show_what_the_page_says() -> None:
    held_out = read_all(family_page.RESULTS / "held-out")
    for other in ("", ", fewest moves of the grid", ", smallest range of the grid"):
        assert [bool(verdict.missed) for verdict in verdicts(held_out, AVG + other)] == [True, False, False]
    parts = read_all(gain_page.RESULTS / "parts")
    assert all(list(results.runs) == [GAIN, *PARTS] for results in parts.values())
    assert loses_clearly(parts, RANDOM)
    assert loses_clearly(parts, SHUFFLED)
    # GainShedder itself is what the families' own results say.
    training, prices = (read_all(family_page.RESULTS / "training"), read_all(gain_page.RESULTS / "prices"))
    assert {name: results.runs[GAIN] for name, results in parts.items()} == {
        name: training[name].runs[GAIN] for name in parts
    }
    assert {name: results.runs["min_gain 30"] for name, results in prices.items()} == {
        name: results.runs[GAIN] for name, results in training.items()
    }
