"""What a shedder sees of a cluster and what it answers: the seam between strategies and the rest."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Self

from pulsar_rebalancer.names import is_heartbeat
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.state.counting import Counting

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pulsar_rebalancer.config.settings import Settings
    from pulsar_rebalancer.strategies.bundle_columns import Bundles
    from pulsar_rebalancer.strategies.kept import ShedderState

COUNTED = Counting(counts=True, reason=Reason.COUNTED)


class Measure(StrEnum):
    """What traffic is measured in; the value is a column of the tables."""

    RATE = "msg_rate"  # msg/s
    THROUGHPUT = "msg_throughput"  # bytes/s


class ResourceUsage(NamedTuple):
    """One resource of a broker in its own unit (`run.tables`); None or -1 where there is no measurement or no limit."""

    usage: float | None = None
    limit: float | None = None


@dataclass(frozen=True, slots=True)
class BrokerSample:
    """One broker as the run sees it.

    Attributes:
        broker: brokerId, host:port.
        left_out: why it is neither source nor destination, or None. A broker without a report is left out.
        resources: usage by resource (`run.tables.RESOURCES`).
        msg_rate_in: msg/s; likewise `msg_rate_out`.
        msg_throughput_in: bytes/s; likewise `msg_throughput_out`.
        topics: how many it reports.
        bundles: how many it reports.
        version: of Pulsar.
        reserved_by: the isolation policy that reserves it for its namespaces.
        load_average: the broker's own moving average of its load, 1 is 100 percent; extensible manager alone.
        throughput_average: the broker's own moving average of its throughput, bytes/s; extensible manager alone.
        report_age_seconds: age of its report.
        weighted: what `scoring.weighted_usage` answers with the sample's settings, by the resources that it looks at;
            empty unless it was computed for all brokers at once.
    """

    broker: str
    left_out: Reason | None = None
    resources: Mapping[str, ResourceUsage] = field(default_factory=dict)
    msg_rate_in: float = 0.0
    msg_rate_out: float = 0.0
    msg_throughput_in: float = 0.0
    msg_throughput_out: float = 0.0
    topics: int = 0
    bundles: int = 0
    version: str | None = None
    reserved_by: str | None = None
    load_average: float | None = None
    throughput_average: float | None = None
    report_age_seconds: float | None = None
    weighted: Mapping[Sequence[str], float] = field(default_factory=dict)

    def traffic(self, measure: Measure) -> float:
        """Return what it carries now, in plus out."""
        if measure is Measure.RATE:
            return self.msg_rate_in + self.msg_rate_out
        return self.msg_throughput_in + self.msg_throughput_out


class BundleSample(NamedTuple):
    """One bundle on the broker that reports it; there may be a million, and a tuple is made in a fifth of the time.

    Attributes:
        broker: brokerId.
        bundle: `tenant/namespace/0x…_0x…`.
        msg_rate_in: what the broker reports now, msg/s; likewise `msg_rate_out`.
        msg_throughput_in: what the broker reports now, bytes/s; likewise `msg_throughput_out`.
        topics: how many; likewise `producers` and `consumers`.
        cache_size: bytes.
        top_rank: its place in the broker's own list of top bundles; extensible manager alone.
        policy: the kind of policy that its namespace is under, or None.
        msg_rate: short-term mean of in plus out, msg/s.
        msg_throughput: short-term mean of in plus out, bytes/s.
        long_term_msg_rate: long-term mean of in plus out, msg/s; None where none is kept yet.
        reason: why it must stay whatever its traffic, or None.
    """

    broker: str
    bundle: str
    msg_rate_in: float = 0.0
    msg_rate_out: float = 0.0
    msg_throughput_in: float = 0.0
    msg_throughput_out: float = 0.0
    topics: int = 0
    producers: int = 0
    consumers: int = 0
    cache_size: int = 0
    top_rank: int | None = None
    policy: str | None = None
    msg_rate: float = 0.0
    msg_throughput: float = 0.0
    long_term_msg_rate: float | None = None
    reason: Reason | None = None

    def mean(self, measure: Measure) -> float:
        """Return its short-term mean."""
        return self.msg_rate if measure is Measure.RATE else self.msg_throughput

    @property
    def present_msg_rate(self) -> float:
        """Return what its broker reports now, msg/s in plus out."""
        return self.msg_rate_in + self.msg_rate_out

    @property
    def present_msg_throughput(self) -> float:
        """Return what its broker reports now, bytes/s in plus out."""
        return self.msg_throughput_in + self.msg_throughput_out


def allow_all(bundle: str, source: str, destination: str) -> Reason | None:
    """Return None: no policy forbids anything."""
    return None


@dataclass(frozen=True)
class ClusterSample:
    """One sample of one cluster, and how the run is to judge it.

    Attributes:
        brokers: all that the cluster lists.
        bundles: all that they report.
        settings: effective settings.
        counting: how the sample counts.
        forced: the run acts without waiting for hits.
        force_threshold: with AvgShedder the gap in points of score from which a forced run acts; None for any other.
        unloaded_brokers: seconds from a broker's last unload to its report, by broker; negative if the report is older.
        forbids: why a bundle must not go from a source to a destination, or None.
    """

    brokers: Sequence[BrokerSample]
    bundles: Bundles
    settings: Settings
    counting: Counting = COUNTED
    forced: bool = False
    force_threshold: float | None = None
    unloaded_brokers: Mapping[str, float] = field(default_factory=dict)
    forbids: Callable[[str, str, str], Reason | None] = allow_all

    @cached_property
    def taking_part(self) -> list[BrokerSample]:
        """Return the brokers that are not left out, by name: ties are broken by it."""
        return sorted((broker for broker in self.brokers if broker.left_out is None), key=lambda broker: broker.broker)

    def shed_candidates(self, broker: str) -> list[BundleSample]:
        """Return the bundles that a broker reports, heartbeat namespaces left out, by name."""
        return [bundle for bundle in self.bundles.of(broker) if not is_heartbeat(bundle.bundle)]


@dataclass(frozen=True, slots=True)
class Decision:
    """What became of one pair, one broker, or one broker left out: a row of the decisions table (see there)."""

    source: str
    reason: Reason
    pair: int | None = None
    pool: str | None = None
    destination: str | None = None
    source_score: float | None = None
    destination_score: float | None = None
    gap: float | None = None
    source_high_before: int | None = None
    source_low_before: int | None = None
    destination_high_before: int | None = None
    destination_low_before: int | None = None
    source_high: int | None = None
    source_low: int | None = None
    destination_high: int | None = None
    destination_low: int | None = None
    high_hits: int | None = None
    low_hits: int | None = None
    value: float | None = None
    bound: float | None = None
    fired: bool = False
    explanation: str | None = None
    measure: Measure | None = None
    target: float | None = None
    bundles_taken: int = 0
    traffic_taken: float = 0.0


class CandidateMove(NamedTuple):
    """One candidate bundle of a decision that fired, taken or passed over: a row of the moves table (see there).

    Attributes:
        pair: number of the decision.
        rank: its position in the walk over the source's bundles.
        traffic: what the walk compared, as `measure` says.
        reason: `taken`, or why it is passed over.
        destination: the planned broker; None when placement is to name it.
        wave: None until caps were applied, and when it is not taken.
    """

    pair: int
    source: str
    destination: str | None
    bundle: str
    rank: int
    measure: Measure
    traffic: float
    msg_rate: float
    msg_throughput: float
    reason: Reason
    wave: int | None = None

    @property
    def taken(self) -> bool:
        """Return whether the bundle is to move."""
        return self.reason is Reason.TAKEN

    @classmethod
    def of(
        cls,
        bundle: BundleSample,
        *,
        pair: int,
        rank: int,
        measure: Measure,
        reason: Reason,
        destination: str | None = None,
        traffic: float | None = None,
    ) -> Self:
        """Make a candidate of a bundle; without `traffic` its short-term mean was compared."""
        compared = bundle.mean(measure) if traffic is None else traffic
        of_bundle = bundle.msg_rate, bundle.msg_throughput
        return cls(pair, bundle.broker, destination, bundle.bundle, rank, measure, compared, *of_bundle, reason)


class SheddingResult(NamedTuple):
    """What one run of a shedder answers.

    Attributes:
        decisions: one per broker or pair looked at, then those left out. They say why bundles are to leave; what
            became of that is added once policies and caps were asked (`explain.complete`).
        moves: every candidate bundle of what fired, `wave` still None.
        kept: what the strategy keeps for the next run.
        sentence: what was found, for the terminal and the summary.
        outermost: the brokers whose figures decide whether the sample is new, where hits are those of the cluster.
    """

    decisions: list[Decision]
    moves: list[CandidateMove]
    kept: ShedderState
    sentence: str
    outermost: tuple[str, ...] = ()


def left_out_decisions(sample: ClusterSample) -> list[Decision]:
    """Return the decisions on the brokers that are left out, by name."""
    left_out = [(broker.broker, broker.left_out) for broker in sample.brokers if broker.left_out is not None]
    return [Decision(name, reason) for name, reason in sorted(left_out)]
