"""A family file: the distributions from which a seed draws a cluster and days of load."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from lab.experiments.scenario import Reports, Share, Strict, read

FOLDER = Path(__file__).parent

Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Minutes = Annotated[int, Field(ge=1)]


class Machines(Strict):
    """The brokers.

    Attributes:
        count: smallest and largest number; the seed draws one.
        cores: each broker draws one of these.
        load: smallest and largest mean CPU of the whole cluster, percent; the seed draws one.
        slow: share of brokers on which traffic costs more CPU than on the others, which no strategy knows.
        slowness: by which factor, smallest and largest.
    """

    count: tuple[Minutes, Minutes]
    cores: tuple[Positive, ...] = Field((12,), min_length=1)
    load: tuple[Positive, Positive] = (45, 60)
    slow: Share = 0
    slowness: tuple[Positive, Positive] = (1.3, 1.8)


class Daily(Strict):
    """Daily cycles; each bundle has its own peak."""

    amplitude: tuple[Share, Share]


class Drift(Strict):
    """Slow random changes, see `workload.drift`."""

    spread: Positive
    hours: Positive


class Shifts(Strict):
    """Jumps of the level, see `workload.shifts`."""

    per_day: Positive
    spread: Positive


class Bursts(Strict):
    """Minutes of high traffic, see `workload.bursts`."""

    per_day: Positive
    length: float = Field(ge=1)
    factor: tuple[Positive, Positive]


class Pauses(Strict):
    """Topics that are on and off, see `workload.pauses`."""

    on: float = Field(ge=1)
    off: float = Field(ge=1)


class Jobs(Strict):
    """Periodic jobs, see `workload.jobs`."""

    every: Minutes
    length: Minutes
    factor: tuple[Positive, Positive]


class Weeks(Strict):
    """Working days and weekends, see `workload.weeks`."""

    night: tuple[Share, Share]
    weekend: tuple[Share, Share]
    zones: int = Field(3, ge=1)


class Arrivals(Strict):
    """Bundles that appear, see `workload.arrivals`."""

    late: Share
    ramp: Minutes


class Lagging(Strict):
    """Consumers that read for some minutes what was published since they last did; both drawn for each tenant."""

    reading: tuple[Minutes, Minutes]
    away: tuple[Minutes, Minutes]


class Topics(Strict):
    """Bundles of one kind.

    Attributes:
        per_broker: number of bundles per broker that exists at the start.
        share: of the cluster's load, in relation to the shares of the other kinds.
        size_spread: of their mean traffic, standard deviation of the logarithm.
        tail: if given, the exponent of a power law of their mean traffic, instead of `size_spread`.
        cost_spread: of the CPU of a message, which no strategy knows.
        tenant: number of bundles that follow the same curve.
        noise: relative standard deviation from minute to minute.
    """

    per_broker: Minutes
    share: Positive = 1
    size_spread: NotNegative = 0.8
    tail: float | None = Field(None, gt=1)
    cost_spread: NotNegative = 0.1
    tenant: Minutes = 1
    noise: NotNegative = 0.05
    clients: int = Field(4, ge=1)
    daily: Daily | None = None
    drift: Drift | None = None
    shifts: Shifts | None = None
    bursts: Bursts | None = None
    pauses: Pauses | None = None
    jobs: Jobs | None = None
    weeks: Weeks | None = None
    arrivals: Arrivals | None = None
    lagging: Lagging | None = None


class Changes(Strict):
    """Brokers that come and go.

    Attributes:
        restarts_per_day: of the whole cluster; a broker is away for `away` minutes, smallest and largest.
        in_turn: if given, every broker restarts each time, one after another; the minutes from one to the next.
        scalings_per_day: a broker is added or taken away for good.
        spare: number of brokers that do not exist at the start and may be added.
    """

    restarts_per_day: NotNegative = 0
    away: tuple[Minutes, Minutes] = (2, 10)
    in_turn: Minutes | None = None
    scalings_per_day: NotNegative = 0
    spare: int = Field(0, ge=0)


class Family(Strict):
    """A family of clusters under days of load; a seed draws one of them.

    Attributes:
        kind: strategies are tuned on training families; sealed ones judge them once, after all tuning.
        seeds: the family's seeds.
    """

    name: str
    title: str = Field(min_length=1)
    about: str = Field(min_length=1)
    kind: Literal["training", "sealed"]
    seeds: tuple[int, ...] = Field(min_length=1)
    minutes: int = Field(1440, ge=10)
    brokers: Machines
    topics: tuple[Topics, ...] = Field(min_length=1)
    reports: Reports = Reports(cpu_noise=0.03)
    changes: Changes = Changes()

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        ranges = [self.brokers.count, self.brokers.load, self.brokers.slowness, self.changes.away]
        ranges += [each for topics in self.topics if topics.lagging for each in vars(topics.lagging).values()]
        ranges += [
            each for topics in self.topics if topics.weeks for each in (topics.weeks.night, topics.weeks.weekend)
        ]
        ranges += [topics.daily.amplitude for topics in self.topics if topics.daily]
        ranges += [peak.factor for topics in self.topics for peak in (topics.bursts, topics.jobs) if peak]
        for smallest, largest in ranges:
            if smallest > largest:
                raise ValueError(f"{smallest:g} is above {largest:g}: the smallest comes first")
        return self


def load_all(folder: Path = FOLDER) -> dict[str, Family]:
    """Return the families of a folder by name.

    Raises:
        ScenarioError: with the file, and the key or line that is wrong.
    """
    return {file.stem: read(file, Family) for file in sorted(folder.glob("*.toml"))}
