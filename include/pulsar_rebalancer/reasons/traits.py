"""What reason codes have in common: their effect on a run, and how other modules treat them."""

from __future__ import annotations

from enum import Flag, StrEnum, auto


class Effect(StrEnum):
    """The effect of a reason on a run."""

    BLOCK = "block"  # the data cannot be judged: the run fails, nothing is decided
    HOLD = "hold"  # decided and explained, but the gate stays closed
    QUARANTINE = "quarantine"  # this broker or bundle is neither source nor destination
    WARN = "warn"  # only reported
    VERDICT = "verdict"  # why a pair, a bundle or a move was treated this way


class Trait(Flag):
    """Groups of reasons that other modules treat in the same way."""

    NONE = 0
    PASSING = auto()
    """The problem may be temporary, so Airflow retries the stopped task."""
    NO_ANSWER = auto()
    """The broker cannot be reached or does not respond: no further requests are sent to it."""
    CREDENTIALS = auto()
    """Credentials were rejected, or the connection has none."""
    TYPED = auto()
    """A person's input is invalid, and the person sees the error; the cluster itself is fine."""
    EXPECTED = auto()
    """The broker is left out only for a time, so it does not count towards `max_quarantined_brokers`."""
    WAITING = auto()
    """The strategy saw an imbalance and is waiting: the cluster is not balanced yet."""
    STUCK = auto()
    """The strategy saw an imbalance that it cannot correct."""
    KEPT_IN_PLACE = auto()
    """Policies or placement keep a chosen bundle where it is."""
    CAP = auto()
    """A cap keeps a chosen bundle where it is."""
    ON_PLANNED_BROKER = auto()
    """The move ended with the bundle on its planned broker."""
    NEW_OWNER = auto()
    """The bundle has a new owner after the move."""
    NOT_UNLOADED = auto()
    """The unload was not carried out, and a retry would not help."""
    MAY_HAVE_PLAN = auto()
    """The unload failed, but the leader may still remember the planned destination."""
    NEEDS_PERSON = auto()
    """The move will fail again until a person changes something."""
    RETRIED = auto()
    """A retry of the wave can complete the move."""
    SETTLED = auto()
    """The outcome needs no attention: the next plan takes it into account."""
    ORDERED = auto()
    """The cause is a person's order or a setting, so no alert is needed."""
    NOT_BEGUN = auto()
    """The move was not attempted: a later outcome replaces this reason."""
    SPLIT_AS_PLANNED = auto()
    """After the split, the namespace has the planned bounds."""
