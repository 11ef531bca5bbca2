"""Real brokers for tests: the jars are fetched once, clusters end with the test or module that made them."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.pulsar.admin import Admin
from tests.pulsar.cluster import PulsarCluster
from tests.pulsar.distribution import Distribution, from_dependencies, from_jars, from_server_distribution

ClusterFactory = Callable[..., PulsarCluster]
"""Starts a cluster; takes what `PulsarCluster` takes, without the folder."""


@pytest.fixture(scope="session")
def pulsar_501() -> Distribution:
    return from_jars("5.0.1")


@pytest.fixture(scope="session")
def pulsar_424() -> Distribution:
    return from_dependencies("4.2.4")


@pytest.fixture(scope="session")
def pulsar_408() -> Distribution:
    return from_server_distribution("4.0.8")


@pytest.fixture(scope="module")
def module_clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterFactory]:
    yield from _factory(tmp_path_factory)


@pytest.fixture
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterFactory]:
    yield from _factory(tmp_path_factory)


def _factory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterFactory]:
    with ExitStack() as running:

        def start(distribution: Distribution, brokers: int = 3, **options: Any) -> PulsarCluster:
            run_dir = tmp_path_factory.mktemp("cluster")
            return running.enter_context(PulsarCluster(distribution, run_dir, brokers, **options))

        yield start


@pytest.fixture(scope="module")
def admin(cluster: PulsarCluster) -> Iterator[Admin]:
    """Of the module's own `cluster`."""
    with Admin(cluster) as opened:
        yield opened


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]").appName("tests").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "1").config("spark.driver.host", "127.0.0.1")
    session = builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    yield session
    session.stop()
