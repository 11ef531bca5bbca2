"""One word for how a cluster is, and how it is coloured."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """How a cluster is, in one word."""

    BALANCED = "balanced"
    WAITING = "waiting"
    MOVING = "moving"
    MOVED = "moved"
    WOULD_MOVE = "would move"
    STUCK = "unbalanced"
    CLOSED = "held back"
    PAUSED = "paused"
    OFF = "off"
    NO_DATA = "no data"
    LOOKING = "looking"
    STALE = "stale"
    BLOCKED = "blocked"
    FAILED = "failed"
    BROKEN = "broken"
    UNREADABLE = "unreadable"

    @property
    def tone(self) -> Tone:
        """Return how it is coloured."""
        return _TONES[self]


class Tone(StrEnum):
    """Whether somebody has to look."""

    GOOD = "good"
    BUSY = "busy"
    WARN = "warn"
    BAD = "bad"
    IDLE = "idle"


_TONES = {
    State.BALANCED: Tone.GOOD,
    State.WAITING: Tone.BUSY,
    State.MOVING: Tone.BUSY,
    State.MOVED: Tone.GOOD,
    State.WOULD_MOVE: Tone.BUSY,
    State.STUCK: Tone.WARN,
    State.CLOSED: Tone.WARN,
    State.PAUSED: Tone.WARN,
    State.OFF: Tone.IDLE,
    State.NO_DATA: Tone.IDLE,
    State.LOOKING: Tone.BUSY,
    State.STALE: Tone.BAD,
    State.BLOCKED: Tone.BAD,
    State.FAILED: Tone.BAD,
    State.BROKEN: Tone.BAD,
    State.UNREADABLE: Tone.BAD,
}
