"""Make a recording from CSV traces: a series of CPU figures per broker, as exported from Prometheus.

A trace has no bundles, so they are generated: each broker gets the same number of bundles. A bundle's share of the load
on its broker is drawn once from a log-normal distribution. The load is interpolated between samples.
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
from pulsar_rebalancer.texts import number_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pulsar_rebalancer.config.settings import Settings
    from pulsar_rebalancer.replay.columns import Flags, Floats
    from pulsar_rebalancer.replay.recording import Index
    from pulsar_rebalancer.storage.path import StoragePath

_HELD = 3
"""A broker has no load report between two figures if the time between them exceeds this number of median intervals."""

_HASHES = 1 << 32

_VERSION = "5.0.1"
"""Assumed Pulsar version: bundles with equal hash ranges in different namespaces can move at the same time."""

_MOST_PERCENT = 110.0
"""Maximum valid CPU figure, in percent: Prometheus extrapolates rates, so a busy broker can be slightly above 100."""

LONGEST_DAYS = 366
"""Maximum length of a trace or of a replayed period, in days."""

_LARGEST_GB = 8
_BYTES_OF_BROKER, _BYTES_OF_BUNDLE = 173, 29
"""Bytes per broker and per bundle in one sample of a recording."""


class MadeBundles(BaseModel):
    """Settings for generating the bundles of a trace.

    Attributes:
        bundles: number of bundles per broker.
        spread: standard deviation of the logarithm of the bundles' sizes.
        seed: seed for the bundles' sizes.
        messages: msg/s in, and the same rate out, per percent of CPU.
        message_bytes: size of a message in bytes.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    bundles: int = Field(64, ge=1, le=10_000)
    spread: float = Field(0.8, ge=0, le=5)
    seed: int = 1
    messages: float = Field(1000, gt=0)
    message_bytes: float = Field(1024, gt=0)

    @classmethod
    def checked(cls, values: Mapping[str, object]) -> Self:
        """Validate and return the values that a person entered.

        Raises:
            SettingsError: `wrong_setting`; the message names the field.
        """
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            raise settings_error(error, "trace") from None

    @property
    def sentence(self) -> str:
        """Return the settings as text."""
        return (
            f"bundles are generated, not recorded: {self.bundles} per broker, log-normal sizes of standard deviation "
            f"{self.spread:g}, seed {self.seed}; one percent of CPU means {self.messages:g} messages a second of "
            f"{self.message_bytes:g} bytes in, and the same out"
        )


class _Series(NamedTuple):
    """The figures of one broker; `further` is the number of figures that are not the first of their minute."""

    broker: str
    minutes: Floats
    percents: Floats
    further: int

    @property
    def faint(self) -> bool:
        """Return whether no figure is above one percent; if so, the figures are probably ratios."""
        return bool(0 < self.percents.max() <= 1)

    def at(self, minutes: Floats) -> tuple[Flags, Flags, Floats, Flags]:
        """Return four arrays by minute: registered, reporting, CPU in percent, and whether the CPU was measured."""
        there = (minutes >= self.minutes[0]) & (minutes <= self.minutes[-1])
        step = float(np.median(np.diff(self.minutes))) if len(self.minutes) > 1 else 1.0
        after = np.clip(np.searchsorted(self.minutes, minutes), 1, max(1, len(self.minutes) - 1))
        apart = self.minutes[np.minimum(after, len(self.minutes) - 1)] - self.minutes[after - 1]
        exact = np.isin(minutes, self.minutes)
        reports = there & (exact | (apart <= _HELD * max(step, 1.0)))
        return there, reports, np.interp(minutes, self.minutes, self.percents), exact


def record(files: Sequence[Path], made: MadeBundles, settings: Settings, folder: StoragePath) -> Index:
    """Make a recording from traces.

    Args:
        files: CSV with a header; a column of times (seconds or milliseconds since 1970, or ISO 8601, UTC without a
            zone) and a column of CPU in percent per broker. If the only column is `value`, the file's name is the
            broker's name. An empty cell or `NaN` is not a sample.
        folder: target folder of the recording.

    Raises:
        SnapshotError: `bad_trace`; the message names file, row and column.
    """
    series = sorted((one for file in files for one in _read(file)), key=lambda one: one.broker)
    twice = next((one.broker for one, other in pairwise(series) if one[0] == other[0]), None)
    if twice is not None or not series:
        why = f"two series of broker {twice}" if twice else "no series with a sample"
        raise SnapshotError(Reason.BAD_TRACE, f"{', '.join(map(str, files))[:500]}: {why}")
    _refuse_ratios(files, series)
    _refuse_large(files, series, made)
    minutes = np.arange(min(one.minutes[0] for one in series), max(one.minutes[-1] for one in series) + 1)
    at = [one.at(minutes) for one in series]
    there, reports, percents, measured = (np.array([parts[part] for parts in at]) for part in range(4))
    heard = np.flatnonzero(reports.any(axis=0))
    writer = Writer(folder)
    for one in series:
        writer.brokers.number(one.broker)
    writer.policies_number(NO_POLICIES)
    writer.versions.number(_VERSION)
    sizes = _sizes(writer, [one.broker for one in series], made)
    for column in heard.tolist():
        snapshot = _snapshot(there[:, column], reports[:, column], percents[:, column], sizes, made)
        writer.add(int(minutes[column]), snapshot)
    start, end = (datetime.fromtimestamp(int(minute) * 60, UTC) for minute in (minutes[0], minutes[-1] + 1))
    by_minute = settings.model_copy(update={"interval_seconds": 60.0})
    coverage = coverage_of(
        writer.places,
        start,
        end,
        by_minute,
        [],
        repeated=max(one.further for one in series),
        interpolated=float((reports & ~measured).sum() / reports.sum()),
        faint=tuple(one.broker for one in series if one.faint),
        made=made.sentence,
    )
    return writer.finish(coverage)


