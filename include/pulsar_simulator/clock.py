"""The clocks of a simulated cluster: a manual clock, and the clock of this machine."""

from __future__ import annotations

import time
from typing import Protocol

EPOCH = 1_800_000_000.0
"""Start time of a manual clock in seconds since 1970. It is fixed so that equal seeds give equal reports."""


class Clock(Protocol):
    """Interface for clocks that give the current time and can be advanced."""

    def now(self) -> float:
        """Return the current time in seconds since 1970 (UTC)."""
        ...

    def advance(self, seconds: float) -> None:
        """Move the clock ahead by `seconds`."""
        ...


class ManualClock:
    """A clock that changes only when it is advanced."""

    def __init__(self) -> None:
        self._now = EPOCH

    def now(self) -> float:
        """Return the current time in seconds since 1970 (UTC)."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Advance the clock by `seconds`, which must not be negative."""
        if seconds < 0:
            raise ValueError(f"time cannot go back by {-seconds} seconds")
        self._now += seconds


class RealClock:
    """The clock of this machine, plus the seconds by which it has been advanced."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def now(self) -> float:
        """Return the current time in seconds since 1970 (UTC)."""
        return time.time() + self._ahead

    def advance(self, seconds: float) -> None:
        """Advance the clock by `seconds`. Calls add up."""
        if seconds < 0:
            raise ValueError(f"time cannot go back by {-seconds} seconds")
        self._ahead += seconds
