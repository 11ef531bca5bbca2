"""What is kept between runs, and the rules that make every sample count exactly once.

Two documents, each with one writer: `decision` (written by record) and `moves` (written by unload and report).
Hit counts belong to brokers, as in Pulsar's AvgShedder; zero counts are not stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from pulsar_rebalancer.errors import StateError

if TYPE_CHECKING:
    from pulsar_rebalancer.settings import Settings

VERSION = 2
READABLE = frozenset({1, VERSION})
"""Version 1 knew AvgShedder alone: it has no `kept`."""

_Model = TypeVar("_Model", bound=BaseModel)


class HitCount(NamedTuple):
    """Consecutive hits of one broker."""

    high: int = 0
    low: int = 0


class DecisionState(BaseModel):
    """The `decision` document.

    Attributes:
        seq: grows by one with every recorded plan.
        plan_id: the last plan recorded; the gate opens for this one alone.
        plan_hash: its hash, set when it is recorded: files that were written again since are another plan.
        counted_at: time of the last sample that counted.
        strategy: which strategy kept the counters.
        hits: AvgShedder's counts by broker, zero counts left out.
        kept: what another strategy and its placement keep, as they wrote it.
        means: name of the file with the bundles' means below the cluster's state folder; empty when there is none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: int = VERSION
    seq: int = 0
    plan_id: str = ""
    counted_at: AwareDatetime | None = None
    plan_hash: str = ""
    strategy: str = ""
    hits: dict[str, HitCount] = {}
    kept: dict[str, Any] = {}
    means: str = ""


class Unload(BaseModel):
    """One bundle in the unload history.

    Attributes:
        at: when the move was planned to start, or ended.
        outcome: a reason code once known; empty: planned, and counted as recently unloaded all the same.
        owner: the broker that was read back as owner; empty when unknown.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    at: AwareDatetime
    plan_id: str
    source: str
    destination: str
    outcome: str = ""
    owner: str = ""


class MovesState(BaseModel):
    """The `moves` document: bundles unloaded within the grace period, by name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: int = VERSION
    unloads: dict[str, Unload] = {}

    def recent(self, now: datetime, grace_minutes: float) -> dict[str, Unload]:
        """Unloads that are not older than the grace period (ModularLoadManagerImpl forgets at `ts < now - grace`)."""
        limit = now - timedelta(minutes=grace_minutes)
        return {bundle: unload for bundle, unload in self.unloads.items() if unload.at >= limit}


class Counting(NamedTuple):
    """How a run treats the counters.

    Attributes:
        counts: whether the sample adds hits, and whether the bundles' means are kept.
        reason: `counted`, `gap`, `strategy_changed`, `too_soon`, `forced` or `other_thresholds`.
        clear: whether counters are cleared before the run.
    """

    counts: bool
    reason: str
    clear: bool = False


def counting(state: DecisionState, settings: Settings, now: datetime, *, forced: bool, thresholds: bool) -> Counting:
    """Whether a sample taken at `now` counts.

    "Consecutive" has a meaning in time: a sample counts when at least half an interval has passed since the last
    one, and hits older than `state_max_gap` intervals are no longer consecutive.

    Args:
        state: the decision state as collect found it.
        settings: effective settings.
        now: time of the sample.
        forced: a forced run counts nothing.
        thresholds: a run with thresholds of its own counts nothing.
    """
    changed = bool(state.strategy) and state.strategy != settings.strategy
    since = (now - state.counted_at).total_seconds() if state.counted_at else None
    longest = settings.state_max_gap * settings.interval_seconds
    # A sample from the future was taken by a clock that ran ahead: waiting for it to pass would freeze the counters.
    apart = since is not None and not 0 <= since <= longest
    gap = apart and bool(state.hits or state.kept.get("shedder", {}).get("hits"))
    clear = changed or gap
    if forced:
        return Counting(False, "forced", clear)
    if thresholds:
        return Counting(False, "other_thresholds", clear)
    if since is not None and 0 <= since < settings.interval_seconds / 2:
        return Counting(False, "too_soon", clear)
    return Counting(True, "strategy_changed" if changed else "gap" if gap else "counted", clear)


def commit(stored: DecisionState, plan_state: DecisionState) -> DecisionState | None:
    """The document to store for a plan, or None when it is stored already.

    Args:
        stored: what the store holds now.
        plan_state: the state that decide derived; its `seq` is the plan's base plus one.

    Raises:
        StateError: `stale_plan` when the state moved on after the plan was made.
    """
    if stored.plan_id == plan_state.plan_id:
        return None
    if plan_state.seq != stored.seq + 1:
        raise StateError(
            "stale_plan",
            f"plan {plan_state.plan_id} was made for state {plan_state.seq - 1}, the store is at {stored.seq} "
            f"(plan {stored.plan_id or 'none'}); nothing was changed",
        )
    return plan_state


def parse_decision(document: Any) -> DecisionState:
    """The `decision` document of the store; None is an empty one.

    Raises:
        StateError: `state_version` when it is of another version or damaged.
    """
    return DecisionState() if document is None else _parse(DecisionState, document)


def parse_moves(document: Any) -> MovesState:
    """The `moves` document of the store; None is an empty one.

    Raises:
        StateError: `state_version` when it is of another version or damaged.
    """
    return MovesState() if document is None else _parse(MovesState, document)


def _parse(model: type[_Model], document: Any) -> _Model:
    version = document.get("version") if isinstance(document, Mapping) else None
    if version not in READABLE:
        readable = " and ".join(map(str, sorted(READABLE)))
        raise StateError("state_version", f"the stored state has version {version!r}, this release reads {readable}")
    try:
        return model.model_validate({**document, "version": VERSION})
    except ValidationError as error:
        raise StateError("state_version", f"the stored state cannot be read: {error.errors()[0]['msg']}") from None
