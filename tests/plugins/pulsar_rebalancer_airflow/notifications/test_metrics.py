"""Measurements reach the metrics that Airflow is configured with; that they are received is an integration test."""

import tests.airflow_home  # noqa: F401 - before anything of Airflow

# isort: split


from airflow._shared.observability.metrics.validators import ALLOWED_CHARACTERS

from pulsar_rebalancer.show.measurements import Measurement


def test_a_line_of_statsd_holds_whatever_a_broker_calls_itself() -> None:
    text = Measurement.create("score", 1.0, broker="[::1]:8080,x=y z|é\n").labels["broker"]

    assert set(text) <= ALLOWED_CHARACTERS
