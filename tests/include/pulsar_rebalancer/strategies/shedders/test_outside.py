import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from tests import outside_shedder
from tests.overview_scene import JUST_NOW, Scene, history, seen, uneven

from pulsar_rebalancer.errors import SettingsError
from pulsar_rebalancer.show.page.page_model import Overview
from pulsar_rebalancer.strategies.shedders.registry import STRATEGIES_VARIABLE, load_clusters, resolve

PATH = outside_shedder.PATH


@pytest.fixture(autouse=True)
def listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STRATEGIES_VARIABLE, f"elsewhere:shed, {PATH}")


def page(folder: Path, **own: float) -> Overview:
    made = Scene(str(folder), uneven(4, hottest=55, coldest=20), strategy=PATH, strategy_settings=own)
    history(made, JUST_NOW, 1)
    return seen(made)


def test_its_settings_are_validated_and_come_out_with_their_defaults():
    assert resolve({"strategy": PATH}, {}).settings.strategy_settings == {"gap": 30.0, "times": 2}
    own = {"gap": 12}
    assert resolve({"strategy": PATH, "strategy_settings": own}, {}).settings.strategy_settings["gap"] == 12
    with pytest.raises(SettingsError, match=r"strategy_settings: gap: Input should be greater than 0") as refused:
        resolve({"strategy": PATH, "strategy_settings": {"gap": -1}}, {})
    assert refused.value.reason == "wrong_setting"


def test_a_run_of_a_strategy_that_is_gone_is_still_shown(tmp_path, monkeypatch):
    monkeypatch.setenv(STRATEGIES_VARIABLE, PATH)
    made = Scene(str(tmp_path), uneven(4), strategy=PATH)
    made.run(JUST_NOW)
    monkeypatch.delenv(STRATEGIES_VARIABLE)
    assert len(seen(made).brokers) == 4


@pytest.mark.parametrize(
    ("strategy", "why"),
    [
        ("tests.outside_shedder:PROFILE", "is not listed in the option strategies of [pulsar_rebalancer]: correct"),
        ("elsewhere:shed", "strategy elsewhere:shed: ModuleNotFoundError"),
        ("elsewhere", "Input should be AvgShedder"),
    ],
)
def test_a_path_that_leads_nowhere_breaks_its_own_cluster_only(tmp_path, strategy, why):
    file = tmp_path / "clusters.yaml"
    file.write_text(f"clusters: {{east: {{strategy: '{strategy}'}}, west: {{strategy: '{PATH}'}}}}")
    east, west = load_clusters(file)
    assert why in east.error
    assert "[wrong_setting]" in east.error
    assert (west.error, west.settings.strategy_settings) == ("", {"gap": 30.0, "times": 2})


def test_an_error_at_import_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "broken_shedder.py").write_text('raise ImportError("no such file:\\nGate open")')
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv(STRATEGIES_VARIABLE, "broken_shedder:shed")
    (tmp_path / "clusters.yaml").write_text("clusters: {east: {strategy: 'broken_shedder:shed'}}")
    (east,) = load_clusters(tmp_path / "clusters.yaml")
    assert "ImportError: no such file: Gate open [wrong_setting]" in east.error


class OwnError(BaseException):
    """Not an Exception."""


@pytest.mark.parametrize("raised", [KeyError, SystemExit, KeyboardInterrupt, OwnError])
@pytest.mark.parametrize("part", ["thresholds", "cluster_hits", "lines", "check"])
def test_a_profile_that_fails_breaks_its_own_cluster_only(tmp_path, monkeypatch, part, raised):
    failing: dict[str, Any] = {part: mock.Mock(side_effect=raised("of\nsomebody else"))}
    monkeypatch.setattr(outside_shedder, "PROFILE", replace(outside_shedder.PROFILE, **failing))
    (tmp_path / "clusters.yaml").write_text(f"clusters: {{east: {{strategy: '{PATH}'}}, west: {{}}}}")
    east, west = load_clusters(tmp_path / "clusters.yaml")
    assert f"{raised.__name__}: " in east.error
    assert "somebody else" in east.error
    assert "[wrong_setting]" in east.error
    assert not west.error


@pytest.mark.parametrize("raised", [SystemExit, KeyboardInterrupt, OwnError])
def test_a_module_that_ends_the_process_breaks_its_own_cluster_only(tmp_path, raised):
    (tmp_path / "clusters.yaml").write_text("clusters: {east: {strategy: 'elsewhere:shed'}, west: {}}")
    with mock.patch.object(importlib, "import_module", side_effect=raised("of somebody else")):
        east, west = load_clusters(tmp_path / "clusters.yaml")
    assert "strategy elsewhere:shed: " in east.error
    assert not west.error


@pytest.mark.parametrize("raised", [ValueError("no such\nsentence"), SystemExit(1), None])
@pytest.mark.parametrize(
    ("part", "wrong"), [("thresholds", {"low": 3}), ("cluster_hits", "two"), ("lines", ["a"]), ("sentence", None)]
)
def test_a_profile_that_fails_while_a_run_is_shown_leaves_the_defaults(
    tmp_path, monkeypatch, caplog, part, wrong, raised
):
    failing: Any = mock.Mock(side_effect=raised, return_value=wrong)
    monkeypatch.setattr(outside_shedder, "PROFILE", replace(outside_shedder.PROFILE, **{part: failing}))
    shown = page(tmp_path, gap=99)
    assert (len(shown.brokers), shown.status.cluster) == (4, "east")
    assert f"strategy {PATH}: {part}: " in caplog.text
