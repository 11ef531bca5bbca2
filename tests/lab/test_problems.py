"""How values become verdicts, by the stated rules, and rows of the tables."""

import math
from dataclasses import replace
from typing import Any

import pytest
from lab.experiments.measures import Curve, Measures
from lab.experiments.problems import (
    FAR_STRONGER,
    OTHER_PROCESSES,
    Judgement,
    judge,
)
from lab.experiments.results import Results, gathered
from lab.experiments.run import Run
from lab.experiments.tables import of_scenario
from lab.experiments.variants import baseline_of

NOTHING = Measures(
    unload_events=0,
    bundles_moved=0,
    disturbed=0.0,
    settled_after=0,
    range_mean=0.0,
    range_end=0.0,
    std_mean=0.0,
    std_end=0.0,
    minutes_above_80=0,
    hot_placements=0,
    overshoots=0,
    traffic_ratio_end=math.inf,
    largest_end=50.0,
    client_seconds=0.0,
)


def results(name: str, *seeds: dict[str, Any], **measures: Any) -> dict[str, Results]:
    """A scenario in which nothing happens without shedding, and something with it, the same or not with each seed."""
    base = replace(NOTHING, range_end=50.0, largest_end=60.0)
    runs = [
        Run(name, variant, seed, replace(base, **given), Curve(1, [50.0], []))
        for variant, each_seed in ((baseline_of("it"), [{}] * 3), ("it", seeds or [measures] * 3))
        for seed, given in enumerate(each_seed, start=1)
    ]
    return {name: gathered(name, "", runs)}


def stronger(**measures: Any) -> dict[str, Results]:
    return {key: value for name in FAR_STRONGER for key, value in results(name, **measures).items()}


def judgement(problem: int, given: dict[str, Results]) -> Judgement:
    judgement = judge(given, "it")[problem]
    assert judgement is not None
    return judgement


@pytest.mark.parametrize(
    ("problem", "given", "verdict", "text"),
    [
        (0, stronger(range_end=25.0) | results(OTHER_PROCESSES), "good", "50 %"),
        (0, stronger(range_end=45.0) | results(OTHER_PROCESSES), "normal", "90 %"),
        (0, stronger(range_end=46.0) | results(OTHER_PROCESSES), "bad", "92 %"),
        (0, stronger(range_end=5.0) | results(OTHER_PROCESSES, largest_end=65.0), "good", "10 %"),
        (0, stronger(range_end=5.0) | results(OTHER_PROCESSES, largest_end=66.0), "bad", "10 %"),
        (1, results("jitter", unload_events=1) | results("cpu_spike"), "good", "1 event"),
        (1, results("jitter", unload_events=4) | results("cpu_spike", unload_events=1), "normal", "5 events"),
        (1, results("jitter", unload_events=6) | results("cpu_spike"), "bad", "6 events"),
        (4, results("hundred_hot_hundred_new", settled_after=9, range_end=14.0), "good", "9 minutes"),
        (4, results("hundred_hot_hundred_new", settled_after=9, range_end=7.0), "good", "9 minutes"),
        (4, results("hundred_hot_hundred_new", settled_after=59, range_end=7.0), "normal", "59 minutes"),
        (4, results("hundred_hot_hundred_new", settled_after=2, range_end=16.0), "bad", "2 minutes"),
        (4, results("hundred_hot_hundred_new", settled_after=90, range_end=16.0), "bad", "90 minutes"),
        (4, results("hundred_hot_hundred_new", settled_after=None), "bad", "never settled"),
    ],
)
def test_verdicts_follow_the_stated_rules(problem: int, given: dict[str, Results], verdict: str, text: str) -> None:
    outcome = judgement(problem, given)
    assert outcome.verdict == verdict
    assert outcome.text.partition(",")[0] == text


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


def test_variants_with_the_same_figures_share_a_row() -> None:
    (of_jitter,) = results("jitter").values()
    measures = dict.fromkeys(("Shedder + placement", "Shedder, varied", "OtherShedder"), of_jitter.measures["it"])
    table = of_scenario(of_jitter._replace(measures=measures))
    assert [row[0] for row in table.rows] == ["Shedder + placement (also: varied; OtherShedder)"]
