"""Which conditions of a cluster are told to people, and when: once when one starts, once when it is over.

A run sees a condition, sees that it is not there, or cannot tell. What was seen before is kept between runs, so a
condition that lasts is told once. It is over when it has stayed away for a quiet time; one that comes back earlier
never ended. A message counts as told when every receiver has taken it; until then it is tried again, ever less often.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from pulsar_rebalancer.inventory import time_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

VERSION = 1

RETRY_MINUTES = (1, 5, 15, 60)
"""Waits before a message is tried again; the last one repeats. A receiver may have taken what it never answered."""


class Condition(StrEnum):
    """What is told."""

    BLOCKED = "validation_failed"
    UNSAFE = "acting_unsafe"
    UNLOAD = "unload_failed"
    UNFINISHED = "run_failed"
    SLOW = "run_too_long"
    NO_RUN = "no_run"


@dataclass(frozen=True)
class Seen:
    """A condition that is there.

    Attributes:
        reasons: reason code to how often it was met.
        detail: the figure behind it; never a secret.
    """

    reasons: Mapping[str, int]
    detail: str = ""


class Episode(BaseModel):
    """One condition from its start until its end was told.

    Attributes:
        since: when it was first seen.
        seen_at: when it was last seen.
        over_at: the first run since then that saw it gone; None while it lasts.
        reasons, detail: as last seen.
        told: whether every receiver took the message of its start.
        start_reached, end_reached: numbers of the receivers that took the message of its start, of its end.
        tries, end_tries: how often the message of its start, of its end, was tried in vain.
        next_try_at, end_next_try_at: until then it is not tried again.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    since: AwareDatetime
    seen_at: AwareDatetime
    over_at: AwareDatetime | None = None
    reasons: dict[str, int] = {}
    detail: str = ""
    told: bool = False
    start_reached: frozenset[int] = frozenset()
    end_reached: frozenset[int] = frozenset()
    tries: int = 0
    next_try_at: AwareDatetime | None = None
    end_tries: int = 0
    end_next_try_at: AwareDatetime | None = None

    def waits(self, now: datetime, *, over: bool) -> bool:
        """Whether the message of its start, or of its end, was tried in vain a moment ago.

        A time further ahead than any wait is of a clock that was set back.
        """
        at = self.end_next_try_at if over else self.next_try_at
        return at is not None and now < at <= now + timedelta(minutes=RETRY_MINUTES[-1])

    def ended(self, now: datetime, quiet: timedelta) -> bool:
        """Whether it has stayed away for the quiet time."""
        return self.over_at is not None and now - self.over_at >= quiet


class AlertsState(BaseModel):
    """The open conditions of a cluster, one document with one writer.

    Attributes:
        began_at: when the writer first looked.
        run_at: when it last looked.
        run: name of the newest run's folder that it looked at; empty before the first.
        episodes: by condition.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: int = VERSION
    began_at: AwareDatetime | None = None
    run_at: AwareDatetime | None = None
    run: str = ""
    episodes: dict[Condition, Episode] = {}


@dataclass(frozen=True)
class Due:
    """A message that has not reached every receiver.

    Attributes:
        condition: what it is about.
        over: whether it tells the end.
        episode: the condition's.
    """

    condition: Condition
    over: bool
    episode: Episode

    @property
    def reached(self) -> frozenset[int]:
        """Numbers of the receivers that took it already."""
        return self.episode.end_reached if self.over else self.episode.start_reached


def parse_alerts(document: Any) -> AlertsState:
    """The stored document; one that is missing, damaged or of another version is an empty one.

    Telling a condition once more is the lesser evil than never telling any again.
    """
    if not isinstance(document, Mapping) or document.get("version") != VERSION:
        return AlertsState()
    try:
        return AlertsState.model_validate(document)
    except ValidationError:
        return AlertsState()


def advance(
    state: AlertsState, sightings: Mapping[Condition, Seen | None], now: datetime, run: str = ""
) -> AlertsState:
    """The state after a run.

    Args:
        state: before it.
        sightings: a condition that is there, None for one that is not; one that is left out stays as it was.
        now: the present.
        run: name of the run's folder, which sorts by time. What is seen in an older run than the newest one is not
            taken: somebody cleared it. Empty when it has none.
    """
    state = state.model_copy(update={"began_at": state.began_at or now, "run_at": now})
    if run and run < state.run and not _is_ahead(state.run, now):
        return state
    episodes = dict(state.episodes)
    for condition, seen in sightings.items():
        episode = episodes.get(condition)
        if seen is not None:
            episodes[condition] = _there(episode, seen, now)
        elif episode is not None and episode.over_at is None:
            episodes[condition] = episode.model_copy(update={"over_at": now})
    return state.model_copy(update={"run": run or state.run, "episodes": episodes})


def _is_ahead(run: str, now: datetime) -> bool:
    """Whether a run was named by a clock that has been set back since."""
    at = time_of(run)
    return at is not None and at > now


def _there(episode: Episode | None, seen: Seen, now: datetime) -> Episode:
    found: dict[str, Any] = {"seen_at": now, "reasons": dict(seen.reasons), "detail": seen.detail}
    # Whoever has read that it is over must read that it is back; nobody else needs to.
    if episode is None or episode.end_reached:
        return Episode(since=now, **found)
    return episode.model_copy(update={"over_at": None, **found})


def due(state: AlertsState, now: datetime, quiet: timedelta) -> list[Due]:
    """The messages to be sent now, in the order of `Condition`.

    A condition that ended before its start could be told is told once, as over.
    """
    found = []
    for condition in Condition:
        episode = state.episodes.get(condition)
        if episode is None:
            continue
        over = episode.ended(now, quiet)
        starts = episode.over_at is None and not episode.told
        if (over or starts) and not episode.waits(now, over=over):
            found.append(Due(condition, over=over, episode=episode))
    return found


def delivered(
    state: AlertsState, message: Due, reached: Iterable[int], now: datetime, *, complete: bool
) -> AlertsState:
    """The state after a message was sent.

    Args:
        state: before it.
        message: one of those that were due.
        reached: numbers of the receivers that took it, now or earlier.
        now: the present.
        complete: whether these are all of them.
    """
    episodes = dict(state.episodes)
    if complete and message.over:
        del episodes[message.condition]
    else:
        field = "end_reached" if message.over else "start_reached"
        changed = {field: frozenset(reached), "told": message.episode.told or (complete and not message.over)}
        tries = message.episode.end_tries if message.over else message.episode.tries
        changed |= _next_try("end_" if message.over else "", 0 if complete else tries + 1, now)
        episodes[message.condition] = message.episode.model_copy(update=changed)
    return state.model_copy(update={"episodes": episodes})


def _next_try(kind: str, tries: int, now: datetime) -> dict[str, Any]:
    wait = timedelta(minutes=RETRY_MINUTES[min(tries, len(RETRY_MINUTES)) - 1])
    return {f"{kind}tries": tries, f"{kind}next_try_at": now + wait if tries else None}
