"""A shedder with its placement over a cluster, minute by minute, as the rebalancer's runs would do it.

What the DAG keeps between runs is kept here: hits and averages, means of bundles, and which bundles moved within the
grace period. Nothing here knows where a minute comes from: it may be simulated or recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pulsar_rebalancer.config.enums import Strategy
from pulsar_rebalancer.names import namespace_of
from pulsar_rebalancer.policies.cluster_policies import Policies
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.replay.columns import NOBODY, ColumnBundles, MeanColumns
from pulsar_rebalancer.run.tables import RESOURCES
from pulsar_rebalancer.state.counting import PUNCTUALITY
from pulsar_rebalancer.strategies import caps
from pulsar_rebalancer.strategies.hits import used_samples
from pulsar_rebalancer.strategies.kept import KeptState
from pulsar_rebalancer.strategies.pipeline import RunContext, decide
from pulsar_rebalancer.strategies.placement.policy_filter import policy_set
from pulsar_rebalancer.strategies.placement.registry import selector
from pulsar_rebalancer.strategies.placement.selector import choose, overloaded
from pulsar_rebalancer.strategies.sample import COUNTED, BrokerSample, BundleSample, ClusterSample, ResourceUsage
from pulsar_rebalancer.strategies.scoring import SCORED, percents, weighted_usages
from pulsar_rebalancer.strategies.shedders.registry import SHEDDERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pulsar_rebalancer.config.settings import Settings
    from pulsar_rebalancer.replay.columns import Flags, Floats, Ints
    from pulsar_rebalancer.state.counting import Counting
    from pulsar_rebalancer.strategies.placement.selector import Selector
    from pulsar_rebalancer.strategies.sample import CandidateMove
    from pulsar_rebalancer.strategies.shedders.registry import Shedder

MINUTE = 60.0

MEASURED = ("cpu", "bandwidth_in", "bandwidth_out")
"""Resources of a simulated broker."""


@dataclass(frozen=True)
class Minute:
    """What is known of a cluster at the end of a minute.

    Attributes:
        number: of the minute.
        registered: brokers that the cluster lists.
        reported: brokers whose report came and can be judged.
        age: seconds of each report.
        usage: a row for each of `resources`, an entry for each broker, in the unit of the limits; NaN if not measured.
        limits: likewise.
        traffic: a row for each figure of `run.tables.TRAFFIC`, an entry for each broker.
        owner: index of each bundle's broker, or `NOBODY`.
        bundles: a row for each figure of `run.tables.TRAFFIC`, an entry for each bundle.
        resources: names of what is measured.
        reserved: the isolation policy that reserves a broker, by its index.
        counting: how the sample counts, but for figures that are repeated.
        stays: why a bundle must stay this time, by its index.
    """

    number: int
    registered: Flags
    reported: Flags
    age: Floats
    usage: Floats
    limits: Floats
    traffic: Floats
    owner: Ints
    bundles: Floats
    resources: tuple[str, ...] = MEASURED
    reserved: Mapping[int, str] = field(default_factory=dict)
    counting: Counting = COUNTED
    stays: Mapping[int, Reason] = field(default_factory=dict)

    @cached_property
    def percents(self) -> Floats:
        """Return what each broker uses, percent of its limits, a row for each of `resources`."""
        return percents(self.usage, self.limits)


class Move(NamedTuple):
    """A bundle and the broker that it is to go to, by index."""

    bundle: int
    destination: int


class Balancer:
    """One strategy over one cluster.

    Args:
        brokers: their names, ascending.
        bundles: their names, ascending.
        settings: strategy, placement, thresholds.
        shedder: takes the place of the settings' strategy.
        seed: decides where placement draws.
        means: of the bundles, kept up to date by whoever gives them; else they are kept here.
        stays: why a bundle never moves, by its index.
        policies: which brokers take whose bundles.
    """

    def __init__(
        self,
        brokers: Sequence[str],
        bundles: Sequence[str],
        settings: Settings,
        shedder: Shedder | None = None,
        seed: int = 1,
        means: MeanColumns | None = None,
        stays: Mapping[int, Reason] | None = None,
        policies: Policies | None = None,
    ) -> None:
        self._brokers = tuple(brokers)
        self._bundles = tuple(bundles)
        self._broker_index = {name: number for number, name in enumerate(brokers)}
        self._bundle_index = {name: number for number, name in enumerate(bundles)}
        self._namespaces = frozenset(map(namespace_of, bundles))
        self._settings = settings
        self._shedder = shedder
        self._seed = seed
        self._kept = KeptState()
        self._means = means or MeanColumns(len(bundles))
        self._keeps_means = means is None
        self._stays = dict(stays or {})
        self._policies = policies or Policies()
        self._samples: dict[str, tuple[float, int]] = {}
        self._excluded = dict.fromkeys(settings.excluded_brokers, Reason.BROKER_EXCLUDED)
        self._moved: dict[int, int] = {}
        self._unloaded_brokers: dict[str, int] = {}
        self._placing = _Placing(self._empty(), self._kept, "")

    def decide(self, minute: Minute) -> list[Move]:
        """Return what the strategy moves after a minute."""
        self._keep_placement()
        seen = minute.reported[minute.owner] & (minute.owner != NOBODY)
        if self._keeps_means:
            self._means.update(seen, minute.bundles)
        grace = self._settings.grace_period_minutes
        self._moved = {bundle: at for bundle, at in self._moved.items() if minute.number - at < grace}
        columns = self._columns(minute, seen)
        counting = self._counting(minute)
        sample = ClusterSample(self._broker_samples(minute), columns, self._settings, counting=counting)
        moves = self._shed(minute, sample)
        self._placing = _Placing(sample, self._kept, f"{self._seed}/{minute.number}")
        found = [Move(self._bundle_index[move.bundle], self._destination(move)) for move in moves]
        self._moved.update({move.bundle: minute.number for move in found})
        self._unloaded_brokers.update({move.source: minute.number for move in moves})
        return found

    def place(self, bundle: int, candidates: Sequence[int]) -> int | None:
        """Return where placement puts a bundle that has no owner, as the load manager's leader does it.

        (ModularLoadManagerImpl.selectBroker.) It knows of brokers what the last reports say.

        Args:
            bundle: its index.
            candidates: indices of brokers.
        """
        name, known = self._bundles[bundle], self._placing.known
        names = [self._brokers[number] for number in candidates if self._brokers[number] in known]
        names = policy_set(self._policies, namespace_of(name), names)
        chosen = self._placing.broker(name, float(self._means.long_term_msg_rate[bundle]), names)
        return None if chosen is None else self._broker_index[chosen]

    def _shed(self, minute: Minute, sample: ClusterSample) -> list[CandidateMove]:
        if self._shedder is None and self._settings.strategy is Strategy.AVG:
            shed = SHEDDERS[Strategy.AVG](sample, self._kept.shedder)
            self._kept = replace(self._kept, shedder=shed.kept)
            if self._repeats:
                self._note(minute, used_samples(shed.decisions, sample.counting))
            moves = caps.apply(shed.moves, self._settings, {})
        else:
            since = {name: (minute.number - at) * MINUTE for name, at in self._unloaded_brokers.items()}
            context = RunContext(
                self._settings,
                sample.counting,
                self._kept,
                policies=self._policies,
                unloaded_brokers=since,
                seed=f"{self._seed}/{minute.number}",
                shedder=self._shedder,
            )
            decision = decide(context, sample.brokers, sample.bundles)
            self._kept, moves = decision.kept, decision.moves
            self._note(minute, decision.samples)
        return [move for move in moves if move.taken]

    @property
    def _repeats(self) -> bool:
        """Return whether brokers measure themselves less often than once a minute: then a figure may be an old one."""
        return self._settings.host_usage_interval_minutes * PUNCTUALITY > 1

    def _counting(self, minute: Minute) -> Counting:
        oldest = minute.number - self._settings.host_usage_interval_minutes * PUNCTUALITY
        self._samples = {broker: seen for broker, seen in self._samples.items() if seen[1] > oldest}
        young = {broker: figure for broker, (figure, _) in self._samples.items()}
        return replace(minute.counting, samples=young) if young else minute.counting

    def _note(self, minute: Minute, used: Mapping[str, float]) -> None:
        """Keep the figures that gave a hit, as `state.counting.samples_after` does."""
        if self._repeats:
            self._samples.update({broker: (figure, minute.number) for broker, figure in used.items()})

    def _destination(self, move: CandidateMove) -> int:
        if move.destination is None:
            raise ValueError(f"{move.bundle} was taken and has no destination")
        return self._broker_index[move.destination]

    def _keep_placement(self) -> None:
        if self._placing.used:
            self._kept = replace(self._kept, placement=self._placing.chooser.kept())

    def _broker_samples(self, minute: Minute) -> list[BrokerSample]:
        held = np.bincount(minute.owner[minute.owner != NOBODY], minlength=len(self._brokers)).tolist()
        scored, of_all = (
            weighted_usages(minute.percents, minute.resources, self._settings, looked_at).tolist()
            for looked_at in (SCORED, RESOURCES)
        )
        traffic, age, reported = minute.traffic.T.tolist(), minute.age.tolist(), minute.reported.tolist()
        return [
            BrokerSample(
                self._brokers[i],
                self._excluded.get(self._brokers[i], None if reported[i] else Reason.BROKER_QUARANTINED),
                _Resources(minute, i),
                msg_rate_in=rate_in,
                msg_rate_out=rate_out,
                msg_throughput_in=throughput_in,
                msg_throughput_out=throughput_out,
                topics=held[i],
                bundles=held[i],
                reserved_by=minute.reserved.get(i),
                report_age_seconds=age[i],
                weighted={SCORED: scored[i], RESOURCES: of_all[i]},
            )
            for i in np.flatnonzero(minute.registered).tolist()
            for rate_in, rate_out, throughput_in, throughput_out in (traffic[i],)
        ]

    def _columns(self, minute: Minute, seen: Flags) -> ColumnBundles:
        return ColumnBundles(
            self._bundles,
            self._bundle_index,
            self._namespaces,
            self._brokers,
            np.where(seen, minute.owner, NOBODY),
            minute.bundles,
            self._means,
            dict.fromkeys(self._moved, Reason.RECENTLY_UNLOADED) | self._stays | dict(minute.stays),
        )

    def _empty(self) -> ClusterSample:
        """Return what a leader knows that has just been elected: the brokers, and nothing of them."""
        owner = np.full(len(self._bundles), NOBODY)
        nothing = np.zeros((4, len(self._bundles)))
        bundles = ColumnBundles(
            self._bundles,
            self._bundle_index,
            self._namespaces,
            self._brokers,
            owner,
            nothing,
            self._means,
            reasons={},
        )
        return ClusterSample([BrokerSample(name) for name in self._brokers], bundles, self._settings)


class _Resources(Mapping[str, ResourceUsage]):
    """The resources of one broker: few strategies ask for them once they have its weighted usage."""

    __slots__ = ("_broker", "_minute")

    def __init__(self, minute: Minute, broker: int) -> None:
        self._minute = minute
        self._broker = broker

    def __getitem__(self, name: str) -> ResourceUsage:
        try:
            row = self._minute.resources.index(name)
        except ValueError:
            raise KeyError(name) from None
        usage, limit = (float(column[row, self._broker]) for column in (self._minute.usage, self._minute.limits))
        return ResourceUsage(None if np.isnan(usage) else usage, None if np.isnan(limit) else limit)

    def __iter__(self) -> Iterator[str]:
        return iter(self._minute.resources)

    def __len__(self) -> int:
        return len(self._minute.resources)


@dataclass
class _Placing:
    """The placements between two reports.

    Attributes:
        used: whether any bundle was placed.
    """

    sample: ClusterSample
    kept: KeptState
    seed: str
    used: bool = False

    @cached_property
    def chooser(self) -> Selector:
        return selector(self.sample, self.kept.placement)

    @cached_property
    def known(self) -> set[str]:
        return {broker.broker for broker in self.sample.taking_part}

    @cached_property
    def _hot(self) -> set[str]:
        return overloaded(self.sample)

    def broker(self, bundle: str, rate: float, candidates: Sequence[str]) -> str | None:
        self.used = True
        chosen = choose(self.seed, bundle, self.chooser.eligible(bundle, candidates))
        if chosen in self._hot:
            chosen = choose(self.seed, bundle, self.chooser.eligible(bundle, candidates)) or chosen
        if chosen is not None:
            self.chooser.placed(BundleSample("", bundle, long_term_msg_rate=rate), chosen)
        return chosen