def _refuse_ratios(files: Sequence[Path], series: Sequence[_Series]) -> None:
    if all(one.faint for one in series):
        why = "no figure is above 1: percentages of CPU (0 to 100) are expected, not ratios (0 to 1)"
        raise SnapshotError(Reason.BAD_TRACE, f"{', '.join(map(str, files))[:500]}: {why}")


def _refuse_large(files: Sequence[Path], series: Sequence[_Series], made: MadeBundles) -> None:
    first = min(series, key=lambda one: one.minutes[0])
    last = max(series, key=lambda one: one.minutes[-1])
    minutes = last.minutes[-1] - first.minutes[0] + 1
    if minutes > LONGEST_DAYS * 24 * 60:
        problem = (
            f"{minutes / (24 * 60):,.0f} days from the first time (broker {first.broker}) to the last (broker "
            f"{last.broker}); at most {LONGEST_DAYS} can be replayed"
        )
    elif (size := minutes * len(series) * (_BYTES_OF_BROKER + made.bundles * _BYTES_OF_BUNDLE) / 1e9) > _LARGEST_GB:
        problem = (
            f"{minutes:,.0f} minutes of {number_of(len(series), 'broker')} with {number_of(made.bundles, 'bundle')} "
            f"each take {size:,.0f} GB, more than {_LARGEST_GB}: take a shorter trace, fewer brokers or fewer bundles"
        )
    else:
        return
    raise SnapshotError(Reason.BAD_TRACE, f"{', '.join(map(str, files))[:500]}: {problem}")


def _sizes(writer: Writer, brokers: Sequence[str], made: MadeBundles) -> Floats:
    """Return each bundle's share of its broker's load, a row per broker. Also add the bundles' names to the writer."""
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
                raise _bad(file, 1, "", "expected a header with a column of times and one column per broker")
            if "" in header[1:]:
                raise _bad(file, 1, str(header.index("", 1) + 1), "the column has no name")
            names = [file.stem] if header[1:] == ["value"] else header[1:]
            yield from _series(file, names, header, rows)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise SnapshotError(Reason.BAD_TRACE, f"{file}: cannot be read ({type(error).__name__})") from None


def _series(file: Path, names: list[str], header: list[str], rows: Iterable[list[str]]) -> list[_Series]:
    by_minute: list[dict[int, float]] = [{} for _ in names]
    further = [0] * len(names)
    for number, row in enumerate(rows, start=2):
        if not row:
            continue
        if len(row) != len(header):
            raise _bad(file, number, "", f"{number_of(len(row), 'cell')} instead of {len(header)}")
        minute = _minute(file, number, header[0], row[0])
        for column, (text, samples) in enumerate(zip(row[1:], by_minute, strict=True), start=1):
            percent = _percent(file, number, header[column], text)
            if percent is not None:
                # The last sample of a minute wins.
                further[column - 1] += minute in samples
                samples[minute] = percent
    return [
        _Series(name, np.array(sorted(samples), dtype=float), np.array([samples[m] for m in sorted(samples)]), again)
        for name, samples, again in zip(names, by_minute, further, strict=True)
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
            raise _bad(file, row, column, f"{text[:80]!r} is not a time") from None
    # Neither another time zone nor the end of the recording may leave the calendar.
    if not 1 < at.year < 9999:
        raise _bad(file, row, column, f"{text[:80]!r} is not a time that can be replayed")
    return minute_of(at.replace(tzinfo=at.tzinfo or UTC))


def _percent(file: Path, row: int, column: str, text: str) -> float | None:
    if not text.strip():
        return None
    try:
        percent = float(text)
    except ValueError:
        raise _bad(file, row, column, f"{text[:80]!r} is not a number") from None
    if math.isnan(percent):
        return None
    if not 0 <= percent <= _MOST_PERCENT:
        raise _bad(
            file, row, column, f"{percent:g} is not a percentage of CPU, where 100 is all of a broker's cores together"
        )
    return percent


def _bad(file: Path, row: int, column: str, why: str) -> SnapshotError:
    place = f", column {column[:80]}" if column else ""
    return SnapshotError(Reason.BAD_TRACE, f"{file}, row {row}{place}: {why}")
