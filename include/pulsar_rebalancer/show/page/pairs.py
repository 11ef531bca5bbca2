"""Pairs and their hits: how far each is from firing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pulsar_rebalancer.config.enums import Strategy
from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.reasons import Reason, Trait
from pulsar_rebalancer.show.page.page_model import HitsView, PairView

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pulsar_rebalancer.config.settings import Settings
    from pulsar_rebalancer.show.page.recent_runs import Run

SHOWN = 40
"""Pairs, or brokers under another strategy, that are told one by one."""


def pair_views(run: Run) -> list[PairView]:
    """Return all that a run with a plan looked at, the largest gap first."""
    try:
        rows = (run.folder / "plan" / "decisions.parquet").read_table().to_pylist()
    except SnapshotError:
        return []
    settings = run.request.resolved.settings
    # A broker that is left out is in no pair, and under another strategy has been given no value.
    views = [view_of(row, settings) for row in rows if row["pair"] is not None or row["value"] is not None]
    return sorted(views, key=lambda view: (-(view.gap or 0.0), view.number, view.source))


def told(pairs: Sequence[PairView]) -> list[PairView]:
    """Return the pairs to be told one by one: those whose gap counts, and those that fired or wait."""
    return [pair for pair in pairs if pair.band != "calm" or pair.fired or _waits(pair)][:SHOWN]


def _waits(view: PairView) -> bool:
    reason = Reason.get(view.reason)
    return reason is not None and reason.has(Trait.WAITING | Trait.STUCK)


def view_of(row: Mapping[str, Any], settings: Settings) -> PairView:
    """Return one row of the decisions table of a run with these settings."""
    reason, gap = Reason.get(row["reason"]), row["gap"]
    counts = settings.strategy is Strategy.AVG and row["low_hits"] is not None and reason is not Reason.MIDDLE
    hits: dict[str, HitsView] = {}
    if counts:
        hits["low"] = HitsView(have=row["low_hits"], need=settings.hit_count_low)
        hits["high"] = HitsView(have=row["high_hits"] or 0, need=settings.hit_count_high)
    return PairView(
        number=row["pair"] if row["pair"] is not None else -1,
        source=row["source"],
        destination=row["destination"] or "",
        gap=None if gap is None else round(gap, 2),
        band=_band(gap, settings) if counts else "calm",
        hits=hits,
        fired=bool(row["fired"]),
        seconds_to_fire=_seconds_to_fire(hits, gap, settings) if counts and not row["fired"] else None,
        reason=row["reason"],
        meaning=reason.meaning if reason else "",
        explanation=row["explanation"] or "",
    )


def _band(gap: float | None, settings: Settings) -> str:
    if gap is None or gap < settings.low_threshold:
        return "calm"
    return "high" if gap >= settings.high_threshold else "low"


def _seconds_to_fire(hits: Mapping[str, HitsView], gap: float | None, settings: Settings) -> float | None:
    """Return the time from the sample until the pair has its hits, if the gap stays; each takes a new sample."""
    band = _band(gap, settings)
    if band == "calm":
        return None
    sample = max(settings.interval_seconds, settings.host_usage_interval_minutes * 60)
    missing = [max(0, each.need - each.have) for name, each in hits.items() if name == "low" or band == "high"]
    return round(min(missing) * sample, 1)
