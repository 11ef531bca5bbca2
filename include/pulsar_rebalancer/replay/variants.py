"""A replay's request and answer, and its variants: a cluster's settings with some values changed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from itertools import product
from typing import Any, ClassVar, NamedTuple, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from pulsar_rebalancer.config.clusters_file import RunParams
from pulsar_rebalancer.config.pulsar_settings import FIELD_OF_PULSAR_NAME, PulsarSettings
from pulsar_rebalancer.config.settings import CAPS, Settings, settings_error
from pulsar_rebalancer.errors import SettingsError, SnapshotError
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.replay.recording import Coverage
from pulsar_rebalancer.replay.samples import Recording
from pulsar_rebalancer.replay.variant_outcome import Agreement
from pulsar_rebalancer.run.compacted_tables import RUNS, table_file
from pulsar_rebalancer.run.request import RunRequest
from pulsar_rebalancer.storage.documents import ClusterStorage, VersionedDocument, day_of
from pulsar_rebalancer.storage.path import StoragePath, json_document
from pulsar_rebalancer.strategies.shedders.registry import PROFILES, validate
from pulsar_rebalancer.texts import require_storable

MAX_VARIANTS = 1000

CURRENT_VARIANT = "current settings"

_NOT_REPLAYED = {
    "report_max_interval_minutes",
    "host_usage_interval_minutes",
    "failure_domains",
    *(name for name in PulsarSettings.model_fields if "split" in name),
    "max_bundle_topics",
    "max_bundle_sessions",
    "max_bundle_msg_rate",
    "max_bundle_bandwidth",
    "max_namespace_bundles",
    "flow_difference",
}

STRATEGY_SETTINGS = ("placement", "strategy_settings")
"""Settings that belong to one strategy and have no meaning for other strategies."""

REPLAYED = (
    "strategy",
    *STRATEGY_SETTINGS,
    "min_bundle_share",
    *CAPS,
    "excluded_brokers",
    "excluded_bundles",
    *(name for name in PulsarSettings.model_fields if name not in _NOT_REPLAYED),
)
"""Settings that affect the decisions of a variant."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One set of settings to compare, with a unique name; `changed_settings` are those that differ from the current."""

    name: str
    settings: Settings
    changed_settings: Mapping[str, object] = field(default_factory=dict)
    is_current: bool = False


class GridVariants(NamedTuple):
    """A grid's variants, the current settings first, and why self-contradicting combinations are left out."""

    variants: list[Variant]
    left_out_texts: list[str]


def expand_grid(grid: Sequence[Mapping[str, object]], base_settings: Settings) -> GridVariants:
    """Return the current settings and every combination in a grid.

    Each part of the grid maps settings, by our names or Pulsar's, to a value or a list of values, and all
    combinations within a part are compared. Settings that a part does not name keep their current values.

    Raises SettingsError `wrong_setting` for an unknown setting or strategy, a value of the wrong type, or
    more than `MAX_VARIANTS` combinations.
    """
    parts = [_values_by_field(part, f"grid, part {number}") for number, part in enumerate(grid, start=1)]
    _check_variant_count(parts)
    by_key = {_settings_key(base_settings): Variant(CURRENT_VARIANT, base_settings, is_current=True)}
    left_out: list[str] = []
    for number, part in enumerate(parts, start=1):
        for values in product(*part.values()):
            changed = dict(zip(part, values, strict=True))
            try:
                variant = _make_variant(changed, base_settings, f"grid, part {number}")
            except SettingsError as error:
                if error.reason is not Reason.CONTRADICTION:
                    raise
                left_out.append(error.message)
                continue
            by_key.setdefault(_settings_key(variant.settings), variant)
    return GridVariants(list(by_key.values()), left_out)


def _values_by_field(part: Mapping[str, object], label: str) -> dict[str, list[Any]]:
    if not isinstance(part, dict):
        raise SettingsError(Reason.WRONG_SETTING, f"{label} is not a mapping of settings to values")
    by_field: dict[str, list[Any]] = {}
    for key, values in part.items():
        name = FIELD_OF_PULSAR_NAME.get(str(key), str(key))
        if name not in REPLAYED:
            raise SettingsError(Reason.WRONG_SETTING, f"{label}: a replay cannot change setting {str(key)[:80]!r}")
        listed = values if isinstance(values, list) else [values]
        if not listed:
            raise SettingsError(Reason.WRONG_SETTING, f"{label}: {name} has no value")
        by_field[name] = listed
    return by_field


