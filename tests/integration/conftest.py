from __future__ import annotations

import tests.airflow_home  # noqa: F401 - before anything of Airflow

# isort: split

from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session", autouse=True)
def _database() -> None:
    from airflow.utils import db

    db.initdb()


@pytest.fixture(scope="module")
def one_session() -> Iterator[None]:
    """Decide in one Spark session, with the application that the DAG submits: only Spark's start is spared."""
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
    from pyspark.sql import SparkSession

    from pulsar_rebalancer.decide.run_input import RunInput
    from pulsar_rebalancer_airflow.operators.spark_application import CONF, JAVA_OPTIONS
    from pulsar_rebalancer_spark import rebalance
    from pulsar_rebalancer_spark.session import session as make_session

    running = SparkSession.getActiveSession()
    builder = SparkSession.builder.master("local[2]").config(map={**CONF})
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.sql.shuffle.partitions", "1")
    builder.config("spark.driver.extraJavaOptions", JAVA_OPTIONS).getOrCreate()
    session = make_session()
    session.sparkContext.setLogLevel("ERROR")

    def decide(operator: Any, context: Any) -> None:
        _, root, _, run = operator.application_args
        rebalance.decide(lambda: session, RunInput.read(root, run))

    with mock.patch.object(SparkSubmitOperator, "execute", decide):
        yield
    if running is None:
        session.stop()
