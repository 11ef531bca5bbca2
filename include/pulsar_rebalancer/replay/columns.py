"""Bundles in one minute as numpy columns; a broker's bundles become objects only when a strategy reads them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.names import is_heartbeat, namespace_of
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.bundle_columns import LONG_TERM_SAMPLES, MAX_SAMPLES, Bundles, BundleSample, mean_with_sample
from pulsar_rebalancer.run.tables import TRAFFIC, BrokerSample
from pulsar_rebalancer.state import LearnedValues
from pulsar_rebalancer.strategies.learning import BundleCosts, BundleSums, CostCorrection, LearningResult, learn
from pulsar_rebalancer.strategies.sample import RecentMove
from pulsar_rebalancer.strategies.scoring import UNIT_DIVISORS, learned_before_sample, measure_of

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

NOBODY = -1
"""Owner index of a bundle that no broker reports."""

LOADS = (*TRAFFIC, "topics")
"""The load values that a bundle takes along when it moves to another broker; `run.tables` has the units."""

DEFAULT_LONG_TERM_RATE = 50.0
"""Long-term msg/s of a bundle that no broker has reported yet (NamespaceBundleStats' default)."""


class Roster:
    """The names in a cluster and their positions; all code that works on the same columns shares it."""

    def __init__(self, brokers: Sequence[str], bundles: Sequence[str]) -> None:
        self.brokers = tuple(brokers)
        self.bundles = tuple(bundles)
        self.broker_at = {name: number for number, name in enumerate(brokers)}
        self.by_name: Ints = np.argsort(np.array(brokers, dtype=str))
        self.bundle_at = {name: number for number, name in enumerate(bundles)}
        self.namespace_at: dict[str, int] = {}
        of_bundle = [self.namespace_at.setdefault(namespace_of(name), len(self.namespace_at)) for name in bundles]
        self.namespaces = tuple(self.namespace_at)
        self.namespace: Ints = np.array(of_bundle, dtype=np.int64)
        brokers_own = np.array([is_heartbeat(f"{name}/") for name in self.namespaces], dtype=bool)
        self.heartbeat: Flags = brokers_own[self.namespace] if of_bundle else np.zeros(0, dtype=bool)


class MeanColumns:
    """Short-term and long-term moving averages, computed as in `run.bundle_columns.update_means`."""

    def __init__(self, bundle_count: int) -> None:
        self.short: Floats = np.zeros((len(TRAFFIC), bundle_count))
        self.long_term_msg_rate: Floats = np.full(bundle_count, DEFAULT_LONG_TERM_RATE)
        self._samples: Ints = np.zeros(bundle_count, dtype=np.int64)

    def update(self, present_bundles: Flags, sample: Floats, unchanged_bundles: Ints | None = None) -> None:
        """Add a sample; the means of bundles not in `present_bundles` are dropped.

        `sample` starts with a row for each of `run.tables.TRAFFIC`. `unchanged_bundles` are positions of bundles whose
        values were left out or whose broker has no report.
        """
        sample = sample[: len(TRAFFIC)]
        counted = present_bundles.copy()
        if unchanged_bundles is not None:
            counted[unchanged_bundles] = False
        samples = np.minimum(self._samples + 1, LONG_TERM_SAMPLES)
        short = np.minimum(samples, MAX_SAMPLES)
        kept = np.where(present_bundles, self.short, 0.0)
        self.short = np.where(counted, mean_with_sample(self.short, sample, short), kept)
        long_term = mean_with_sample(self.long_term_msg_rate, sample[0] + sample[1], samples)
        kept = np.where(present_bundles, self.long_term_msg_rate, DEFAULT_LONG_TERM_RATE)
        self.long_term_msg_rate = np.where(counted, long_term, kept)
        self._samples = np.where(counted, samples, np.where(present_bundles, self._samples, 0))


class ColumnarBundles(Bundles):
    """The bundles of a cluster, as strategies read them.

    Args:
        owner: position of the broker that reports each bundle; `NOBODY` if no broker reports it.
        current: the bundles' current load, a row for each of `LOADS`.
        reasons: why a bundle must stay, by position.
        policy_kind: returns the kind of policy for a namespace; None if there is none.
        loads: the bundles' `load`; None if costs are not learned.
    """

    def __init__(
        self,
        roster: Roster,
        owner: Ints,
        current: Floats,
        means: MeanColumns,
        reasons: Mapping[int, Reason],
        policy_kind: Callable[[str], str | None],
        loads: Floats | None = None,
    ) -> None:
        self._roster = roster
        self._owner = owner
        self._loads = loads
        self._present = current
        self._means = means
        self._reasons = reasons
        self._kind = policy_kind

    def of_broker(self, broker: str, limit: int | None = None) -> list[BundleSample]:
        number = self._roster.broker_at.get(broker)
        if number is None:
            return []
        bundles = np.flatnonzero(self._owner == number)
        if limit is not None and self._loads is not None:
            bundles = bundles[~np.isin(bundles, list(self._reasons))]
            bundles = bundles[np.argsort(-self._loads[bundles], kind="stable")[:limit]]
        return self._bundle_samples(bundles)

    def brokers_with_bundle_above(self, load: float) -> set[str]:
        if self._loads is None:
            return set()
        may_move = (self._owner != NOBODY) & (self._loads > load)
        may_move[list(self._reasons)] = False
        return {self._roster.brokers[number] for number in np.unique(self._owner[may_move]).tolist()}

    def stay_reasons_of_bundles(self, names: Collection[str]) -> dict[tuple[str, str], Reason | None]:
        roster = self._roster
        numbers = [number for name in names if (number := roster.bundle_at.get(name)) is not None]
        owners = zip(numbers, self._owner[numbers].tolist(), strict=True) if numbers else ()
        return {
            (roster.brokers[owner], roster.bundles[number]): self._reasons.get(number)
            for number, owner in owners
            if owner != NOBODY
        }

    def bundle_counts(self, namespaces: Collection[str] | None = None) -> dict[str, Counter[str]]:
        names, owned = self._roster, self._owner != NOBODY
        if namespaces is not None:
            wanted = [names.namespace_at[name] for name in namespaces if name in names.namespace_at]
            if not wanted:
                return {}
            owned &= np.isin(names.namespace, wanted)
        width = len(names.brokers)
        keys, counts = np.unique(names.namespace[owned] * width + self._owner[owned], return_counts=True)
        found: dict[str, Counter[str]] = {}
        for key, count in zip(keys.tolist(), counts.tolist(), strict=True):
            found.setdefault(names.namespaces[key // width], Counter())[names.brokers[key % width]] = count
        return found

    def long_term_msg_rates(self) -> dict[str, float]:
        """Return each broker's long-term msg/s, without heartbeat namespaces."""
        owned = np.flatnonzero(self._owner != NOBODY)
        count = len(self._roster.brokers)
        means = np.where(self._roster.heartbeat[owned], 0.0, self._means.long_term_msg_rate[owned])
        rates = np.bincount(self._owner[owned], weights=means, minlength=count)
        has = np.bincount(self._owner[owned], minlength=count)
        return {name: float(rates[i]) for i, name in enumerate(self._roster.brokers) if has[i]}

    def _bundle_samples(self, bundle_numbers: Ints) -> list[BundleSample]:
        roster, present, means = self._roster, self._present[:, bundle_numbers], self._means
        bundles = [roster.bundles[number] for number in bundle_numbers.tolist()]
        values: dict[str, Iterable[Any]] = {
            "broker": [roster.brokers[owner] for owner in self._owner[bundle_numbers].tolist()],
            "bundle": bundles,
            **dict(zip(TRAFFIC, present.tolist(), strict=False)),
            "topics": present[len(TRAFFIC)].astype(np.int64).tolist(),
            "policy": map(self._kind, map(namespace_of, bundles)),
            "msg_rate": (means.short[0, bundle_numbers] + means.short[1, bundle_numbers]).tolist(),
            "msg_throughput": (means.short[2, bundle_numbers] + means.short[3, bundle_numbers]).tolist(),
            "long_term_msg_rate": means.long_term_msg_rate[bundle_numbers].tolist(),
            "reason": map(self._reasons.get, bundle_numbers.tolist()),
        }
        if self._loads is not None:
            values["load"] = self._loads[bundle_numbers].tolist()
        unknown = {name: repeat(value) for name, value in BundleSample._field_defaults.items()}
        filled = unknown | values
        return list(map(BundleSample, *(filled[name] for name in BundleSample._fields)))


class CostColumns:
    """Averages and costs of all bundles, by the roster's positions."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self.costs = BundleCosts.all_unknown(len(roster.bundles))
        self._counted_at = math.inf

    def learn_from_sample(
        self,
        learned: LearnedValues,
        owner: Ints,
        load: Floats,
        *,
        brokers: Sequence[BrokerSample],
        recent_moves: Collection[RecentMove],
        settings: Settings,
        minute: float,
        is_counted: bool,
    ) -> LearningResult:
        """Learn from a sample, and return the values known after it.

        Args:
            learned: values known after the last counted sample.
            owner: position of each bundle's broker; `NOBODY` for a bundle that is not in the sample.
            load: the bundles' load; the first rows are `run.tables.TRAFFIC`.
            is_counted: False to return what is learned only if nothing was known.
        """
        learned = learned_before_sample(learned, brokers, settings, is_counted=is_counted)
        known = self.costs if learned.samples else BundleCosts.all_unknown(len(owner))
        measure = measure_of(learned.bottleneck)
        inward, outward = (load[TRAFFIC.index(f"{measure}_{way}")] for way in ("in", "out"))
        rate = np.where(owner == NOBODY, np.nan, (inward + outward) / UNIT_DIVISORS[measure])
        minutes = max(settings.interval_seconds / 60, minute - self._counted_at)
        self.costs, change = known.with_sample(rate, minutes, is_counted=is_counted)
        sums = self.sums_by_broker(owner, self.costs.summands(rate, change))
        if learned.samples and not is_counted:
            return LearningResult(learned, sums)
        self._counted_at = minute if is_counted else self._counted_at
        learning = learn(learned, brokers, sums, recent_moves, settings, minutes)
        of_broker = [learning.correction_by_broker.get(name, CostCorrection()) for name in self._roster.brokers]
        # The last row is that of NOBODY.
        gain, shrink = np.array([*of_broker, CostCorrection()])[owner].T
        self.costs = self.costs.with_correction(change, gain, shrink)
        return learning

    def sums_by_broker(self, owner: Ints, summands: Sequence[Floats]) -> dict[str, BundleSums]:
        owned, names = owner != NOBODY, self._roster.brokers
        at = owner[owned]
        added = [np.bincount(at, weights=column[owned], minlength=len(names)).tolist() for column in summands]
        return {names[i]: BundleSums(*(column[i] for column in added)) for i in np.unique(at).tolist()}