def _check_variant_count(parts: Sequence[Mapping[str, list[Any]]]) -> None:
    count = sum(math.prod(len(values) for values in part.values()) for part in parts)
    if count > MAX_VARIANTS:
        given = ", ".join(f"{name} {len(values)}" for part in parts for name, values in part.items())
        raise SettingsError(
            Reason.WRONG_SETTING,
            f"grid: {count:,} variants exceed the maximum of {MAX_VARIANTS:,}: give fewer values (now {given[:500]})",
        )


def _make_variant(changes: dict[str, object], base_settings: Settings, label: str) -> Variant:
    values = base_settings.model_dump(mode="json", exclude_unset=True)
    if changes.get("strategy", base_settings.strategy) != base_settings.strategy:
        values = {name: value for name, value in values.items() if name not in STRATEGY_SETTINGS}
    settings = validate(values | changes, label=label)
    shown = {name: value for name, value in changes.items() if name != "strategy"}
    name = ", ".join([settings.strategy, *(f"{key} {value}" for key, value in shown.items())])
    return Variant(name, settings, changes)


def _settings_key(settings: Settings) -> str:
    decisive = settings.model_dump(mode="json", include=set(REPLAYED))
    return str(sorted(decisive.items()))


def settings_and_source(storage: ClusterStorage, file_settings: Settings) -> tuple[Settings, str]:
    """Return the settings of the latest run without parameters, with text that names their source.

    They include what the run read from the brokers. Without such a run, in its folder or the compacted
    tables, the clusters file's settings count.
    """
    tables = [name.removesuffix(".parquet") for name in (storage.base / "history" / RUNS).entry_names()]
    days = {day for name in (*storage.runs.entry_names(), *tables) if (day := day_of(name))}
    for day in sorted(days, reverse=True):
        for name, request in _requests_of_day(storage, day):
            if request.params == RunParams():
                return request.resolved.settings, f"taken from run {name}"
    return file_settings, "taken from the clusters file, because no run with the brokers' own settings was found"


def _requests_of_day(storage: ClusterStorage, day: date) -> Iterator[tuple[str, RunRequest]]:
    folder = storage.runs / f"date={day.isoformat()}"
    compacted = _settings_by_run(table_file(storage, RUNS, day))
    for name in sorted({*folder.entry_names(), *compacted}, reverse=True):
        text = compacted.get(name)
        try:
            request = (
                RunRequest.read(folder / name) if text is None else RunRequest.parse(json_document(text, name), name)
            )
        except SnapshotError:
            continue
        yield name, request


def _settings_by_run(runs_table: StoragePath) -> dict[str, str | None]:
    try:
        tables = list(runs_table.read_batches(["run", "settings"])) if runs_table.exists() else []
    except SnapshotError:
        return {}
    return {row["run"]: row["settings"] for table in tables for row in table.to_pylist()}


REQUEST, ANSWER, REPORT, TABLE, SAMPLES = "request.json", "answer.json", "report.html", "results.parquet", "samples"

MAX_DAYS = 366
"""Maximum length of a replayed period, in days."""

DEFAULT_GRID: list[dict[str, object]] = [{"strategy": name} | profile.grid for name, profile in PROFILES.items()]


class ReplayRequest(VersionedDocument):
    """`request.json`: the request for a replay.

    Attributes:
        cluster: name in the clusters file.
        airflow_run_id: the DAG run that requested the replay; empty if a command requested it.
        settings: the current settings; their resource weights also determine the scores.
        seed: seed for the placement's random choices.
    """

    model_config = ConfigDict(allow_inf_nan=False)

    FILE: ClassVar[str] = REQUEST

    cluster: str
    airflow_run_id: str = ""
    requested_by: str = ""
    settings: Settings
    settings_from: str = "as given"
    start: AwareDatetime = Field(description="start of the period; if empty, a day before the end")
    end: AwareDatetime = Field(description="end of the period; if empty, now")
    grid: list[dict[str, object]] = Field(
        default_factory=lambda: DEFAULT_GRID,
        description="list of grids; a grid maps settings to lists of values, and a replay compares all combinations",
    )
    worth: float = Field(10, ge=0, le=1e6, description="price of one point of range, in unloads a day")
    days_apart: bool = Field(
        False, description="if true, each day (UTC) starts from the recorded placement; days are replayed in parallel"
    )
    seed: int = 1

    @field_validator("grid")
    @classmethod
    def _check_storable(cls, grid: list[dict[str, object]]) -> list[dict[str, object]]:
        require_storable(grid)
        return grid

    @model_validator(mode="after")
    def _check_period(self) -> Self:
        # Neither another time zone nor the day after the end may leave the calendar.
        if self.start.year < 2 or self.end.year > 9998:
            raise ValueError("the period must be between the years 2 and 9998")
        if not timedelta() < self.end - self.start <= timedelta(days=MAX_DAYS):
            raise ValueError(f"the period must end after it starts, and be no longer than {MAX_DAYS} days")
        return self

    @property
    def variants(self) -> GridVariants:
        """Return the variants to compare; raise SettingsError (`wrong_setting`)."""
        return expand_grid(self.grid, self.settings)

    @classmethod
    def from_form(cls, values: Mapping[str, object]) -> Self:
        """Validate a person's request; raise SettingsError (`wrong_setting`, `contradiction`)."""
        try:
            request = cls.model_validate(dict(values))
        except ValidationError as error:
            raise settings_error(error, "replay") from None
        expand_grid(request.grid, request.settings)
        return request


