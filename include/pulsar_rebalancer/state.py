"""The documents stored between runs: `decision` (by *record* and the gate), `moves` (by later tasks).

As in Pulsar's AvgShedder, each broker has its own hits. Zero counts are not stored.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, ClassVar, Literal, NamedTuple, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, TypeAdapter, ValidationError, with_config

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.errors import StateError
from pulsar_rebalancer.reasons import Reason, Trait
from pulsar_rebalancer.storage.documents import VersionedModel

_log = logging.getLogger(__name__)

_forbid_extra_fields = with_config(ConfigDict(extra="forbid"))
"""Marks a dataclass that is stored as a part of a document."""


class HitCount(NamedTuple):
    high: int = 0
    low: int = 0


class HitSample(NamedTuple):
    """The last sample in which a broker caused a hit.

    `value` is AvgShedder's score in percent, or TransferShedder's load (1 is 100 percent).
    """

    value: float
    at: AwareDatetime


class StateDocument(VersionedModel):
    KEY: ClassVar[str]


class DecisionState(StateDocument):
    """The `decision` document.

    Attributes:
        seq: sequence number, which increases by one with every recorded plan.
        plan_id: the last recorded plan, the only one for which the gate opens.
        plan_hash: the plan's hash when recorded, to detect later changes to its files.
        counted_at: time of the last sample that counted.
        hits: AvgShedder's hit counts, by broker, without zero counts.
        strategy_state: state of any other strategy and of the placement, each in its own format.
        samples: samples that caused a hit within the last host interval, by broker.
        restarts: brokers whose hits are reset once the plan is carried out, with the plan's samples.
        means: file with the bundles' moving averages, in the state folder; empty if there is none.
        split_hits: consecutive samples that met a split condition, by bundle (extensible load manager).
    """

    KEY: ClassVar[str] = "decision"

    seq: int = 0
    plan_id: str = ""
    counted_at: AwareDatetime | None = None
    plan_hash: str = ""
    strategy: str = ""
    hits: dict[str, HitCount] = {}
    strategy_state: dict[str, Any] = {}
    samples: dict[str, HitSample] = {}
    restarts: dict[str, HitSample] = {}
    means: str = ""
    split_hits: dict[str, int] = {}

    @property
    def costs_file(self) -> str:
        """Name of the file with the bundles' costs; it exists only if a strategy learned from the sample."""
        return self.means.replace("means", "costs", 1)

    @property
    def file_names(self) -> frozenset[str]:
        return frozenset(filter(None, (self.means, self.costs_file)))

    def with_hits_reset(self) -> Self:
        if not self.restarts:
            return self
        changed = {
            "hits": {broker: hit for broker, hit in self.hits.items() if broker not in self.restarts},
            "strategy_state": {
                part: {name: value for name, value in values.items() if name != "hits"}
                for part, values in self.strategy_state.items()
            },
            "samples": dict(sorted((self.samples | self.restarts).items())),
            "restarts": {},
        }
        return self.model_copy(update=changed)

    def recent_hit_values(self, settings: Settings, now: datetime) -> dict[str, float]:
        interval = settings.host_usage_interval_minutes * 60 * MIN_AGE_SHARE
        return {
            broker: sample.value
            for broker, sample in self.samples.items()
            if 0 <= (now - sample.at).total_seconds() < interval
        }


class Unload(BaseModel):
    """The last planned or completed unload of a bundle.

    Attributes:
        at: when the move ended; until then, when it was planned.
        outcome: reason code; empty while the move is only planned. A planned move counts as an unload.
        owner: the owner that the brokers reported afterwards; empty if unknown.
        tries: runs in a row, including this one, that tried to move the bundle to this destination.
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
    def never_began(self) -> bool:
        return bool(self.outcome and self.outcome.has(Trait.NOT_BEGUN))

    def missed(self, broker: str) -> bool:
        return self.destination == broker and not (self.outcome and self.outcome.has(Trait.ON_PLANNED_BROKER))


class KeptDestination(BaseModel):
    """A destination that the leader might still store, because an unload reached the leader and then failed.

    The leader uses it for the bundle's next placement (ModularLoadManagerImpl.setNamespaceBundleAffinity),
    drops it when the bundle gets a new owner, and replaces it at the next unload. `at` is when the unload
    failed; `owner`, who still owned the bundle then; empty if unknown.
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
        outcome: reason code; empty while the split is planned.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    at: AwareDatetime
    plan_id: str
    positions: tuple[int, ...]
    shares: tuple[float, ...]
    outcome: Reason | Literal[""] = ""


