"""A grid of settings becomes variants, or is refused by the name of what is wrong in it."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

import pytest

from pulsar_rebalancer.config.settings import Settings, validate
from pulsar_rebalancer.errors import SettingsError
from pulsar_rebalancer.replay.variant_outcome import Figures, VariantOutcome, figures, merged, pareto_front, preferred
from pulsar_rebalancer.replay.variants import CURRENT, expand
from pulsar_rebalancer.strategies.shedders.registry import STRATEGIES_VARIABLE

if TYPE_CHECKING:
    from pathlib import Path

NOW = Settings()


def test_every_combination_of_each_part_and_the_current_settings_once() -> None:
    grid: list[dict[str, object]] = [
        {"strategy": "AvgShedder", "low_threshold": [10, 15], "loadBalancerAvgShedderHitCountLowThreshold": [4, 8]},
        {"strategy": ["ThresholdShedder", "OverloadShedder"], "placement": "LeastResourceUsageWithWeight"},
    ]
    found = expand(grid, NOW)
    # 15 with 8 hits is what Pulsar has already.
    assert [variant.name for variant in found.variants] == [
        CURRENT,
        "AvgShedder, low_threshold 10, hit_count_low 4",
        "AvgShedder, low_threshold 10, hit_count_low 8",
        "AvgShedder, low_threshold 15, hit_count_low 4",
        "ThresholdShedder, placement LeastResourceUsageWithWeight",
        "OverloadShedder, placement LeastResourceUsageWithWeight",
    ]
    assert found.variants[0].current
    assert not found.left_out


def test_values_that_look_alike_are_variants_of_their_own() -> None:
    found = expand([{"min_unload_message": [1234567.1, 1234567.2]}], NOW).variants
    assert len({variant.name for variant in found}) == 3


def test_combinations_that_contradict_themselves_are_left_out_and_told() -> None:
    found = expand([{"low_threshold": [10, 50], "high_threshold": [20, 60]}], NOW)
    assert len(found.variants) == 1 + 3
    assert found.left_out == ["grid, part 1: low_threshold 50 is above high_threshold 20"]


def test_another_strategy_takes_the_placement_that_belongs_to_it() -> None:
    now = validate({"strategy": "ThresholdShedder", "placement": "RoundRobinBrokerSelector"}, where="test")
    _, avg, same = expand([{"strategy": ["AvgShedder", "ThresholdShedder"], "average_threshold": 5}], now).variants
    assert (avg.settings.placement, same.settings.placement) == (None, now.placement)


@pytest.mark.parametrize(
    ("grid", "words"),
    [
        ([{}, {"strategy": "AvgSheder"}], "grid, part 2: strategy: Input should be AvgShedder, ThresholdShedder"),
        ([{"strategy": "no.such_module:shed"}], "strategy no.such_module:shed: ModuleNotFoundError: No module named"),
        ([{"strategy": "..no:shed"}], "strategy: Input should be AvgShedder, ThresholdShedder"),
        ([{"strategy": "raises_on_import:shed"}], "strategy raises_on_import:shed: RuntimeError: of its own"),
        ([{"strategy": "exits_on_import:shed"}], "strategy exits_on_import:shed: SystemExit"),
        ([{"strategy": "math:pi"}], "strategy math:pi: cannot be called"),
        ([{"strategy": "math:sqrt"}], "strategy math:sqrt is not listed in the option strategies"),
        ([{"strategy_settings": {"gap": 3}}], "strategy_settings: gap: Extra inputs are not permitted (got '3')"),
        ([{"low_treshold": [1]}], "'low_treshold' is not a setting of replays"),
        ([{"mode": "auto"}], "'mode' is not a setting of replays"),
        ([{"low_threshold": ["much"]}], "low_threshold (loadBalancerAvgShedderLowThreshold)"),
        ([{"low_threshold": []}], "low_threshold has no value"),
        (["AvgShedder"], "grid, part 1 is not a mapping"),
        (
            [{"low_threshold": list(range(1000)), "high_threshold": list(range(1000))}],
            "1,000,000 variants, at most 1,000",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused(
    grid: list[Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "raises_on_import.py").write_text('raise RuntimeError("of its own")\n')
    (tmp_path / "exits_on_import.py").write_text("raise SystemExit(0)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    named = ("no.such_module:shed", "raises_on_import:shed", "exits_on_import:shed", "math:pi")
    monkeypatch.setenv(STRATEGIES_VARIABLE, ", ".join(named))
    with pytest.raises(SettingsError) as refused:
        expand(grid, NOW)
    assert refused.value.reason == "wrong_setting"
    assert words in str(refused.value)


def test_the_front_and_what_a_preference_picks() -> None:
    compared = [
        Figures(name, 0, 0, unloads, 0, 0, mean, 0, 0, 0, 0, 0)
        for name, unloads, mean in [
            ("a", 0, 40),
            ("b", 10, 20),
            ("c", 10, 20),
            ("d", 20, 20),
            ("e", 100, 5),
            ("f", 50, 30),
        ]
    ]
    assert pareto_front(compared) == {"a", "b", "c", "e"}
    assert [preferred(compared, worth) for worth in (0, 1, 10)] == ["a", "b", "e"]


def test_stretches_of_a_variant_become_one() -> None:
    parts = [
        VariantOutcome("a", array("f", [1, 3]), 1.0, 1, 1, 4, 100.0, 0),
        VariantOutcome("a", array("f", [5]), 2.0, 0, 2, 2, 50.0, 1),
    ]
    found = figures(merged([*parts, VariantOutcome("b")])["a"], 720)
    assert found == pytest.approx(("a", 6, 3, 12.0, 6.0, 300.0, 3.0, 4.8, 5.0, 1.0, 1 / 3, 1))
