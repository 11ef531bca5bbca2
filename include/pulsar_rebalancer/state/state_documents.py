"""The documents that are stored between runs.

Two of the documents are defined here: `decision` (written by the *record* task, then by the gate) and `moves` (written
by the *split* and *unload* tasks, then by *report*). As in Pulsar's AvgShedder, each broker has its own hits. Zero
counts are not stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import Any, ClassVar, Literal, NamedTuple, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.errors import StateError
from pulsar_rebalancer.reasons import Reason, Trait
from pulsar_rebalancer.storage.documents import Versioned


class HitCount(NamedTuple):
    """A broker's number of consecutive hits at each threshold."""

    high: int = 0
    low: int = 0


class CountedSample(NamedTuple):
    """The last sample in which a broker caused a hit.

    Attributes:
        figure: the figure that caused the hit: AvgShedder's score in percent, or TransferShedder's load (1 is 100
            percent).
        at: when the sample was collected.
    """

    figure: float
    at: AwareDatetime


class StateDocument(Versioned):
    """A document of the state store.

    Attributes:
        KEY: the document's key in the store.
    """

    KEY: ClassVar[str]


class DecisionState(StateDocument):
    """The `decision` document.

    Attributes:
        seq: sequence number, which increases by one with every recorded plan.
        plan_id: the last recorded plan. The gate opens only for this plan.
        plan_hash: the plan's hash when it was recorded, to detect later changes to the plan's files.
        counted_at: time of the last sample that counted.
        strategy: the strategy whose hits are counted.
        hits: AvgShedder's hit counts, by broker, without zero counts.
        kept: state of a strategy other than AvgShedder and of its placement, each in its own format.
        samples: samples that caused a hit within the last host interval, by broker.
        restarts: brokers whose hits are reset once the plan is carried out, each with the sample that the plan used.
        means: file with the bundles' moving averages, in the cluster's state folder; empty if there is none.
        split_hits: number of consecutive samples that met a split condition, by bundle; extensible load manager only.
    """

    KEY: ClassVar[str] = "decision"

    seq: int = 0
    plan_id: str = ""
    counted_at: AwareDatetime | None = None
    plan_hash: str = ""
    strategy: str = ""
    hits: dict[str, HitCount] = {}
    kept: dict[str, Any] = {}
    samples: dict[str, CountedSample] = {}
    restarts: dict[str, CountedSample] = {}
    means: str = ""
    split_hits: dict[str, int] = {}

    @property
    def costs(self) -> str:
        """Return the name of the file with the bundles' costs. It exists only if a strategy learned from the sample."""
        return self.means.replace("means", "costs", 1)

    @property
    def files(self) -> frozenset[str]:
        """Return the names of the state folder's files that this state refers to."""
        return frozenset(filter(None, (self.means, self.costs)))

    def carried_out(self) -> Self:
        """Return the state after the plan is carried out: the hits of the brokers in `restarts` are reset."""
        if not self.restarts:
            return self
        changed = {
            "hits": {broker: hit for broker, hit in self.hits.items() if broker not in self.restarts},
            "kept": {
                part: {name: value for name, value in figures.items() if name != "hits"}
                for part, figures in self.kept.items()
            },
            "samples": dict(sorted((self.samples | self.restarts).items())),
            "restarts": {},
        }
        return self.model_copy(update=changed)


class Unload(BaseModel):
    """The last planned or completed unload of a bundle.

    Attributes:
        at: when the move ended; until then, when it was planned.
        outcome: reason code of the result; empty while the move is only planned. A planned move already counts as a
            recent unload.
        owner: the owner that the brokers reported afterwards; empty if unknown.
        tries: number of runs in a row, including this one, that tried to move the bundle to this destination.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    at: AwareDatetime
    plan_id: str
    source: str
    destination: str
    outcome: Reason | Literal[""] = ""
    owner: str = ""
    tries: int = 1

    @property
    def untouched(self) -> bool:
        """Return whether the move was never attempted."""
        return bool(self.outcome and self.outcome.has(Trait.NOT_BEGUN))

    def missed(self, broker: str) -> bool:
        """Return whether the bundle was to move to this broker and, as far as is known, did not arrive there."""
        return self.destination == broker and not (self.outcome and self.outcome.has(Trait.ON_PLANNED_BROKER))


class KeptDestination(BaseModel):
    """A destination that the leader might still store, because an unload reached the leader and then failed.

    The leader uses the destination for the bundle's next placement (ModularLoadManagerImpl.setNamespaceBundleAffinity).
    The leader drops the destination when the bundle gets a new owner, and replaces it at the next unload.

    Attributes:
        at: when the unload failed.
        owner: the broker that still owned the bundle after the failure; empty if unknown.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    at: AwareDatetime
    plan_id: str
    destination: str
    owner: str