class MovesState(StateDocument):
    """The `moves` document: recent unloads, destinations that the leader might store, and splits, by bundle."""

    KEY: ClassVar[str] = "moves"

    unloads: dict[str, Unload] = {}
    kept_destinations: dict[str, KeptDestination] = {}
    splits: dict[str, BundleSplit] = {}

    def recent_unloads(self, now: datetime, grace_minutes: float) -> dict[str, Unload]:
        """Return the unloads within the grace period; as in ModularLoadManagerImpl, drop `ts < now - grace`.

        Unloads that are in the future by more than the grace period, because the clock was set back, are
        dropped.
        """
        grace = timedelta(minutes=grace_minutes)
        return {bundle: unload for bundle, unload in self.unloads.items() if -grace <= now - unload.at <= grace}


SETTLED = 25.0
"""Minutes after a broker's last move until the broker's score reflects only its current bundles."""


class LearnedBroker(NamedTuple):
    """The values learned about one broker.

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

    def for_process(self, started_at: datetime | None) -> Self:
        """Return the record for a broker process with this start time; empty if the process is new."""
        started = started_at.timestamp() if started_at else None
        if started is None or started == self.started:
            return self
        return self._replace(started=started) if self.started is None else type(self)(started=started)


@_forbid_extra_fields
@dataclass(frozen=True, slots=True)
class LearnedValues:
    """The values learned about a cluster.

    Attributes:
        samples: number of counted samples.
        points: score points that 1 msg/s of average cost (1 kB/s if the network is the bottleneck) adds to a
            broker with the median number of cores.
        idle: score, in percent, of a broker without bundles.
        quiet: minutes since a broker last joined or left, at most `SETTLED`.
        bottleneck: the resource that determines the scores.
        others: consecutive counted samples in which a different resource determined the scores.
        lasted, deviation: moving averages of the sums over all bundles (`strategies.learning.BundleSums`).
        persistence: share of a bundle's deviation from its hourly average that is expected to last.
    """

    samples: int = 0
    points: float = 0.0
    idle: float = 5.0
    quiet: float = SETTLED
    brokers: Mapping[str, LearnedBroker] = field(default_factory=dict)
    bottleneck: str = "cpu"
    others: int = 0
    lasted: float = 0.0
    deviation: float = 0.0
    persistence: float = 0.5


NOTHING_LEARNED = LearnedValues()

WHOLE_CLUSTER = ""
"""Key for TransferShedder's hits, stored as low hits: TransferShedder judges the whole cluster, not each broker."""


@_forbid_extra_fields
@dataclass(frozen=True, slots=True)
class ShedderState:
    """The state of a shedder between runs. Each shedder uses only some of the fields.

    Attributes:
        hits: number of consecutive hits, by broker or for `WHOLE_CLUSTER`; zero counts are left out.
        loads: moving average of each broker's load; 1 is 100 percent.
        throughputs: moving average of each broker's throughput in bytes/s.
        learned: values learned about the brokers.
    """

    hits: Mapping[str, HitCount] = field(default_factory=dict)
    loads: Mapping[str, float] = field(default_factory=dict)
    throughputs: Mapping[str, float] = field(default_factory=dict)
    learned: LearnedValues = NOTHING_LEARNED

    @property
    def cluster_hits(self) -> int:
        return self.hits.get(WHOLE_CLUSTER, HitCount()).low


@_forbid_extra_fields
@dataclass(frozen=True, slots=True)
class PlacementState:
    """The state of a placement between runs. Each placement uses only some of the fields.

    Attributes:
        count: number of choices that RoundRobinBrokerSelector has made.
        brokers: the brokers that RoundRobinBrokerSelector chooses in turn, in the order in which they are chosen.
        averages: moving average of each broker's usage, for LeastResourceUsageWithWeight; 1 is 100 percent.
    """

    count: int = 0
    brokers: tuple[str, ...] = ()
    averages: Mapping[str, float] = field(default_factory=dict)


