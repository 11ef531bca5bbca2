"""How long a test waits for what should happen: the limit only ends a test that would never end."""

import time
from collections.abc import Callable
from typing import TypeVar

import pytest

Found = TypeVar("Found")

PATIENCE = 600
"""Seconds; the machine may be as busy as it likes."""


def awaited(found: Callable[[], Found], pause: float = 0.2) -> Found:
    """What is found, as soon as it is something; `pause`, in seconds, spares brokers that have little CPU."""
    limit = time.monotonic() + PATIENCE
    while not (answer := found()):
        if time.monotonic() > limit:
            pytest.fail(f"waited {PATIENCE} s in vain")
        time.sleep(pause)
    return answer
