"""The timeline's buckets. Each bucket sums up the runs in a period, from their documents."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pydantic import AwareDatetime, BaseModel, ValidationError

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.reasons import Reason, Trait
from pulsar_rebalancer.show.page.view import View
from pulsar_rebalancer.storage.path import json_document
from pulsar_rebalancer.strategies.shedders.registry import profile_shown

if TYPE_CHECKING:
    from collections.abc import Sequence

_SEEN_TO = Trait.ON_PLANNED_BROKER | Trait.SETTLED | Trait.NOT_BEGUN
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Bucket(View):
    """The sums for a period of time, or for a single run.

    Attributes:
        lowest, highest: smallest and largest score range of the runs, in points; None if no run compared brokers.
        moved, split, failed: number of bundles that were moved, that were split, and whose move or split failed.
        blocked: number of runs that validation stopped.
        broken: number of runs that failed.
        paused: number of runs that could not move bundles for a reason other than the mode.
        low_threshold, high_threshold: thresholds of the last run with a plan, in points; None if no run has a plan.
    """

    at: AwareDatetime
    lowest: float | None = None
    highest: float | None = None
    moved: int = 0
    split: int = 0
    failed: int = 0
    runs: int = 0
    blocked: int = 0
    broken: int = 0
    paused: int = 0
    low_threshold: float | None = None
    high_threshold: float | None = None


class Timeline(View):
    """The timeline of an hour, a day or a month.

    Attributes:
        seconds: length of a bucket; buckets without a run are left out.
        low_threshold, high_threshold: the newest thresholds in points.
        unread: number of runs that have not been read yet; the next request reads them.
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
    """Return the start of the bucket that contains a time. Buckets start at multiples of their length since 1970."""
    return at - (at - _EPOCH) % length


def added_up(buckets: Sequence[Bucket], at: datetime) -> Bucket:
    """Return the sum of buckets, which must be in chronological order."""
    low = [bucket.lowest for bucket in buckets if bucket.lowest is not None]
    high = [bucket.highest for bucket in buckets if bucket.highest is not None]
    judged = [bucket for bucket in buckets if bucket.low_threshold is not None]
    counts = {
        name: sum(getattr(bucket, name) for bucket in buckets)
        for name in ("moved", "split", "failed", "runs", "blocked", "broken", "paused")
    }
    return Bucket(
        at=at,
        lowest=min(low, default=None),
        highest=max(high, default=None),
        low_threshold=judged[-1].low_threshold if judged else None,
        high_threshold=judged[-1].high_threshold if judged else None,
        **counts,
    )


class _Reason(BaseModel):
    reason: str


class _Document(BaseModel):
    """The fields that are read from a request, a summary or an outcome, whichever release wrote it."""

    closed: str | None = None
    dry_run: bool = False
    score_min: float | None = None
    score_max: float | None = None
    resolved: dict[str, Any] = {}
    verdict: str = ""  # a manual plan that is only shown has no outcome
    moves: tuple[_Reason, ...] = ()
    splits: tuple[_Reason, ...] = ()


def of_run(
    at: datetime, settings: str | bytes | None, summary: str | bytes | None, outcome: str | bytes | None
) -> Bucket:
    """Return the bucket of a single run, from its documents. An unreadable document counts as missing."""
    request, figures, ended = _parsed(settings), _parsed(summary), _parsed(outcome)
    held = not request.dry_run and request.closed not in (None, "", Reason.OBSERVE)
    moves = [Reason.get(move.reason) for move in ended.moves]
    splits = [Reason.get(split.reason) for split in ended.splits]
    given = figures.resolved.get("settings")
    thresholds = _thresholds(given) if isinstance(given, dict) else {}
    spread = None
    if figures.score_min is not None and figures.score_max is not None:
        spread = round(figures.score_max - figures.score_min, 2)
    failed = sum(reason is None or not reason.has(_SEEN_TO) for reason in moves)
    unsplit = sum(reason is None or not reason.has(Trait.SPLIT_AS_PLANNED) for reason in splits)
    return Bucket(
        at=at,
        lowest=spread,
        highest=spread,
        moved=sum(reason is not None and reason.has(Trait.NEW_OWNER) for reason in moves),
        split=len(splits) - unsplit,
        failed=failed + unsplit,
        runs=not request.dry_run,
        blocked=ended.verdict == Reason.BLOCKED,
        broken=ended.verdict == Reason.UNFINISHED,
        paused=ended.verdict == Reason.PAUSED or held,
        low_threshold=thresholds.get("low"),
        high_threshold=thresholds.get("high"),
    )


def _thresholds(given: dict[str, Any]) -> dict[str, float]:
    settings = Settings.model_construct(**given)  # from any release, so unknown settings are ignored
    return {kind: threshold.gap for kind, threshold in profile_shown(settings).thresholds(settings).items()}


def _parsed(text: str | bytes | None) -> _Document:
    try:
        return _Document.model_validate(json_document(text, "a document of a run")) if text else _Document()
    except (SnapshotError, ValidationError):
        return _Document()
