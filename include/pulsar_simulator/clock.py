"""The clocks of a simulated cluster: one that is moved by hand, and the machine's."""

from __future__ import annotations

import time
from typing import Protocol

EPOCH = 1_800_000_000.0
"""Start of a manual clock, seconds since 1970: fixed, so that equal seeds give equal reports."""


class Clock(Protocol):
    """Seconds since 1970, and a way to let time pass at once."""

    def now(self) -> float:
        """Return the current time, seconds since 1970 UTC."""
        ...

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass."""
        ...


class ManualClock:
    """Shows the same time until it is advanced."""

    def __init__(self) -> None:
        self._now = EPOCH

    def now(self) -> float:
        """Return the current time, seconds since 1970 UTC."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass; a negative number is refused."""
        if seconds < 0:
            raise ValueError(f"time cannot go back by {-seconds} seconds")
        self._now += seconds


class RealClock:
    """The machine's time; `advance` runs ahead of it."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def now(self) -> float:
        """Return the current time, seconds since 1970 UTC."""
        return time.time() + self._ahead

    def advance(self, seconds: float) -> None:
        """Move the clock another `seconds` ahead of the machine's."""
        if seconds < 0:
            raise ValueError(f"time cannot go back by {-seconds} seconds")
        self._ahead += seconds
