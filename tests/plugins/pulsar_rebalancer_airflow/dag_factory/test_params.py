import pytest
from airflow.sdk.exceptions import ParamValidationError

from pulsar_rebalancer.config.clusters_file import RunParams
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer_airflow.dag_factory.params import control_params, run_params


def test_the_form_has_every_parameter_of_a_run_and_no_other() -> None:
    form = run_params(Settings())

    assert set(form) == set(RunParams.model_fields) - {"plan"}  # which pulsar_by_hand__ alone gives
    for param in form.values():
        assert param.schema["title"]
        assert param.description


@pytest.mark.parametrize("name", ["export-20260102T030405Z.json", "", None])
def test_files_that_can_be_restored(name: str | None) -> None:
    assert control_params()["file"].resolve(name) == name


@pytest.mark.parametrize(
    "name", ["../export-20260102T030405Z.json", "export-20260102T030405Z.json/..", "plan/state.json"]
)
def test_files_that_cannot(name: str) -> None:
    with pytest.raises(ParamValidationError):
        control_params()["file"].resolve(name)
