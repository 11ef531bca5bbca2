"""Waiting for what brokers do in their own time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable


def await_that(condition: Callable[[], bool]) -> None:
    """Poll for an event; the limit only ends a test that would never end."""
    deadline = time.monotonic() + 600
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail("waited ten minutes in vain")
        time.sleep(0.2)
