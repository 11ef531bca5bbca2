"""The state of a cluster in one word, and its colour."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """The state of a cluster in one word."""

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
        """Return the tone that the page colours it by."""
        return _TONES[self]


class Tone(StrEnum):
    """How urgently somebody should look."""

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
