"""The rules that prevent a sample from being counted twice.

A broker's sample adds at most one hit, regardless of the run's parameters:

* a run adds hits only if at least half an interval has passed since the last run that added hits;
* a pair gets a hit only if a host interval has passed since its last hit or the figure of one of its brokers has
  changed since then. Brokers measure their host once per host interval and repeat the figure until the next
  measurement. So a broker with an unchanged figure does not get a second hit just because it has a new partner;
* hits older than `state_max_gap` intervals no longer count as consecutive;
* forced runs and runs with their own thresholds add no hits. When the gate opens for such a run's plan, the hits of
  pairs whose bundles move are reset (`DecisionState.restarts`). In mode `approve`, the run that carries out the plan
  resets them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pulsar_rebalancer.errors import StateError
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.state.state_documents import CountedSample, DecisionState

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from pulsar_rebalancer.config.settings import Settings

PUNCTUALITY = 0.9
"""Fraction of a host interval after which an unchanged figure counts as a new sample. Runs start a few seconds early or
late, and a broker at its limit always shows the same figure."""


COUNTING = (Reason.COUNTED, Reason.GAP, Reason.STRATEGY_CHANGED)
"""Values of `Counting.reason` for samples that add hits and update the bundles' moving averages."""


@dataclass(frozen=True, slots=True)
class Counting:
    """Rules for the hit counters in one run.

    Attributes:
        counts: True if the sample adds hits and updates the bundles' moving averages.
        reason: `counted`, `gap`, `strategy_changed`, `too_soon`, `forced` or `other_thresholds`.
        clear: True if all hits are reset before the run.
        samples: figures that caused a hit less than a host interval ago, by broker.
    """

    counts: bool
    reason: Reason
    clear: bool = False
    samples: Mapping[str, float] = field(default_factory=dict)

    @property
    def judges(self) -> bool:
        """Return whether hits from this sample can make a pair fire."""
        return self.counts or self.reason == Reason.OTHER_THRESHOLDS

    def is_repeated(self, figures: Mapping[str, float]) -> bool:
        """Return whether the figures equal those of recent hits. Brokers without a recent hit are ignored."""
        known = [self.samples[broker] == figure for broker, figure in figures.items() if broker in self.samples]
        return bool(known) and all(known)


def decide_counting(
    state: DecisionState,
    settings: Settings,
    now: datetime,
    *,
    forced: bool = False,
    thresholds: bool = False,
    same_hits: bool = False,
) -> Counting:
    """Return the rules for the hit counters in a run.

    Args:
        state: the decision state as the *collect* task read it.
        forced: True if the run moves bundles without waiting for hits; it adds no hits.
        thresholds: True if the run has its own thresholds; it adds no hits.
        same_hits: True if the strategy that wrote the state counts hits in the same way. Changing the strategy then
            does not reset the hits.
    """
    changed = bool(state.strategy) and state.strategy != settings.strategy and not same_hits
    since = (now - state.counted_at).total_seconds() if state.counted_at else None
    longest = settings.state_max_gap * settings.interval_seconds
    # A sample from the future comes from a clock that ran ahead; waiting for that time would freeze the counters.
    apart = since is not None and not 0 <= since <= longest
    gap = apart and bool(state.hits or state.split_hits or state.kept.get("shedder", {}).get("hits"))
    if forced:
        reason = Reason.FORCED
    elif since is not None and 0 <= since < settings.interval_seconds / 2:
        reason = Reason.TOO_SOON
    elif thresholds:
        reason = Reason.OTHER_THRESHOLDS
    else:
        reason = Reason.STRATEGY_CHANGED if changed else Reason.GAP if gap else Reason.COUNTED
    return Counting(
        counts=reason in COUNTING,
        reason=reason,
        clear=changed or gap,
        samples={} if changed else young(state, settings, now),
    )


def young(state: DecisionState, settings: Settings, now: datetime) -> dict[str, float]:
    """Return the figures that caused a hit less than a host interval ago, by broker."""
    interval = settings.host_usage_interval_minutes * 60 * PUNCTUALITY
    return {
        broker: sample.figure
        for broker, sample in state.samples.items()
        if 0 <= (now - sample.at).total_seconds() < interval
    }


def samples_after(
    state: DecisionState, counting: Counting, used: Mapping[str, float], now: datetime
) -> dict[str, CountedSample]:
    """Return the samples to store: those that caused a hit in this run, and earlier ones that brokers may still repeat.

    Args:
        state: the decision state as the *collect* task read it.
        counting: rules for the hit counters in this run.
        used: figures that caused a hit in this run, by broker.
        now: time of the sample.
    """
    before = {broker: state.samples[broker] for broker in counting.samples}
    return dict(sorted((before | taken_at(used, now)).items()))


def taken_at(figures: Mapping[str, float], now: datetime) -> dict[str, CountedSample]:
    """Convert each broker's figure to a sample taken at this time."""
    return {broker: CountedSample(figure, now) for broker, figure in sorted(figures.items())}


def commit(stored: DecisionState, plan_state: DecisionState) -> DecisionState | None:
    """Return the document to store for a plan; None if the store already has this document.

    Args:
        stored: the current document in the store.
        plan_state: the state that the *decide* task made; its `seq` is one higher than that of the state from which the
            plan was made.

    Raises:
        StateError: `stale_plan` if the state has changed since the plan was made.
    """
    if stored.plan_id == plan_state.plan_id:
        return None
    if plan_state.seq != stored.seq + 1:
        raise StateError(
            Reason.STALE_PLAN,
            f"plan {plan_state.plan_id} was made for state {plan_state.seq - 1}, the store is at {stored.seq} "
            f"(plan {stored.plan_id or 'none'}); nothing was changed",
        )
    return plan_state
