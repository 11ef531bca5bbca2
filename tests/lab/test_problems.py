import math
from dataclasses import fields, replace
from typing import Any

import pytest
from lab.experiments.measures import Curve, Measures
from lab.experiments.problems import FAR_STRONGER, OTHER_PROCESSES, Judgement, judge
from lab.experiments.results import Results, gathered
from lab.experiments.run import Run
from lab.experiments.variants import baseline_of

NOTHING = Measures(*[0] * len(fields(Measures)))
BEFORE = replace(NOTHING, range_end=50.0, traffic_ratio_end=math.inf, largest_end=60.0)


def results(name: str, **measures: Any) -> dict[str, Results]:
    """A scenario in which nothing happens without shedding, and something with it, the same with each seed."""
    pairs = ((baseline_of("it"), BEFORE), ("it", replace(BEFORE, **measures)))
    runs = [Run(name, variant, seed, found, Curve(1, [50.0], [])) for variant, found in pairs for seed in (1, 2, 3)]
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
