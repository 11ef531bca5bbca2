from pathlib import Path

import pytest
from tests.include.pulsar_rebalancer.carry_out.unloading_scene import scenes

from pulsar_rebalancer.storage.documents import ClusterStorage


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def scene():
    with scenes() as running:
        yield running


@pytest.fixture
def storage(tmp_path: Path) -> ClusterStorage:
    return ClusterStorage(str(tmp_path / "root"), "east")
