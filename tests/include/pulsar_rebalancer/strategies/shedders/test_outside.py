"""A shedder from outside the package brings all that the product asks of one; nothing here is changed for it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from lab.experiments.run import run as run_experiment
from lab.experiments.scenario import load_all
from lab.experiments.variants import from_outside
from tests import outside_shedder
from tests.include.pulsar_rebalancer.replay.recorded import Run, recorded
from tests.overview_scene import JUST_NOW, Scene, history, seen, uneven

from pulsar_rebalancer.config.enums import Placement
from pulsar_rebalancer.config.resolution import parse_params
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.errors import SettingsError
from pulsar_rebalancer.replay.closed_loop import replay
from pulsar_rebalancer.replay.variants import expand
from pulsar_rebalancer.show.measurements import measure
from pulsar_rebalancer.strategies.fitting import load_clusters, resolve
from pulsar_rebalancer.strategies.shedders.profile import Profile
from pulsar_rebalancer.strategies.shedders.registry import STRATEGIES_VARIABLE, placement_of

if TYPE_CHECKING:
    from pathlib import Path

    from pulsar_rebalancer.show.page.page_model import Overview

PATH = outside_shedder.PATH
PLAIN = Profile(outside_shedder.shed)
HOT, COLD = "a:8080", "b:8080"
QUARTERS = [f"t/n/0x{n << 30:08x}_0x{(n + 1) << 30:08x}" for n in range(4)]


@pytest.fixture(autouse=True)
def listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STRATEGIES_VARIABLE, f"elsewhere:shed, {PATH}")


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Leave parts of its profile out: what the product says then is what it says of any shedder."""

    def leave_out(*names: str) -> None:
        left = {name: getattr(PLAIN, name) for name in names}
        monkeypatch.setattr(outside_shedder, "PROFILE", replace(outside_shedder.PROFILE, **left))

    return leave_out


def page(folder: Path, **own: float) -> Overview:
    made = Scene(str(folder), uneven(4, hottest=55, coldest=20), strategy=PATH, strategy_settings=own)
    history(made, JUST_NOW, 1)
    return seen(made)


def test_its_settings_are_validated_and_come_out_with_their_defaults() -> None:
    assert resolve({"strategy": PATH}, {}).settings.strategy_settings == {"gap": 30.0, "times": 2}
    own = {"gap": 12}
    assert resolve({"strategy": PATH, "strategy_settings": own}, {}).settings.strategy_settings["gap"] == 12
    with pytest.raises(SettingsError, match=r"strategy_settings: gap: Input should be greater than 0") as refused:
        resolve({"strategy": PATH, "strategy_settings": {"gap": -1}}, {})
    assert refused.value.reason == "wrong_setting"


def test_without_a_model_it_has_no_settings(without: Any) -> None:
    without("own_settings", "thresholds", "lines")
    with pytest.raises(SettingsError, match="strategy_settings: gap: Extra inputs are not permitted"):
        resolve({"strategy": PATH, "strategy_settings": {"gap": 12}}, {})


def test_parameters_that_it_knows_are_its_own(without: Any) -> None:
    forced = parse_params({"force": "new brokers", "force_threshold": 5})
    assert resolve({"strategy": PATH}, {}, forced).settings.strategy == PATH
    with pytest.raises(SettingsError, match=f"low_threshold: strategy {PATH} does not use them"):
        resolve({"strategy": PATH}, {}, parse_params({"low_threshold": 5}))
    without("thresholds")
    with pytest.raises(SettingsError, match="force_threshold: strategy"):
        resolve({"strategy": PATH}, {}, forced)


def test_its_placement_is_used_where_the_settings_name_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for placement in (Placement.ROUND_ROBIN, Placement.LEAST_RATE):
        monkeypatch.setattr(outside_shedder, "PROFILE", replace(outside_shedder.PROFILE, placement=placement))
        assert placement_of(Settings(strategy=PATH)) == placement


