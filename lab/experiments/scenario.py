"""A scenario file: which cluster, which load, what happens, and what was published about it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from pulsar_rebalancer.errors import RebalancerError
from pulsar_rebalancer.strategies.shedders.registry import validate
from pulsar_rebalancer.texts import number_of
from pulsar_simulator.minutes.machines import ClusterRules

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FOLDER = Path(__file__).parent / "scenarios"

Share = Annotated[float, Field(ge=0, le=1)]
Minute = Annotated[int, Field(ge=0)]
BrokerNumber = Annotated[int, Field(ge=1)]

_DEFAULT = ClusterRules()


class ScenarioError(ValueError):
    """A scenario file that cannot be used; it names the file and the key."""


class Strict(BaseModel):
    """The content of a file. Unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


Model = TypeVar("Model", bound=Strict)
Kind = TypeVar("Kind")


class Brokers(Strict):
    """Equal brokers, numbered in the order of the file from 1 on."""

    count: int = Field(ge=1, le=1000)
    cores: float = Field(gt=0)
    nic_gbit: float = Field(10, gt=0, description="speed of the NIC each way")
    other_load: float = Field(0, ge=0, le=100, description="CPU that other processes take, percent of the broker's")
    started: bool = True


class OnOffMinutes(Strict):
    """Topics that pause repeatedly."""

    on: int = Field(ge=1)
    off: int = Field(ge=0, description="0: no pause")
    consume_only: bool = False


class Bundles(Strict):
    """Bundles of one namespace, published to by one task."""

    count: int = Field(ge=1, le=100_000)
    throughput_mib: float = Field(gt=0, description="published to all of them, MiB/s")
    message_bytes: float = Field(1024, gt=0)
    fan_out: float = Field(1, ge=0, description="messages delivered for each one published")
    spread: float = Field(0.3, ge=0, le=3, description="of their sizes, standard deviation of the logarithm")
    cost_spread: float = Field(0.1, ge=0, le=3, description="the same for what a message costs")
    clients: int = Field(4, ge=0, description="producers and consumers of each")
    noise: float = Field(0.05, ge=0, le=1, description="relative standard deviation from minute to minute")
    daily: Share = Field(0, description="relative amplitude of the daily cycle")
    peak_spread_hours: float = Field(0, ge=0, le=12, description="how far its peak is from 12 o'clock, at most")
    trend: float = Field(0, ge=-0.03, le=1, description="relative growth per day")
    on_off: OnOffMinutes | None = None


class CpuSpike(Strict):
    """CPU that another process uses on a broker."""

    minute: Minute
    minutes: int = Field(ge=1)
    broker: BrokerNumber
    load: float = Field(gt=0, le=100, description="percent of the broker's CPU")


class TrafficSpike(Strict):
    """Traffic of some bundles that is multiplied for a while."""

    minute: Minute
    minutes: int = Field(ge=1)
    share: Share = Field(description="of all bundles, drawn with the seed")
    factor: float = Field(ge=0)


class Change(Strict):
    """Brokers that stop or start."""

    minute: Minute
    stop: tuple[BrokerNumber, ...] = ()
    start: tuple[BrokerNumber, ...] = ()


class Reports(Strict):
    """The accuracy of the brokers' values."""

    cpu_noise: float = Field(0.02, ge=0, le=1)
    late: Share = 0
    late_minutes: int = Field(1, ge=1, description="how old a late report is")
    missing: Share = 0


class UnloadCost(Strict):
    """What an unload costs in the simulated cluster, where it is not the simulator's default."""

    unload_seconds: float = Field(_DEFAULT.unload_seconds, ge=0, le=60)
    unload_cpu_seconds: float = Field(_DEFAULT.unload_cpu_seconds, ge=0, le=60)
    reconnect_cpu_seconds: float = Field(_DEFAULT.reconnect_cpu_seconds, ge=0, le=60)


