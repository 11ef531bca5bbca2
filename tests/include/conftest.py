"""The event loop that asynchronous tests run on, and the cluster that bundles are moved on."""

from __future__ import annotations

import pytest
from tests.include.unloading_scene import scenes


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def scene():
    with scenes() as running:
        yield running
