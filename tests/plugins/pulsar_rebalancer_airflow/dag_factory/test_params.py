from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk.exceptions import ParamValidationError

from pulsar_rebalancer.config.clusters_file import RunParams, parse_params
from pulsar_rebalancer.config.field_types import Mode
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer_airflow.dag_factory.params import control_params, run_params


def test_the_form_has_every_parameter_of_a_run_and_no_other() -> None:
    form = run_params(Settings())

    assert set(form) == set(RunParams.model_fields) - {"plan"}  # which pulsar_by_hand__ alone gives
    for param in form.values():
        assert param.schema["title"]
        assert param.description


def test_an_untouched_form_is_a_normal_run() -> None:
    assert parse_params({name: param.resolve() for name, param in run_params(Settings()).items()}) == RunParams()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("force", "x" * 501),
        ("low_threshold", -1),
        ("hit_count_low", 0),
        ("hit_count_low", 1.5),
        ("max_unload_percentage", 0),
        ("max_unload_percentage", 1.1),
        ("excluded_brokers", "a:1"),
        ("mode", "auto"),
    ],
)
def test_the_form_refuses(name: str, value: Any) -> None:
    with pytest.raises(ParamValidationError):
        run_params(Settings())[name].resolve(value)


@pytest.mark.parametrize("mode", list(Mode))
def test_no_mode_above_the_files_is_offered(mode: Mode) -> None:
    offered = run_params(Settings(mode=mode))["mode"].schema["enum"]

    lower = [lower.value for lower in Mode if lower.rank <= mode.rank]
    if mode is Mode.AUTO:
        lower.remove("approve")  # nobody would be asked
    assert offered == [None, *lower]


def test_the_usual_value_is_named() -> None:
    form = run_params(Settings(low_threshold=12.5, excluded_brokers=("a:1", "b:1")))
    usual = {
        "low_threshold": "clusters file: 12.5",
        "high_threshold": "otherwise from the brokers",
        "max_bundles_per_run": "clusters file: none",
        "excluded_brokers": "in addition to those of the clusters file: a:1, b:1",
    }

    assert {name: (form[name].description or "").rpartition("; ")[2] for name in usual} == usual


@pytest.mark.parametrize("name", ["decision-12.json", "export-20260102T030405Z.json", "", None])
def test_files_that_can_be_restored(name: str | None) -> None:
    assert control_params()["file"].resolve(name) == name


@pytest.mark.parametrize("name", ["../decision-1.json", "decision-1.json/..", "plan/state.json"])
def test_files_that_cannot(name: str) -> None:
    with pytest.raises(ParamValidationError):
        control_params()["file"].resolve(name)
