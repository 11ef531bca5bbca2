"""The base class for parts of the page's JSON document, and a cluster's state in one word."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from pydantic import BaseModel, ConfigDict

VERSION = 1
"""Version of the document. A browser that shows an older version of the page reloads it."""


class View(BaseModel):
    """Part of the page's JSON document."""

    model_config = ConfigDict(frozen=True)


class Tone(StrEnum):
    """The urgency of a cluster's state."""

    GOOD = "good"
    BUSY = "busy"
    WARN = "warn"
    BAD = "bad"
    IDLE = "idle"


class State(StrEnum):
    """A cluster's state in one word, and the tone that sets its colour on the page."""

    tone: Tone

    def __new__(cls, word: str, tone: Tone) -> Self:
        """Create a member from its word and tone."""
        member = str.__new__(cls, word)
        member._value_, member.tone = word, tone
        return member

    BALANCED = "balanced", Tone.GOOD
    WAITING = "waiting", Tone.BUSY
    MOVING = "moving", Tone.BUSY
    MOVED = "moved", Tone.GOOD
    WOULD_MOVE = "would move", Tone.BUSY
    STUCK = "unbalanced", Tone.WARN
    CLOSED = "held back", Tone.WARN
    PAUSED = "paused", Tone.WARN
    OFF = "off", Tone.IDLE
    NO_DATA = "no data", Tone.IDLE
    LOOKING = "looking", Tone.BUSY
    STALE = "stale", Tone.BAD
    BLOCKED = "blocked", Tone.BAD
    FAILED = "failed", Tone.BAD
    BROKEN = "broken", Tone.BAD
    UNREADABLE = "unreadable", Tone.BAD