class FailedVariant(BaseModel):
    """A variant whose strategy raised an exception at the sample of time `at`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    variant: str
    at: AwareDatetime
    error: str

    @property
    def sentence(self) -> str:
        return f"{self.variant} failed at {self.at:%Y-%m-%d %H:%M} UTC: {self.error}"


class ReplayResult(VersionedDocument):
    """`answer.json`: the result of a replay. The values for each variant are in `results.parquet`.

    Attributes:
        picked: the variant that the preference picks.
        front: variants that no other variant beats in both unloads and range.
        variants: number of variants, including those that failed.
        left_out: the first combinations in the grid that contradict themselves.
        agreement: how closely a replay with the current settings reproduces the recording; None if it failed.
        failed: the first variants whose strategy raised an exception; never picked.
        seconds: duration of the replay.
    """

    FILE: ClassVar[str] = ANSWER

    coverage: Coverage
    picked: str
    front: tuple[str, ...]
    variants: int
    left_out: tuple[str, ...] = ()
    left_out_count: int = 0
    agreement: Agreement | None = None
    failed: tuple[FailedVariant, ...] = ()
    failed_count: int = 0
    seconds: float


class Period(NamedTuple):
    """The first and last minute of a continuous period to replay, inclusive."""

    first_minute: int
    last_minute: int


def continuous_periods(recording: Recording, *, days_apart: bool) -> list[Period]:
    """Return the continuous periods in a recording: its days, or the whole recording."""
    minutes = recording.index.minutes
    if not days_apart:
        return [Period(minutes[0], minutes[-1])]
    by_day: dict[int, list[int]] = {}
    for minute in minutes:
        by_day.setdefault(minute // (24 * 60), []).append(minute)
    return [Period(of_day[0], of_day[-1]) for of_day in by_day.values()]


MAX_CORE_HOURS = 5.0
"""Maximum estimated core hours for a replay; the task that waits for the replay times out after six hours."""

MAX_OUTCOMES = 50_000_000
"""Maximum product of the number of samples and the number of variants in one replay."""

_ADVICE = "take a shorter period or fewer variants"

_SECONDS, _SECONDS_PER_BROKER, _SECONDS_PER_BUNDLE = 5e-4, 14e-6, 40e-9
"""Computing time in seconds per sample and variant, and the additional time for each broker and each bundle."""


def check_sample_count(request: ReplayRequest, variant_count: int) -> None:
    """Reject too many samples and variants before data is read; raise SettingsError (`wrong_setting`)."""
    minutes = (request.end - request.start).total_seconds() / 60
    samples = minutes / max(1.0, request.settings.interval_seconds / 60)
    if samples * variant_count > MAX_OUTCOMES:
        raise SettingsError(
            Reason.WRONG_SETTING,
            f"{variant_count} variants times {samples:,.0f} samples exceed the maximum of {MAX_OUTCOMES:,}: {_ADVICE}",
        )


def check_duration(recording: Recording, variants: int) -> None:
    """Reject a replay that would take too long; raise SettingsError (`wrong_setting`)."""
    samples, names = len(recording.index.minutes), recording.roster
    step = _SECONDS + len(names.brokers) * _SECONDS_PER_BROKER + len(names.bundles) * _SECONDS_PER_BUNDLE
    hours = samples * variants * step / 3600
    if hours > MAX_CORE_HOURS:
        raise SettingsError(
            Reason.WRONG_SETTING,
            f"{variants} variants over {samples:,} samples of {len(names.brokers)} brokers and {len(names.bundles):,} "
            f"bundles would take one core about {hours:,.0f} hours, more than {MAX_CORE_HOURS:g}: {_ADVICE}",
        )
