from collections.abc import Iterator

import httpx
import pytest

from pulsar_simulator.cluster import Cluster
from pulsar_simulator.load import NO_NOISE
from pulsar_simulator.scenario import build_cluster
from pulsar_simulator.serve import RunningCluster, serve


@pytest.fixture
def cluster() -> Cluster:
    return build_cluster(brokers=4, bundles=60, noise=NO_NOISE)


@pytest.fixture
def served(cluster: Cluster) -> Iterator[RunningCluster]:
    with serve(cluster) as it:
        yield it


@pytest.fixture
def http(served: RunningCluster) -> Iterator[httpx.Client]:
    with httpx.Client(headers=served.headers, timeout=30) as client:
        yield client
