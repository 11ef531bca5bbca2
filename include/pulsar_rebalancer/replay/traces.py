"""CSV traces, a series of CPU per broker as exported from Prometheus, made into a recording.

A trace has no bundles, so they are made: as many for each broker as is said, of sizes that do not change, whose parts
of the broker's load are drawn from a log-normal distribution. Between two samples the load is interpolated.
"""

from __future__ import annotations

import csv
import math
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pulsar_rebalancer.config.settings import settings_error
from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.replay.minute import NO_POLICIES
from pulsar_rebalancer.replay.recording import KeptSample, minute_of
from pulsar_rebalancer.replay.writing import Writer, coverage_of
from pulsar_rebalancer.run.tables import AVERAGES, RESOURCES, TRAFFIC

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pulsar_rebalancer.config.settings import Settings
    from pulsar_rebalancer.replay.columns import Flags, Floats
    from pulsar_rebalancer.replay.recording import Index
    from pulsar_rebalancer.storage.path import StoragePath

_HELD = 3
"""A broker that is silent for longer than so many of its usual steps has no report until it is heard of again."""

_HASHES = 1 << 32

_VERSION = "5.0.1"
"""Of the brokers: the bundles that are made have the same ranges on each of them, and none shall wait for another."""

LONGEST_DAYS = 366
"""Of a stretch."""


class MadeBundles(BaseModel):
    """How the bundles of a trace are made.

    Attributes:
        bundles: of each broker.
        spread: standard deviation of the logarithm of their sizes.
        seed: of the sizes.
        messages: msg/s in, and as many out, that one percent of CPU stands for.
        message_bytes: of each of them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    bundles: int = Field(64, ge=1, le=10_000)
    spread: float = Field(0.8, ge=0, le=5)
    seed: int = 1
    messages: float = Field(1000, gt=0)
    message_bytes: float = Field(1024, gt=0)

    @classmethod
    def checked(cls, values: Mapping[str, object]) -> Self:
        """Return what a person typed.

        Raises:
            SettingsError: `wrong_setting`, with the field's name.
        """
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            raise settings_error(error, "trace") from None

    @property
    def sentence(self) -> str:
        """Return it in words."""
        return (
            f"bundles are made, not recorded: {self.bundles} for each broker, log-normal sizes of standard deviation "
            f"{self.spread:g}, seed {self.seed}; one percent of CPU stands for {self.messages:g} messages a second of "
            f"{self.message_bytes:g} bytes in, and as many out; between samples the load is interpolated"
        )


class _Series(NamedTuple):
    broker: str
    minutes: Floats
    percents: Floats

    def at(self, minutes: Floats) -> tuple[Flags, Flags, Floats]:
        """Return in which minutes the broker is there, in which it reports, and its CPU then, percent."""
        there = (minutes >= self.minutes[0]) & (minutes <= self.minutes[-1])
        step = float(np.median(np.diff(self.minutes))) if len(self.minutes) > 1 else 1.0
        after = np.clip(np.searchsorted(self.minutes, minutes), 1, max(1, len(self.minutes) - 1))
        apart = self.minutes[np.minimum(after, len(self.minutes) - 1)] - self.minutes[after - 1]
        exact = np.isin(minutes, self.minutes)
        reports = there & (exact | (apart <= _HELD * max(step, 1.0)))
        return there, reports, np.interp(minutes, self.minutes, self.percents)


def record(files: Sequence[Path], made: MadeBundles, settings: Settings, folder: StoragePath) -> Index:
    """Make a recording of traces.

    Args:
        files: CSV with a header; a column of times (seconds or milliseconds since 1970, or ISO 8601, UTC where no zone
            is written) and a column of CPU in percent for each broker. A single column `value` is the broker that the
            file is called by. An empty cell and `NaN` are no sample.
        folder: where the files of the recording go.

    Raises:
        SnapshotError: `bad_trace`, with file, row and column.
    """
    series = sorted((each for file in files for each in _read(file)), key=lambda each: each.broker)
    twice = next((one.broker for one, other in pairwise(series) if one[0] == other[0]), None)
    if twice is not None or not series:
        why = f"two series of broker {twice}" if twice else "no series with a sample"
        raise SnapshotError(Reason.BAD_TRACE, f"{', '.join(map(str, files))[:500]}: {why}")
    _refuse_long(files, series)
    minutes = np.arange(min(each.minutes[0] for each in series), max(each.minutes[-1] for each in series) + 1)
    at = [each.at(minutes) for each in series]
    there, reports, percents = (np.array([each[part] for each in at]) for part in range(3))
    heard = np.flatnonzero(reports.any(axis=0))
    writer = Writer(folder)
    for each in series:
        writer.brokers.number(each.broker)
    writer.policies_number(NO_POLICIES)
    writer.versions.number(_VERSION)
    sizes = _sizes(writer, [each.broker for each in series], made)
    for column in heard.tolist():
        snapshot = _snapshot(there[:, column], reports[:, column], percents[:, column], sizes, made)
        writer.add(int(minutes[column]), snapshot)
    start, end = (datetime.fromtimestamp(int(minute) * 60, UTC) for minute in (minutes[0], minutes[-1] + 1))
    by_minute = settings.model_copy(update={"interval_seconds": 60.0})
    return writer.finish(coverage_of(writer.places, start, end, by_minute, [], made=made.sentence))


def _refuse_long(files: Sequence[Path], series: Sequence[_Series]) -> None:
    first = min(series, key=lambda each: each.minutes[0])
    last = max(series, key=lambda each: each.minutes[-1])
    days = (last.minutes[-1] - first.minutes[0]) / (24 * 60)
    if days > LONGEST_DAYS:
        raise SnapshotError(
            Reason.BAD_TRACE,
            f"{', '.join(map(str, files))[:500]}: {days:,.0f} days from the first time (broker {first.broker}) to the "
            f"last (broker {last.broker}); at most {LONGEST_DAYS} can be replayed",
        )


def _sizes(writer: Writer, brokers: Sequence[str], made: MadeBundles) -> Floats:
    """Return the share that each bundle has of its broker's load, a row per broker; the bundles get their names."""
    width = _HASHES // made.bundles
    for number in range(len(brokers)):
        for part in range(made.bundles):
            low, high = part * width, min((part + 1) * width, _HASHES - 1)
            writer.bundles.number(f"trace/broker-{number + 1}/0x{low:08x}_0x{high:08x}")
    random = np.random.default_rng(made.seed)
    sizes = random.lognormal(0.0, made.spread, (len(brokers), made.bundles))
    return np.asarray(sizes / sizes.sum(axis=1, keepdims=True))


