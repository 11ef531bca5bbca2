"""A replay's request and answer: the documents in the replay's folder."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import ClassVar, NamedTuple, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from pulsar_rebalancer.config.settings import Settings, settings_error
from pulsar_rebalancer.errors import SettingsError
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.replay.recording import Coverage
from pulsar_rebalancer.replay.samples import Recording
from pulsar_rebalancer.replay.variant_outcome import Agreement
from pulsar_rebalancer.replay.variants import Variants, expand
from pulsar_rebalancer.storage.documents import VersionedDocument
from pulsar_rebalancer.strategies.shedders.registry import PROFILES
from pulsar_rebalancer.texts import require_storable

REQUEST, ANSWER, REPORT, TABLE, SAMPLES = "request.json", "answer.json", "report.html", "results.parquet", "samples"

LONGEST_DAYS = 366
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
    start: AwareDatetime = Field(description="start of the period; empty: a day before its end")
    end: AwareDatetime = Field(description="end of the period; empty: now")
    grid: list[dict[str, object]] = Field(
        default_factory=lambda: DEFAULT_GRID,
        description="parts of settings with lists of values; all combinations of each part are compared",
    )
    worth: float = Field(10, ge=0, le=1e6, description="unloads a day that one point of range is worth")
    days_apart: bool = Field(
        False,
        description="every day (UTC) begins with bundles where they were recorded; days are replayed in parallel",
    )
    seed: int = 1

    @field_validator("grid")
    @classmethod
    def _storable(cls, grid: list[dict[str, object]]) -> list[dict[str, object]]:
        require_storable(grid)
        return grid

    @model_validator(mode="after")
    def _stretch(self) -> Self:
        # Neither another time zone nor the day after the end may leave the calendar.
        if self.start.year < 2 or self.end.year > 9998:
            raise ValueError("the period must be between the years 2 and 9998")
        if not timedelta() < self.end - self.start <= timedelta(days=LONGEST_DAYS):
            raise ValueError(f"the period must end after it starts, and be no longer than {LONGEST_DAYS} days")
        return self

    @property
    def variants(self) -> Variants:
        """Return the variants to compare; raise SettingsError (`wrong_setting`)."""
        return expand(self.grid, self.settings)

    @classmethod
    def checked(cls, values: Mapping[str, object]) -> Self:
        """Validate a person's request; raise SettingsError (`wrong_setting`, `contradiction`)."""
        try:
            request = cls.model_validate(dict(values))
        except ValidationError as error:
            raise settings_error(error, "replay") from None
        expand(request.grid, request.settings)
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


class Stretch(NamedTuple):
    """The first and last minute of a continuous period to replay, inclusive."""

    first: int
    last: int


def stretches(recording: Recording, *, days_apart: bool) -> list[Stretch]:
    """Return the continuous periods in a recording: its days, or the whole recording."""
    minutes = recording.index.minutes
    if not days_apart:
        return [Stretch(minutes[0], minutes[-1])]
    by_day: dict[int, list[int]] = {}
    for minute in minutes:
        by_day.setdefault(minute // (24 * 60), []).append(minute)
    return [Stretch(of_day[0], of_day[-1]) for of_day in by_day.values()]


MOST_HOURS = 5.0
"""Maximum estimated core hours for a replay; the task that waits for the replay times out after six hours."""

MOST_OUTCOMES = 50_000_000
"""Maximum number of samples times variants in one replay."""

_LESS = "take a shorter period or fewer variants"

_SECONDS_PER_BROKER, _SECONDS_PER_BUNDLE = 25e-6, 50e-9
"""Computing time in seconds per sample and variant, for each broker and each bundle (see docs/performance.md)."""


def refuse_many(request: ReplayRequest, variants: int) -> None:
    """Reject too many samples and variants before data is read; raise SettingsError (`wrong_setting`)."""
    minutes = (request.end - request.start).total_seconds() / 60
    samples = minutes / max(1.0, request.settings.interval_seconds / 60)
    if samples * variants > MOST_OUTCOMES:
        raise SettingsError(
            Reason.WRONG_SETTING,
            f"{variants} variants over {samples:,.0f} samples are more than {MOST_OUTCOMES:,} together: {_LESS}",
        )


def refuse_long(recording: Recording, variants: int) -> None:
    """Reject a replay that would take too long; raise SettingsError (`wrong_setting`)."""
    samples, names = len(recording.index.minutes), recording.roster
    step = len(names.brokers) * _SECONDS_PER_BROKER + len(names.bundles) * _SECONDS_PER_BUNDLE
    hours = samples * variants * step / 3600
    if hours > MOST_HOURS:
        raise SettingsError(
            Reason.WRONG_SETTING,
            f"{variants} variants over {samples:,} samples of {len(names.brokers)} brokers and {len(names.bundles):,} "
            f"bundles would take one core about {hours:,.0f} hours, more than {MOST_HOURS:g}: {_LESS}",
        )
