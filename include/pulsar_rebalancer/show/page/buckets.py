"""Stretches of the past: what the documents of runs say, added up."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.reasons import Reason, Trait
from pulsar_rebalancer.show.page.view import View
from pulsar_rebalancer.storage.path import json_document
from pulsar_rebalancer.strategies.shedders.registry import profile_shown

if TYPE_CHECKING:
    from collections.abc import Sequence

_Document = TypeVar("_Document", bound=BaseModel)
_SEEN_TO = Trait.ON_PLANNED_BROKER | Trait.SETTLED | Trait.NOT_BEGUN
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Bucket(View):
    """A stretch of time, or a single run.

    Attributes:
        lowest, highest: of the range of scores; None without a run that judged brokers.
        moved, failed: bundles.
        blocked: runs that validation stopped; likewise `broken` ones, which failed, and `paused` ones, which something
            beside the mode let move nothing.
        low_threshold, high_threshold: of its last run; None when it made no plan.
    """

    at: AwareDatetime
    lowest: float | None = None
    highest: float | None = None
    moved: int = 0
    failed: int = 0
    runs: int = 0
    blocked: int = 0
    broken: int = 0
    paused: int = 0
    low_threshold: float | None = None
    high_threshold: float | None = None


class Timeline(View):
    """What happened over an hour, a day or a month.

    Attributes:
        seconds: length of a bucket; those without a run are left out.
        low_threshold, high_threshold: the newest ones.
        unread: runs that were not read yet: asking again reads on.
    """

    span: str
    begin: AwareDatetime
    end: AwareDatetime
    seconds: float
    low_threshold: float | None
    high_threshold: float | None
    buckets: tuple[Bucket, ...]
    unread: int = 0


def begin_of(at: datetime, length: timedelta) -> datetime:
    """Return when the bucket of a time begins; buckets stay where they are while time goes on."""
    return at - (at - _EPOCH) % length


def added_up(buckets: Sequence[Bucket], at: datetime) -> Bucket:
    """Return buckets, in their order, as one."""
    low = [bucket.lowest for bucket in buckets if bucket.lowest is not None]
    high = [bucket.highest for bucket in buckets if bucket.highest is not None]
    judged = [bucket for bucket in buckets if bucket.low_threshold is not None]
    counts = {
        name: sum(getattr(bucket, name) for bucket in buckets)
        for name in ("moved", "failed", "runs", "blocked", "broken", "paused")
    }
    return Bucket(
        at=at,
        lowest=min(low, default=None),
        highest=max(high, default=None),
        low_threshold=judged[-1].low_threshold if judged else None,
        high_threshold=judged[-1].high_threshold if judged else None,
        **counts,
    )


class _Settings(BaseModel):
    """What is read of a request, of any release."""

    model_config = ConfigDict(extra="ignore")

    closed: str | None = None


class _Figures(BaseModel):
    """Likewise of a summary."""

    model_config = ConfigDict(extra="ignore")

    score_min: float | None = None
    score_max: float | None = None
    resolved: dict[str, Any] = {}


class _Move(BaseModel):
    model_config = ConfigDict(extra="ignore")

    reason: str


class _Ended(BaseModel):
    """Likewise of an outcome."""

    model_config = ConfigDict(extra="ignore")

    ended_at: AwareDatetime
    verdict: str
    moves: tuple[_Move, ...] = ()
    splits: tuple[_Move, ...] = ()


def of_run(
    at: datetime, settings: str | bytes | None, summary: str | bytes | None, outcome: str | bytes | None
) -> Bucket:
    """Return what a run's documents say; one that cannot be read says as much as one that is not there."""
    figures, ended = _parsed(_Figures, summary) or _Figures(), _parsed(_Ended, outcome)
    closed = (_parsed(_Settings, settings) or _Settings()).closed
    verdict = ended.verdict if ended else ""  # plans that were made by hand and only shown end without an outcome
    moves = [Reason.get(move.reason) for move in ended.moves] if ended else []
    splits = [Reason.get(split.reason) for split in ended.splits] if ended else []
    given = figures.resolved.get("settings")
    thresholds = _thresholds(given) if isinstance(given, dict) else {}
    spread = None
    if figures.score_min is not None and figures.score_max is not None:
        spread = round(figures.score_max - figures.score_min, 2)
    failed = sum(reason is None or not reason.has(_SEEN_TO) for reason in moves)
    return Bucket(
        at=at,
        lowest=spread,
        highest=spread,
        moved=sum(reason is not None and reason.has(Trait.NEW_OWNER) for reason in moves),
        failed=failed + sum(reason is None or not reason.has(Trait.SPLIT_AS_PLANNED) for reason in splits),
        runs=1,
        blocked=verdict == Reason.BLOCKED,
        broken=verdict == Reason.UNFINISHED,
        paused=verdict == Reason.PAUSED or closed not in (None, "", Reason.OBSERVE),
        low_threshold=thresholds.get("low"),
        high_threshold=thresholds.get("high"),
    )


def _thresholds(given: dict[str, Any]) -> dict[str, float]:
    settings = Settings.model_construct(**given)  # of any release: what is unknown here says nothing
    return {kind: each.gap for kind, each in profile_shown(settings).thresholds(settings).items()}


def _parsed(model: type[_Document], text: str | bytes | None) -> _Document | None:
    try:
        return model.model_validate(json_document(text, "a document of a run")) if text else None
    except (SnapshotError, ValidationError):
        return None