class Scenario(Strict):
    """One experiment.

    Attributes:
        disturbed_at: the minute from which settling is counted.
        placed: who has the bundles at the start. `load`: brokers are as loaded as `load` says, percent of their CPU,
            and the bundles' sizes are scaled to that. `even`: one after the other. `random`: drawn with the seed.
            `placement`: nobody, the load manager places them in the first minute.
        busy_cpu: CPU of a broker as soon as it has traffic, percent of one core.
        settings: of every variant, ours or Pulsar's names.
        published: published results, by strategy.
    """

    name: str = ""
    title: str = Field(min_length=1)
    about: str = Field(min_length=1)
    minutes: int = Field(ge=2, le=100_000)
    disturbed_at: Minute = 0
    placed: Literal["load", "even", "random", "placement"]
    load: tuple[Share | Annotated[float, Field(ge=0, le=100)], ...] = ()
    brokers: tuple[Brokers, ...] = Field(min_length=1)
    bundles: tuple[Bundles, ...] = Field(min_length=1)
    reports: Reports = Reports()
    unload_cost: UnloadCost = UnloadCost()
    busy_cpu: float = Field(_DEFAULT.busy_cpu, ge=0)
    cpu_spikes: tuple[CpuSpike, ...] = ()
    traffic_spikes: tuple[TrafficSpike, ...] = ()
    changes: tuple[Change, ...] = ()
    settings: dict[str, Any] = Field(default_factory=dict)
    published: dict[str, str] = Field(default_factory=dict)

    @property
    def broker_count(self) -> int:
        """Return the number of brokers, started or not."""
        return sum(group.count for group in self.brokers)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        count = self.broker_count
        if (self.placed == "load") != bool(self.load):
            raise ValueError("load: needed when placed is load, and only then")
        if self.load and len(self.load) != count:
            raise ValueError(f"load: {number_of(len(self.load), 'value')} for {number_of(count, 'broker')}")
        named = {number for change in self.changes for number in (*change.stop, *change.start)}
        named |= {spike.broker for spike in self.cpu_spikes}
        if named and max(named) > count:
            raise ValueError(f"broker {max(named)} is named, there are {count}")
        if not any(group.started for group in self.brokers):
            raise ValueError("brokers.started: no broker is there at the start")
        try:
            validate(self.settings, label="settings")
        except RebalancerError as error:
            raise ValueError(error.message) from None
        if self.disturbed_at >= self.minutes:
            raise ValueError(f"disturbed_at: {self.disturbed_at} is not within the {self.minutes} minutes")
        self._refuse_changes()
        return self

    def _refuse_changes(self) -> None:
        timed = [("changes", change.minute) for change in self.changes]
        timed += [("cpu_spikes", spike.minute) for spike in self.cpu_spikes]
        timed += [("traffic_spikes", spike.minute) for spike in self.traffic_spikes]
        for key, minute in timed:
            if minute >= self.minutes:
                raise ValueError(f"{key}: minute {minute} is not within the {self.minutes} minutes")
        groups = [group.started for group in self.brokers for _ in range(group.count)]
        there = {number for number, started in enumerate(groups, start=1) if started}
        for change in sorted(self.changes, key=lambda change: change.minute):
            there = (there - set(change.stop)) | set(change.start)
            if not there:
                raise ValueError(f"changes: no broker is left in minute {change.minute}")


def load(file: Path) -> Scenario:
    """Return the scenario of a file.

    Raises:
        ScenarioError: with the file, and the key or line that is wrong.
    """
    return read(file, Scenario)


def read(file: Path, model: type[Model]) -> Model:
    """Return the content of a file, with the file's name.

    Raises:
        ScenarioError: with the file, and the key or line that is wrong.
    """
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
        return model.model_validate(document | {"name": file.stem})
    except ValidationError as error:
        problems = [
            f"{'.'.join(map(str, item['loc'])) or 'all of it'}: {item['msg'].removeprefix('Value error, ')}"
            for item in error.errors(include_url=False, include_context=False)
        ]
        raise ScenarioError(f"{file}: {'; '.join(problems)}") from None
    except (OSError, UnicodeError, tomllib.TOMLDecodeError) as error:
        raise ScenarioError(f"{file}: {error}") from None


def load_all(folder: Path = FOLDER) -> dict[str, Scenario]:
    """Return the scenarios of a folder by name.

    Raises:
        ScenarioError: as `load`.
    """
    return {file.stem: load(file) for file in sorted(folder.glob("*.toml"))}


def named(names: Iterable[str], there: Mapping[str, Kind], what: str) -> list[Kind]:
    """Return the entries with these names, or all entries if there are no names.

    Raises:
        ScenarioError: a name does not exist.
    """
    chosen = list(names) or list(there)
    if unknown := set(chosen) - set(there):
        raise ScenarioError(f"no {what} {', '.join(sorted(unknown))}; there are {', '.join(there)}")
    return [there[name] for name in chosen]
