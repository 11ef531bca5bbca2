"""What is measured of a run, and how figures become verdicts."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from experiments.measures import Curve, Measures, Recorder, comes_back
from experiments.problems import BASELINE, NOT_RUN, brokers_differ, moving_scenarios, verdicts
from experiments.results import Results
from experiments.run import Run
from experiments.scenario import Change, load_all
from experiments.tables import of_scenario

ALIVE = np.array([True, True, True, False])


def record(scores: list[list[float]], unloads: dict[int, list[int]], disturbed_at: int = 0) -> Measures:
    recorder = Recorder(disturbed_at)
    for minute, row in enumerate(scores):
        recorder.minute(np.array([*row, 0.0]), ALIVE, np.array([3.0, 1.0, 0.0, 0.0]))
        sources = unloads.get(minute, [])
        if sources:
            recorder.unloads(minute, [(source, 2.0 * 2**20) for source in sources])
    return recorder.measures()


def test_a_run_that_settles() -> None:
    scores = [[90.0, 60.0, 30.0]] * 5 + [[62.0, 60.0, 58.0]] * 15
    found = record(scores, {2: [0], 4: [0, 0]}, disturbed_at=1)
    assert (found.unload_events, found.bundles_moved, found.disturbed) == (2, 3, 6.0)
    assert found.settled_after == 4
    assert (found.minutes_above_80, found.overshoots, found.traffic_ratio_end) == (5, 0, math.inf)
    assert found.range_mean == pytest.approx((4 * 60 + 15 * 4) / 19)
    assert (found.range_end, found.largest_end) == (4, 62)
    assert found.std_end == pytest.approx(np.std([62, 60, 58]))


def test_a_broker_at_eighty_is_not_above_it_whatever_rounding_makes_of_it() -> None:
    assert record([[80.0 + 1e-12, 80.0, 80.0 - 1e-12]] * 20, {}).minutes_above_80 == 0
    assert record([[80.01, 80.0, 80.0]] * 20, {}).minutes_above_80 == 20


def test_a_run_that_never_settles_and_one_without_a_move() -> None:
    scores = [[50.0, 50.0, 50.0]] * 20
    assert record(scores, {12: [0]}).settled_after is None
    assert record(scores, {}).settled_after == 0


@pytest.mark.parametrize(("after", "counted"), [(54.0, 0), (45.0, 1)])
def test_a_source_that_gave_too_much(after: float, counted: int) -> None:
    scores = [[90.0, 60.0, 60.0]] * 2 + [[after, 60.0, 60.0]] * 18
    assert record(scores, {1: [0]}).overshoots == counted


def test_what_comes_back_in_a_swap_is_no_overshoot() -> None:
    recorder, moves = Recorder(0), [(0, 1), (0, 1), (1, 0), (2, 1)]
    for minute in range(20):
        recorder.minute(np.array([40.0, 60.0, 60.0, 0.0]), ALIVE, np.ones(4))
        if minute == 1:
            back = comes_back(moves)
            recorder.unloads(minute, [(source, 1.0) for source, _ in moves], back)
    assert back == [False, False, True, False]
    assert recorder.measures().overshoots == 2
    assert recorder.measures().bundles_moved == 4
    low = Recorder(0)
    low.minute(np.array([60.0, 40.0, 60.0, 0.0]), ALIVE, np.ones(4))
    low.unloads(0, [(0, 1.0), (1, 1.0)], comes_back([(0, 1), (1, 0)]))
    low.minute(np.array([60.0, 40.0, 60.0, 0.0]), ALIVE, np.ones(4))
    assert low.measures().overshoots == 0


@pytest.mark.parametrize(("destination", "counted"), [(0, 1), (1, 0), (2, 0)])
def test_a_destination_that_was_hot_already(destination: int, counted: int) -> None:
    recorder = Recorder(0)
    recorder.minute(np.array([65.0, 64.9, 50.1, 0.0]), ALIVE, np.ones(4))
    recorder.placed(destination, np.array([65.0, 64.9, 50.1, 0.0]), ALIVE)
    assert recorder.measures().hot_placements == counted


NOTHING = record([[50.0, 50.0, 50.0]] * 20, {})


def results(name: str, **measures: Any) -> dict[str, Results]:
    """A scenario in which nothing happens without shedding, and something with it."""
    base = replace(NOTHING, range_end=50.0, largest_end=60.0)
    runs = {
        variant: [Run(name, variant, seed, found, Curve([], [], [], [], [], [])) for seed in (1, 2, 3)]
        for variant, found in ((BASELINE, base), ("it", replace(base, **measures)))
    }
    return {name: Results(name, "", (1, 2, 3), runs)}


def moving(moved: int, **measures: int) -> dict[str, Results]:
    found: dict[str, Results] = {}
    for name in moving_scenarios():
        found |= results(name, bundles_moved=moved, **measures)
    return found


@pytest.mark.parametrize(
    ("problem", "given", "verdict"),
    [
        (0, results("one_far_stronger", range_end=25.0) | results("by_hand_other_processes"), "good (50 %)"),
        (0, results("one_far_stronger", range_end=45.0) | results("by_hand_other_processes"), "normal (90 %)"),
        (0, results("one_far_stronger", range_end=46.0) | results("by_hand_other_processes"), "bad (92 %)"),
        (
            0,
            results("one_far_stronger", range_end=5.0) | results("by_hand_other_processes", largest_end=65.0),
            "bad (10 %, a hot broker became hotter)",
        ),
        (1, results("jitter", unload_events=1) | results("cpu_spike"), "good (1)"),
        (1, results("jitter", unload_events=4) | results("cpu_spike", unload_events=1), "normal (5)"),
        (1, results("jitter", unload_events=6) | results("cpu_spike"), "bad (6)"),
        (2, moving(100, hot_placements=1), "good (1.0 %)"),
        (2, moving(100, hot_placements=2), "normal (2.0 %)"),
        (2, moving(100, hot_placements=10), "bad (10.0 %)"),
        (
            2,
            moving(100, hot_placements=1) | results("by_hand_one_idle", bundles_moved=1, hot_placements=1),
            "normal (8.6 %)",
        ),
        (2, moving(100, hot_placements=1) | results("by_hand_one_idle", bundles_moved=0), "good (1.0 %)"),
        (2, moving(0), "moved nothing"),
        (3, moving(100, overshoots=4), "good (4.0 %)"),
        (3, moving(100, overshoots=5), "normal (5.0 %)"),
        (3, moving(100, overshoots=25), "bad (25.0 %)"),
        (4, results("hundred_hot_hundred_new", settled_after=10, range_end=14.0), "good (10 min, range 14)"),
        (4, results("hundred_hot_hundred_new", settled_after=60, range_end=14.0), "normal (60 min, range 14)"),
        (4, results("hundred_hot_hundred_new", settled_after=2, range_end=15.0), "bad (2 min, range 15)"),
        (4, results("hundred_hot_hundred_new", settled_after=None, range_end=3.0), "bad (not settled, range 3)"),
        (4, {}, NOT_RUN),
    ],
)
def test_verdicts_follow_the_stated_rules(problem: int, given: dict[str, Results], verdict: str) -> None:
    assert verdicts(given, "it")[problem] == verdict


def test_shares_of_moved_bundles_are_of_all_scenarios_in_which_brokers_differ_and_none_stops() -> None:
    equal = {"cold_start", "cpu_spike", "jitter", "month"}
    stopped = {"one_broker_stopped", "two_brokers_stopped"}
    assert set(moving_scenarios()) == set(load_all()) - equal - stopped


@pytest.mark.parametrize(
    ("change", "moves"),
    [
        ({}, True),
        ({"load": (50.0, 50.0)}, False),
        ({"load": (), "placed": "even"}, False),
        ({"changes": (Change(minute=1, stop=(1,)),)}, False),
        ({"load": (), "placed": "even", "changes": (Change(minute=1, start=(2,)),)}, True),
    ],
)
def test_brokers_differ_by_their_load_or_because_one_joins(change: dict[str, object], moves: bool) -> None:
    given = load_all()["by_hand_history_score"].model_copy(update=change)
    assert brokers_differ(given) == moves


def test_a_table_shows_median_and_spread() -> None:
    (found,) = results("jitter").values()
    events = [found.runs["it"][i]._replace(measures=replace(NOTHING, unload_events=n)) for i, n in enumerate((7, 1, 3))]
    row = of_scenario(found._replace(runs={"it": events})).rows[0]
    assert row[:2] == ["it", "3 (1 to 7)"]
    assert row[-1] == "∞"


@pytest.mark.parametrize(
    ("settled", "text", "verdict"),
    [
        ((139, None, None), "never (139, 2 never)", "bad (not settled, range 3)"),
        ((5, None, 8), "8 (5 to 8, 1 never)", "good (8 min, range 3)"),
        ((None, None, None), "never", "bad (not settled, range 3)"),
        ((5, 5, 5), "5", "good (5 min, range 3)"),
    ],
)
def test_a_seed_that_never_settles_counts_as_the_longest(
    settled: tuple[int | None, ...], text: str, verdict: str
) -> None:
    (found,) = results("hundred_hot_hundred_new", range_end=3.0).values()
    runs = [
        run._replace(measures=replace(run.measures, settled_after=minutes))
        for run, minutes in zip(found.runs["it"], settled, strict=True)
    ]
    found = found._replace(runs=found.runs | {"it": runs})
    assert of_scenario(found).rows[1][4] == text
    assert verdicts({found.scenario: found}, "it")[4] == verdict


def test_how_unequal_the_traffic_is_at_the_end_and_the_deviation_over_time() -> None:
    recorder = Recorder(0)
    for number in range(20):
        busiest = 8.0 if number < 10 else 5.0
        recorder.minute(np.array([62.0, 60.0, 58.0, 0.0]), ALIVE, np.array([busiest, 4.0, 2.0, 0.0]))
    assert recorder.measures().traffic_ratio_end == 2.5
    assert recorder.curve().deviation == [1.63] * 20
