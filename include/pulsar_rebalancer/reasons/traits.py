"""What the rest of the package has to know of a reason code beside its texts."""

from __future__ import annotations

from enum import Flag, StrEnum, auto


class Effect(StrEnum):
    """What a reason does to the run."""

    BLOCK = "block"  # the data cannot be judged: the run fails, nothing is decided
    HOLD = "hold"  # decided and explained, but the gate stays closed
    QUARANTINE = "quarantine"  # this broker or bundle is neither source nor destination
    WARN = "warn"  # said, nothing else
    VERDICT = "verdict"  # why a pair, a bundle or a move was treated as it was


class Trait(Flag):
    """How reasons are classified."""

    NONE = 0
    PASSING = auto()
    """It may be gone a moment later, so the task that it stopped is tried again."""
    NO_ANSWER = auto()
    """Nobody listens at the broker's address: it is not asked anything else."""
    CREDENTIALS = auto()
    """The connection's credentials were refused."""
    TYPED = auto()
    """Whoever started a manual run typed something wrong and reads the answer: the cluster is as well as before."""
    EXPECTED = auto()
    """A quarantine that passes by itself: it does not count towards `max_quarantined_brokers`."""
    WAITING = auto()
    """The strategy saw an imbalance and waits: the cluster is not balanced yet."""
    STUCK = auto()
    """The strategy saw an imbalance that it cannot mend."""
    KEPT_IN_PLACE = auto()
    """Policies or placement keep a chosen bundle where it is."""
    CAP = auto()
    """A cap keeps a chosen bundle where it is."""
    ON_PLANNED_BROKER = auto()
    """The move ended with the bundle on its planned broker."""
    NEW_OWNER = auto()
    """The move ended with the bundle on another broker than before."""
    NOT_UNLOADED = auto()
    """An unload that failed for it was not carried out, and trying again would not help."""
    MAY_HAVE_PLAN = auto()
    """An unload that failed for it may have left the planned destination with the leader."""
    NEEDS_PERSON = auto()
    """A move that failed for it fails again until a person has changed something."""
    RETRIED = auto()
    """A retry of the wave can mend the move."""
    SETTLED = auto()
    """The move ended in a way that nobody has to look at: the next plan knows better."""
    ORDERED = auto()
    """People or their settings want it so: nobody has to be told."""
    NOT_BEGUN = auto()
    """The move has not been tried: what is learnt of it later takes the place of this."""
    SPLIT_AS_PLANNED = auto()
    """The split ended with the bounds of the plan."""
