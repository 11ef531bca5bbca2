"""Types of settings: fixed sets of values, and time windows."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from itertools import islice, pairwise
from typing import Self

import pendulum
from croniter import CroniterError, croniter
from pydantic import BaseModel, ConfigDict, Field, NaiveDatetime, field_validator, model_validator


class Mode(StrEnum):
    """The rebalancer's modes, from the most to the least restricted. A mode limits what the rebalancer may do."""

    OFF = "off"
    OBSERVE = "observe"
    APPROVE = "approve"
    AUTO = "auto"

    @property
    def rank(self) -> int:
        """Return the mode's position in the list. A manual run may lower the mode, but never raise it."""
        return list(Mode).index(self)

    @property
    def may_move(self) -> bool:
        """Return whether this mode moves bundles, with or without a person's approval."""
        return self in (Mode.APPROVE, Mode.AUTO)


class Strategy(StrEnum):
    """Shedding strategies: Pulsar's, each named after its class, and GainShedder, which is not part of Pulsar."""

    AVG = "AvgShedder"
    THRESHOLD = "ThresholdShedder"
    OVERLOAD = "OverloadShedder"
    UNIFORM = "UniformLoadShedder"
    TRANSFER = "TransferShedder"
    GAIN = "GainShedder"


DEFAULT_STRATEGY = Strategy.AVG.value


class Placement(StrEnum):
    """Pulsar's placement strategies, each named after its class."""

    AVG = "AvgShedder"
    LEAST_RATE = "LeastLongTermMessageRate"
    LEAST_USAGE = "LeastResourceUsageWithWeight"
    ROUND_ROBIN = "RoundRobinBrokerSelector"


class SplitAlgorithm(StrEnum):
    """Pulsar's algorithms for choosing the positions at which a bundle is split."""

    RANGE = "range_equally_divide"
    TOPIC_COUNT = "topic_count_equally_divide"
    POSITIONS = "specified_positions_divide"
    FLOW = "flow_or_qps_equally_divide"


class Action(StrEnum):
    """Manual actions that a person may request."""

    UNLOAD = "unload"
    DRAIN = "drain"
    RELEASE = "release"
    FILL = "fill"
    SPLIT = "split"
    UNDO = "undo"


class Overrule(StrEnum):
    """Rules that a person may overrule in a manual plan. The plan records the person and the reason."""

    POLICIES = "policies"
    ANTI_AFFINITY = "anti_affinity"
    TOPIC_CEILING = "topic_ceiling"
    EXCLUSIONS = "exclusions"
    CAPS = "caps"
    GRACE_PERIOD = "grace_period"
    OVERLOAD = "overload"
    EVEN_SPLIT = "even_split"


_JUDGED_FROM, _JUDGED = pendulum.naive(2026, 1, 1), 100


class Window(BaseModel):
    """A time window that recurs (`cron` and `minutes`) or occurs once (`start` and `end`)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cron: str = Field("", description="start, as a cron expression of five fields in local time")
    minutes: float | None = Field(None, gt=0, le=60 * 24 * 366, description="length in minutes, by the local clock")
    start: NaiveDatetime | None = Field(None, description="start, local time")
    end: NaiveDatetime | None = Field(None, description="end, local time")
    timezone: str = Field("UTC", description="time zone of the local times, such as Europe/Berlin")
    reason: str = Field("", max_length=500, description="reason, shown in every run")

    @property
    def one_time_span(self) -> tuple[datetime, datetime] | None:
        return (self.start, self.end) if self.start and self.end else None

    @field_validator("timezone")
    @classmethod
    def _check_timezone(cls, name: str) -> str:
        try:
            pendulum.timezone(name)
        except (ValueError, OSError):
            raise ValueError("no time zone has this name") from None
        return name

    @field_validator("cron")
    @classmethod
    def _check_cron(cls, expression: str) -> str:
        try:
            if len(expression.split()) == 5:
                next(croniter(expression, _JUDGED_FROM).all_next(datetime))
                return expression
        except (CroniterError, StopIteration):
            pass
        if expression:
            raise ValueError("expected a cron expression with five fields and at least one matching date")
        return ""

    @model_validator(mode="after")
    def _check_times(self) -> Self:
        again, once = (bool(self.cron), self.minutes is not None), (self.start is not None, self.end is not None)
        if (all(again), any(again), all(once), any(once)) not in (
            (True, True, False, False),
            (False, False, True, True),
        ):
            raise ValueError("a window needs either cron and minutes, or start and end")
        if self.one_time_span and self.one_time_span[0] >= self.one_time_span[1]:
            raise ValueError(f"end {self.end:%Y-%m-%d %H:%M} is not after start {self.start:%Y-%m-%d %H:%M}")
        if self.minutes is not None:
            begins = islice(croniter(self.cron, _JUDGED_FROM).all_next(datetime), _JUDGED)
            if any(later - earlier < timedelta(minutes=self.minutes) for earlier, later in pairwise(begins)):
                raise ValueError(f"minutes: {self.minutes:g} is longer than the time between two starts")
        return self
