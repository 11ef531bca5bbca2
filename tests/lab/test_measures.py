"""What is measured of a run, and how tables show it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from lab.experiments.building import build
from lab.experiments.measures import Curve, Measures, Recorder
from lab.experiments.run import run
from lab.experiments.scenario import load_all
from lab.experiments.tables import of_scenario
from lab.experiments.variants import VARIANTS
from tests.lab.test_problems import results

ALIVE = np.array([True, True, True, False])


def record(scores: list[list[float]], unloads: dict[int, list[int]], disturbed_at: int = 0) -> Measures:
    recorder = Recorder(disturbed_at)
    for minute, row in enumerate(scores):
        recorder.minute(np.array([*row, 0.0]), ALIVE, np.array([3.0, 1.0, 0.0, 0.0]))
        sources = unloads.get(minute, [])
        if sources:
            recorder.unloads(minute, [(source, 2.0 * 2**20, False) for source in sources])
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


def test_what_comes_back_in_a_declared_swap_is_no_overshoot() -> None:
    recorder = Recorder(0)
    for minute in range(20):
        recorder.minute(np.array([40.0, 60.0, 60.0, 0.0]), ALIVE, np.ones(4))
        if minute == 1:
            recorder.unloads(minute, [(0, 1.0, False), (0, 1.0, True), (0, 1.0, False), (1, 1.0, False)])
    assert recorder.measures().overshoots == 2
    assert recorder.measures().bundles_moved == 4


def test_client_seconds_without_a_broker_are_those_of_moved_and_of_lost_bundles() -> None:
    given = load_all()["one_broker_stopped"]
    calm = given.model_copy(update={"changes": (), "minutes": 60})
    nothing, avg = (next(v for v in VARIANTS if v.name == name) for name in ("no shedding, AvgShedder", "AvgShedder"))
    assert run(calm, nothing, 1).measures.client_seconds == 0
    stopped = run(given.model_copy(update={"minutes": 34}), nothing, 1).measures
    # The session ends after 30 s; look-ups take 2 s on average. Four clients for each bundle of one of five brokers.
    spec = build(given, 1, direct=False)
    lost = int((spec.owner == 0).sum())
    assert 4 * 30 * lost < stopped.client_seconds < 4 * 40 * lost
    moved = run(load_all()["by_hand_history_score"], avg, 1).measures
    assert moved.client_seconds == pytest.approx(4 * spec.rules.unload_seconds * moved.bundles_moved)


@pytest.mark.parametrize(("destination", "counted"), [(0, 1), (1, 0), (2, 0)])
def test_a_destination_that_was_hot_already(destination: int, counted: int) -> None:
    recorder = Recorder(0)
    recorder.minute(np.array([65.0, 64.9, 50.1, 0.0]), ALIVE, np.ones(4))
    recorder.placed(destination, np.array([65.0, 64.9, 50.1, 0.0]), ALIVE)
    assert recorder.measures().hot_placements == counted


def test_a_table_shows_median_and_spread() -> None:
    (of_jitter,) = results("jitter", *({"unload_events": events} for events in (7, 1, 3))).values()
    row = of_scenario(of_jitter).rows[1]
    assert row[:2] == ["it", "3 (1 to 7)"]
    assert row[-1] == "∞"


@pytest.mark.parametrize(
    ("settled", "text"),
    [
        ((139, None, None), "never (139, 2 never)"),
        ((5, None, 8), "8 (5 to 8, 1 never)"),
        ((None, None, None), "never"),
        ((5, 5, 5), "5"),
    ],
)
def test_a_seed_that_never_settles_counts_as_the_longest(settled: tuple[int | None, ...], text: str) -> None:
    (found,) = results("hundred_hot_hundred_new", *({"settled_after": minutes} for minutes in settled)).values()
    assert of_scenario(found).rows[1][4] == text


def test_how_unequal_the_traffic_is_at_the_end() -> None:
    recorder = Recorder(0)
    for number in range(20):
        busiest = 8.0 if number < 10 else 5.0
        recorder.minute(np.array([62.0, 60.0, 58.0, 0.0]), ALIVE, np.array([busiest, 4.0, 2.0, 0.0]))
    assert recorder.measures().traffic_ratio_end == 2.5


def test_a_curve_is_the_mean_range_of_each_step() -> None:
    recorder = Recorder(0)
    for minute in range(241):
        recorder.minute(np.array([60.0 + minute % 3, 60.0, 60.0, 0.0]), ALIVE, np.ones(4))
    recorder.unloads(7, [(0, 1.0, False)])
    assert recorder.curve() == Curve(3, [1.0] * 80 + [0.0], [7])


def test_variants_with_the_same_figures_share_a_row() -> None:
    (of_jitter,) = results("jitter").values()
    measures = dict.fromkeys(("Shedder + placement", "Shedder, varied", "OtherShedder"), of_jitter.measures["it"])
    table = of_scenario(of_jitter._replace(measures=measures))
    assert [row[0] for row in table.rows] == ["Shedder + placement (also: varied; OtherShedder)"]
