from pulsar_rebalancer.config.clusters_file import RunParams
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer_airflow.trigger_forms import run_params


def test_the_form_has_every_parameter_of_a_run_and_no_other() -> None:
    form = run_params(Settings())

    assert set(form) == set(RunParams.model_fields) - {"plan"}  # which pulsar_by_hand__ alone gives
    for param in form.values():
        assert param.schema["title"]
        assert param.description