@_forbid_extra_fields
@dataclass(frozen=True, slots=True)
class StrategyState:
    shedder: ShedderState = field(default_factory=ShedderState)
    placement: PlacementState = field(default_factory=PlacementState)

    @classmethod
    def parse(cls, hits: Mapping[str, HitCount], document: Mapping[str, Any]) -> Self:
        """Return the state from the stored hits of brokers and the stored `DecisionState.strategy_state`.

        If `document` is damaged, all that it holds starts again.
        """
        try:
            stored = TypeAdapter(cls).validate_python(document)
        except ValidationError as error:
            found = error.errors()[0]
            where = ".".join(map(str, ("strategy_state", *found["loc"])))
            _log.warning("the strategy's stored state is damaged and not used: %s: %s", where, found["msg"])
            stored = cls()
        return stored.with_hits({**hits, **stored.shedder.hits})

    def with_hits(self, hits: Mapping[str, HitCount]) -> Self:
        return replace(self, shedder=replace(self.shedder, hits=hits))

    def document(self) -> dict[str, Any]:
        """Return the document to store as `DecisionState.strategy_state`; brokers' hits have their own field."""
        of_cluster = {key: hit for key, hit in self.shedder.hits.items() if key == WHOLE_CLUSTER}
        stored = self.with_hits(of_cluster)
        document: dict[str, Any] = TypeAdapter(type(self)).dump_python(stored, mode="json", exclude_defaults=True)
        return document


MIN_AGE_SHARE = 0.9
"""An unchanged value counts as a new sample after this share of the host interval: runs may start early."""

COUNTING_REASONS = (Reason.COUNTED, Reason.GAP)
"""A sample with one of these reasons adds hits and updates the bundles' moving averages."""


@dataclass(frozen=True, slots=True)
class HitRules:
    """Rules for the hit counters in one run.

    Attributes:
        counts: True if the sample adds hits and updates the bundles' moving averages.
        reason: `counted`, `gap`, `too_soon`, `forced` or `other_thresholds`.
        clear: True if all hits are reset before the run.
        samples: values that caused a hit less than a host interval ago, by broker.
    """

    counts: bool
    reason: Reason
    clear: bool = False
    samples: Mapping[str, float] = field(default_factory=dict)

    @property
    def judges_sample(self) -> bool:
        return self.counts or self.reason == Reason.OTHER_THRESHOLDS

    def are_repeated(self, scores: Mapping[str, float]) -> bool:
        """Return whether the values equal those of recent hits, ignoring brokers without a recent hit."""
        known = [self.samples[broker] == value for broker, value in scores.items() if broker in self.samples]
        return bool(known) and all(known)


def decide_hit_rules(
    state: DecisionState,
    settings: Settings,
    now: datetime,
    *,
    is_forced: bool = False,
    changes_thresholds: bool = False,
    has_same_hits: bool = False,
) -> HitRules:
    """Return the rules for the hit counters in a run. Forced runs, or with own thresholds, add none.

    If `has_same_hits`, the strategy that wrote the state counts in the same way, so a change of strategy keeps
    the hits.
    """
    changed = bool(state.strategy) and state.strategy != settings.strategy and not has_same_hits
    since = (now - state.counted_at).total_seconds() if state.counted_at else None
    longest = settings.state_max_gap * settings.interval_seconds
    # A sample from the future comes from a clock that ran ahead; waiting for that time would freeze the counters.
    apart = since is not None and not 0 <= since <= longest
    gap = apart and bool(state.hits or state.split_hits or state.strategy_state.get("shedder", {}).get("hits"))
    if is_forced:
        reason = Reason.FORCED
    elif since is not None and 0 <= since < settings.interval_seconds / 2:
        reason = Reason.TOO_SOON
    elif changes_thresholds:
        reason = Reason.OTHER_THRESHOLDS
    else:
        reason = Reason.GAP if changed or gap else Reason.COUNTED
    return HitRules(
        counts=reason in COUNTING_REASONS,
        reason=reason,
        clear=changed or gap,
        samples={} if changed else state.recent_hit_values(settings, now),
    )


def next_hit_samples(
    state: DecisionState, hit_rules: HitRules, used_scores: Mapping[str, float], now: datetime
) -> dict[str, HitSample]:
    before = {broker: state.samples[broker] for broker in hit_rules.samples}
    return dict(sorted((before | new_hit_samples(used_scores, now)).items()))


def new_hit_samples(scores: Mapping[str, float], now: datetime) -> dict[str, HitSample]:
    return {broker: HitSample(value, now) for broker, value in sorted(scores.items())}


def accept_state(stored: DecisionState, plan_state: DecisionState) -> DecisionState | None:
    """Return the document to store for a plan; None if the store already has this document.

    The `seq` of `plan_state` is one higher than that of the state on which the plan is based. Raises
    StateError `stale_plan` if the state has changed since.
    """
    if stored.plan_id == plan_state.plan_id:
        return None
    if plan_state.seq != stored.seq + 1:
        raise StateError(
            Reason.STALE_PLAN,
            f"plan {plan_state.plan_id} was made for state {plan_state.seq - 1}, but the stored state is {stored.seq} "
            f"(of plan {stored.plan_id or 'none'}); nothing was changed",
        )
    return plan_state