def _snapshot(there: Flags, reports: Flags, percents: Floats, sizes: Floats, made: MadeBundles) -> KeptSample:
    listed, bundles = np.flatnonzero(there), sizes.shape[1]
    cpu = percents[listed]
    rate, nothing = cpu * made.messages, np.full((len(RESOURCES), len(listed)), np.nan)
    usage, limits = nothing.copy(), nothing.copy()
    usage[0], limits[0] = cpu, 100.0
    throughput = rate * made.message_bytes
    figures = np.array([rate, rate, throughput, throughput, np.full(len(listed), sizes.shape[1])])
    heard = np.flatnonzero(reports[listed])
    owner = np.repeat(listed[heard], bundles)
    numbers = (listed[heard][:, None] * bundles + np.arange(bundles)).ravel()
    carried = [(figures[row][heard][:, None] * sizes[listed[heard]]).ravel() for row in range(len(TRAFFIC))]
    return KeptSample(
        brokers=listed,
        usage=usage,
        limits=limits,
        traffic=figures,
        averages=np.full((len(AVERAGES), len(listed)), np.nan),
        versions=np.zeros(len(listed), dtype=np.int64),
        age=np.zeros(len(listed)),
        started=np.full(len(listed), np.nan),
        reported=reports[listed],
        bundles=numbers,
        owner=owner,
        carried=np.array([*carried, np.ones(len(numbers))]),
        left_out=np.zeros(len(numbers), dtype=bool),
        policies=np.zeros(1, dtype=np.int64),
    )


def _read(file: Path) -> Iterator[_Series]:
    try:
        with file.open(encoding="utf-8-sig", newline="") as source:
            rows = csv.reader(source)
            header = [name.strip() for name in next(rows, [])]
            if len(header) < 2:
                raise _bad(file, 1, "", "a header with a column of times and one for each broker is expected")
            names = [file.stem] if header[1:] == ["value"] else header[1:]
            yield from _series(file, names, header, rows)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise SnapshotError(Reason.BAD_TRACE, f"{file}: cannot be read ({type(error).__name__})") from None


def _series(file: Path, names: list[str], header: list[str], rows: Iterable[list[str]]) -> list[_Series]:
    found: list[dict[int, float]] = [{} for _ in names]
    for number, row in enumerate(rows, start=2):
        if not row:
            continue
        if len(row) != len(header):
            raise _bad(file, number, "", f"{len(row)} cells instead of {len(header)}")
        minute = _minute(file, number, header[0], row[0])
        for column, (text, samples) in enumerate(zip(row[1:], found, strict=True), start=1):
            percent = _percent(file, number, header[column], text)
            if percent is not None:
                # The last sample of a minute counts.
                samples[minute] = percent
    return [
        _Series(name, *(np.array(values, dtype=float) for values in zip(*sorted(samples.items()), strict=True)))
        for name, samples in zip(names, found, strict=True)
        if samples
    ]


def _minute(file: Path, row: int, column: str, text: str) -> int:
    try:
        number = float(text)
        at = datetime.fromtimestamp(number / 1000 if number > 1e11 else number, UTC)
    except (ValueError, OverflowError, OSError):
        try:
            at = datetime.fromisoformat(text.strip())
        except ValueError:
            raise _bad(file, row, column, f"{text[:80]!r} is no time") from None
    return minute_of(at.replace(tzinfo=at.tzinfo or UTC))


def _percent(file: Path, row: int, column: str, text: str) -> float | None:
    if not text.strip():
        return None
    try:
        percent = float(text)
    except ValueError:
        raise _bad(file, row, column, f"{text[:80]!r} is no number") from None
    if math.isnan(percent):
        return None
    if not 0 <= percent <= 1000:
        raise _bad(file, row, column, f"{percent:g} is no percentage of CPU")
    return percent


def _bad(file: Path, row: int, column: str, why: str) -> SnapshotError:
    place = f", column {column[:80]}" if column else ""
    return SnapshotError(Reason.BAD_TRACE, f"{file}, row {row}{place}: {why}")