def test_the_page_shows_pairs_with_their_hits_and_lines(tmp_path: Path, without: Any) -> None:
    found = page(tmp_path)
    pair = found.pairs[0]
    assert found.status.pairing
    assert (pair.band, pair.hits["low"].have, pair.hits["low"].need) == ("low", 1, 2)
    assert pair.seconds_to_fire == 60
    assert found.status.sentence.endswith("hit 1 of 2, fires in about 30 seconds.")
    assert [(line.name, line.upper) for line in found.lines] == [("of somebody else", 31)]
    even = page(tmp_path / "high", gap=99)
    assert even.status.sentence == "Somebody else finds 4 brokers even enough: nothing to do."

    without("thresholds", "lines", "sentence")
    bare = page(tmp_path / "bare")
    assert not bare.status.pairing
    assert not any(pair.hits for pair in bare.pairs)
    assert bare.lines == ()
    assert page(tmp_path / "bare high", gap=99).status.sentence.startswith("The outermost two are ")


def test_its_threshold_is_measured(tmp_path: Path) -> None:
    made = Scene(str(tmp_path), uneven(4), strategy=PATH, strategy_settings={"gap": 33})
    found = {(each.name, each.labels.get("kind")): each.value for each in measure("east", made.run(JUST_NOW), None)}
    assert found["threshold", "low"] == 33


def test_a_run_of_a_strategy_that_is_gone_is_still_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STRATEGIES_VARIABLE, PATH)
    made = Scene(str(tmp_path), uneven(4), strategy=PATH)
    made.run(JUST_NOW)
    monkeypatch.delenv(STRATEGIES_VARIABLE)
    assert len(seen(made).brokers) == 4


def test_a_replay_takes_it_and_its_settings_through_a_recording(tmp_path: Path) -> None:
    hot = Run({HOT: 80, COLD: 20}, {HOT: dict.fromkeys(QUARTERS, 200), COLD: {}})
    grid = [{"strategy": PATH, "strategy_settings": [{"times": 1}, {"times": 3}, {"gap": 90}]}]
    compared = expand(grid, Settings()).variants
    recording = recorded(tmp_path, dict.fromkeys(range(4), hot))
    moved = [each.moved for each in replay(recording, compared, Settings())[1:-1]]
    assert moved[1:] == [1, 0]
    assert moved[0] >= 1


def test_it_takes_part_in_experiments() -> None:
    once = load_all()["by_hand_one_idle"].model_copy(update={"minutes": 40})
    assert run_experiment(once, from_outside(PATH), 1).measures.bundles_moved > 0


@pytest.mark.parametrize(
    ("strategy", "why"),
    [
        ("tests.outside_shedder:PROFILE", "is not listed in the option strategies of [pulsar_rebalancer]: add it"),
        ("elsewhere:shed", "strategy elsewhere:shed: ModuleNotFoundError"),
        ("elsewhere", "Input should be AvgShedder"),
    ],
)
def test_a_path_that_leads_nowhere_breaks_its_own_cluster_only(tmp_path: Path, strategy: str, why: str) -> None:
    file = tmp_path / "clusters.yaml"
    file.write_text(f"clusters: {{east: {{strategy: '{strategy}'}}, west: {{strategy: '{PATH}'}}}}")
    east, west = load_clusters(file)
    assert why in east.error
    assert "[wrong_setting]" in east.error
    assert (west.error, west.settings.strategy_settings) == ("", {"gap": 30.0, "times": 2})


def test_an_error_at_import_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_shedder.py").write_text('raise ImportError("no such file:\\nGate open")')
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv(STRATEGIES_VARIABLE, "broken_shedder:shed")
    (tmp_path / "clusters.yaml").write_text("clusters: {east: {strategy: 'broken_shedder:shed'}}")
    (east,) = load_clusters(tmp_path / "clusters.yaml")
    assert "ImportError: no such file: Gate open [wrong_setting]" in east.error


@pytest.mark.parametrize("part", ["thresholds", "cluster_hits", "lines", "check"])
def test_a_profile_that_fails_breaks_its_own_cluster_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    failing: dict[str, Any] = {part: mock.Mock(side_effect=KeyError("of somebody else"))}
    monkeypatch.setattr(outside_shedder, "PROFILE", replace(outside_shedder.PROFILE, **failing))
    (tmp_path / "clusters.yaml").write_text(f"clusters: {{east: {{strategy: '{PATH}'}}, west: {{}}}}")
    east, west = load_clusters(tmp_path / "clusters.yaml")
    assert "KeyError: 'of somebody else' [wrong_setting]" in east.error
    assert not west.error
