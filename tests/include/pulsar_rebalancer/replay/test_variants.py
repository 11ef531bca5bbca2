from pathlib import Path
from typing import Any

import pytest

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.errors import SettingsError
from pulsar_rebalancer.replay.variant_outcome import Metrics, pareto_front, preferred_variant
from pulsar_rebalancer.replay.variants import CURRENT_VARIANT, expand_grid
from pulsar_rebalancer.strategies.shedders.registry import STRATEGIES_VARIABLE

NOW = Settings()


def test_every_combination_of_each_part_and_the_current_settings_once() -> None:
    grid: list[dict[str, object]] = [
        {"strategy": "AvgShedder", "low_threshold": [10, 15], "loadBalancerAvgShedderHitCountLowThreshold": [4, 8]},
        {"strategy": ["ThresholdShedder", "OverloadShedder"], "placement": "LeastResourceUsageWithWeight"},
    ]
    found = expand_grid(grid, NOW)
    # 15 with 8 hits is what Pulsar has already.
    assert [variant.name for variant in found.variants] == [
        CURRENT_VARIANT,
        "AvgShedder, low_threshold 10, hit_count_low 4",
        "AvgShedder, low_threshold 10, hit_count_low 8",
        "AvgShedder, low_threshold 15, hit_count_low 4",
        "ThresholdShedder, placement LeastResourceUsageWithWeight",
        "OverloadShedder, placement LeastResourceUsageWithWeight",
    ]
    assert found.variants[0].is_current
    assert not found.left_out_texts


@pytest.mark.parametrize(
    ("grid", "words"),
    [
        ([{}, {"strategy": "AvgSheder"}], "grid, part 2: strategy: Input should be AvgShedder, ThresholdShedder"),
        ([{"strategy": "no.such_module:shed"}], "strategy no.such_module:shed: ModuleNotFoundError: No module named"),
        ([{"strategy": "..no:shed"}], "strategy: Input should be AvgShedder, ThresholdShedder"),
        ([{"strategy": "raises_on_import:shed"}], "strategy raises_on_import:shed: RuntimeError: of its own"),
        ([{"strategy": "exits_on_import:shed"}], "strategy exits_on_import:shed: SystemExit"),
        ([{"strategy": "math:pi"}], "strategy math:pi is not callable"),
        ([{"strategy": "math:sqrt"}], "strategy math:sqrt is not listed in the option strategies"),
        ([{"strategy_settings": {"gap": 3}}], "strategy_settings: gap: Extra inputs are not permitted (got '3')"),
        ([{"low_treshold": [1]}], "a replay cannot change setting 'low_treshold'"),
        ([{"mode": "auto"}], "a replay cannot change setting 'mode'"),
        ([{"low_threshold": ["much"]}], "low_threshold (loadBalancerAvgShedderLowThreshold)"),
        ([{"low_threshold": []}], "low_threshold has no value"),
        (["AvgShedder"], "grid, part 1 is not a mapping"),
        (
            [{"low_threshold": list(range(1000)), "high_threshold": list(range(1000))}],
            "1,000,000 variants exceed the maximum of 1,000",
        ),
    ],
)
def test_incomparable_variants_are_refused(
    grid: list[Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "raises_on_import.py").write_text('raise RuntimeError("of its own")\n')
    (tmp_path / "exits_on_import.py").write_text("raise SystemExit(0)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    named = ("no.such_module:shed", "raises_on_import:shed", "exits_on_import:shed", "math:pi")
    monkeypatch.setenv(STRATEGIES_VARIABLE, ", ".join(named))
    with pytest.raises(SettingsError) as refused:
        expand_grid(grid, NOW)
    assert refused.value.reason == "wrong_setting"
    assert words in str(refused.value)


def test_the_front_and_what_a_preference_picks() -> None:
    compared = [
        Metrics(name, 0, 0, unloads, 0, 0, mean, 0, 0, 0, 0, 0)
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
    assert [preferred_variant(compared, worth) for worth in (0, 1, 10)] == ["a", "b", "e"]