class BundleSplit(BaseModel):
    """A planned or completed split of a bundle.

    Attributes:
        at: when the split ended; until then, when it was planned.
        positions: hashes at which the bundle is split.
        shares: share of the bundle's traffic that each part receives, 0 to 1.
        outcome: reason code of the result; empty while the split is planned.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    at: AwareDatetime
    plan_id: str
    positions: tuple[int, ...]
    shares: tuple[float, ...]
    outcome: Reason | Literal[""] = ""


class MovesState(StateDocument):
    """The `moves` document.

    Attributes:
        unloads: the last unload of each recently unloaded bundle, by bundle.
        kept: destinations that the leader might still store, by bundle.
        splits: recent splits, by the name of the bundle that was split.
    """

    KEY: ClassVar[str] = "moves"

    unloads: dict[str, Unload] = {}
    kept: dict[str, KeptDestination] = {}
    splits: dict[str, BundleSplit] = {}

    def recent(self, now: datetime, grace_minutes: float) -> dict[str, Unload]:
        """Return the unloads within the grace period.

        As in ModularLoadManagerImpl, an unload is dropped if `ts < now - grace`.

        If the clock was set back, unloads can be in the future. They are dropped if they are ahead by more than the
        grace period.
        """
        grace = timedelta(minutes=grace_minutes)
        return {bundle: unload for bundle, unload in self.unloads.items() if -grace <= now - unload.at <= grace}


SETTLED = 25.0
"""Minutes without a move after which a broker's score again reflects only its current bundles."""


class LearnedBroker(NamedTuple):
    """The figures learned about one broker.

    Attributes:
        samples: number of counted samples since the broker joined.
        residual: the part of its score that its bundles do not explain, in points.
        score: moving average of its score over a quarter of an hour, in percent.
        variance: variance of the score changes that its bundles do not explain, in points squared.
        started: start time of its process in seconds since 1970; None if unknown.
    """

    samples: int = 0
    residual: float = 0.0
    score: float = 0.0
    variance: float = 4.0
    started: float | None = None

    def of_process(self, started_at: datetime | None) -> Self:
        """Return the record for a broker process with this start time; an empty record if the process is new."""
        started = started_at.timestamp() if started_at else None
        if started is None or started == self.started:
            return self
        return self._replace(started=started) if self.started is None else type(self)(started=started)


@dataclass(frozen=True, slots=True)
class Learned:
    """The figures learned about a cluster.

    Attributes:
        samples: number of counted samples.
        points: score points that 1 msg/s of average cost (1 kB/s if the network is the bottleneck) adds to a broker
            with the median number of cores.
        idle: score, in percent, of a broker without bundles.
        quiet: minutes since a broker last joined or left, at most `SETTLED`.
        brokers: figures learned about each broker that the cluster lists, by broker.
        bottleneck: the resource that determines the scores.
        others: number of consecutive counted samples in which a different resource determined the scores.
    """

    samples: int = 0
    points: float = 0.0
    idle: float = 5.0
    quiet: float = SETTLED
    brokers: Mapping[str, LearnedBroker] = field(default_factory=dict)
    bottleneck: str = "cpu"
    others: int = 0

    def document(self) -> dict[str, Any]:
        """Return the document to store; empty if nothing has been learned."""
        if not self.samples:
            return {}
        own = {of.name: getattr(self, of.name) for of in fields(self)}
        return own | {"brokers": {name: list(broker) for name, broker in sorted(self.brokers.items())}}


NOTHING = Learned()


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
