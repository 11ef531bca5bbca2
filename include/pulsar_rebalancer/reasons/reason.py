"""What a reason code says."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Effect(StrEnum):
    """What a reason does to the run."""

    BLOCK = "block"  # the data cannot be judged: the run fails, nothing is decided
    HOLD = "hold"  # decided and explained, but the gate stays closed
    QUARANTINE = "quarantine"  # this broker or bundle is neither source nor destination
    WARN = "warn"  # said, nothing else
    VERDICT = "verdict"  # why a pair, a bundle or a move was treated as it was


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason code.

    Attributes:
        code: the stable name.
        effect: what it does to the run.
        meaning: one sentence, what was seen.
        action: one sentence, what to do about it; empty when nothing has to be done.
        passing: it may be gone a moment later, so what it stopped is tried again.
    """

    code: str
    effect: Effect
    meaning: str
    action: str = ""
    passing: bool = False
