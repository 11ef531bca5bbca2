"""LeastResourceUsageWithWeight: choose any broker whose usage is clearly below the candidates' average."""

from __future__ import annotations

from itertools import repeat
from math import isnan
from typing import TYPE_CHECKING, Any

import numpy as np

from pulsar_rebalancer.strategies.kept import PlacementState
from pulsar_rebalancer.strategies.placement.others import Others
from pulsar_rebalancer.strategies.placement.selector import PerCandidates, Stateless, usages

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from pulsar_rebalancer.run.bundle_columns import BundleSample
    from pulsar_rebalancer.run.tables import BrokerSample
    from pulsar_rebalancer.strategies.sample import ClusterSample

    Floats = npt.NDArray[np.float64]


class LeastResourceUsageWithWeight:
    """The modular load manager's version, which computes moving averages itself.

    As in org.apache.pulsar.broker.loadbalance.impl.LeastResourceUsageWithWeight.
    """

    def __init__(self, sample: ClusterSample, kept: PlacementState) -> None:
        usage = usages(sample)
        self._row_of = {broker: row for row, broker in enumerate(usage)}
        self._usage = np.fromiter(usage.values(), float)
        self._history = sample.settings.history_percentage
        self._difference = sample.settings.usage_difference / 100
        # An idle broker's past is meaningless: each of its samples counts in full.
        self._in_full = np.array([_is_idle(broker) for broker in sample.taking_part], bool)
        self._averages = np.array([kept.averages.get(broker, np.nan) for broker in usage], float)
        listed = {broker.broker for broker in sample.brokers}
        # Drop averages of brokers that are gone, as Pulsar does when the list of active brokers changes.
        self._others = {b: average for b, average in kept.averages.items() if b in listed and b not in usage}
        self._rows = PerCandidates(lambda brokers: np.array([self._row_of[broker] for broker in brokers], int))
        self._eligible = PerCandidates(self._of)

    def eligible(self, bundle: str, candidates: Sequence[str]) -> Sequence[str]:
        """Update the candidates' moving averages, and return the eligible candidates (see `below_average`)."""
        return self._step(candidates)[0] if isinstance(candidates, Others) else next(self._eligible.of(candidates))

    def _of(self, candidates: Sequence[str]) -> Iterator[Sequence[str]]:
        """Yield the eligible candidates once for each bundle to place."""
        while True:
            eligible, has_settled = self._step(candidates)
            yield eligible
            if has_settled:
                # Averages that one step leaves unchanged never change again, and neither do the eligible candidates.
                yield from repeat(eligible)

    def _step(self, candidates: Sequence[str]) -> tuple[Sequence[str], bool]:
        """Return the eligible candidates for one call, and True if the call did not change any average."""
        rows = of_each(candidates, self._rows)
        usage, before = self._usage[rows], self._averages[rows]
        # As `scoring.smooth` does for one broker, with the same steps.
        moved = before * self._history + (1 - self._history) * usage
        after = np.where(self._in_full[rows] | np.isnan(before), usage, moved)
        self._averages[rows] = after
        return below_average(candidates, after, self._difference), np.array_equal(before, after)

    def placed(self, bundle: BundleSample, broker: str) -> None:
        """Do nothing, because only load reports change the usage."""

    def kept(self) -> PlacementState:
        """Return the brokers' moving averages."""
        averages = {broker: float(self._averages[row]) for broker, row in self._row_of.items()}
        known = {broker: average for broker, average in averages.items() if not isnan(average)}
        return PlacementState(averages=dict(sorted((self._others | known).items())))


class ExtensibleLeastResourceUsageWithWeight(Stateless):
    """The extensible load manager's version: brokers report their moving averages themselves.

    As in org.apache.pulsar.broker.loadbalance.extensions.strategy.LeastResourceUsageWithWeight.

    Args:
        sample: the cluster, with the brokers' `load_average`.
    """

    def __init__(self, sample: ClusterSample) -> None:
        averages = {broker.broker: broker.load_average for broker in sample.taking_part}
        self._averages = {broker: np.nan if average is None else average for broker, average in averages.items()}
        self._difference = sample.settings.usage_difference / 100
        self._of_each = PerCandidates(self._averages_of)
        self._eligible = PerCandidates(self._of)

    def eligible(self, bundle: str, candidates: Sequence[str]) -> Sequence[str]:
        """Return the eligible candidates according to the reported moving averages (see `below_average`)."""
        return self._of(candidates) if isinstance(candidates, Others) else self._eligible.of(candidates)

    def _averages_of(self, brokers: Sequence[str]) -> Floats:
        return np.array([self._averages.get(broker, np.nan) for broker in brokers], float)

    def _of(self, candidates: Sequence[str]) -> Sequence[str]:
        return below_average(candidates, of_each(candidates, self._of_each), self._difference)


def of_each(candidates: Sequence[str], known: PerCandidates[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Return one figure per candidate, selected from the figures for the whole list of brokers."""
    if isinstance(candidates, Others):
        return np.delete(known.of(candidates.brokers), candidates.positions)
    return known.of(candidates)


def below_average(candidates: Sequence[str], usage: Floats, difference: float) -> Sequence[str]:
    """Return the candidates that are at least `difference` below the average; all candidates if there are none.

    Args:
        usage: usage of each candidate, where 1 is 100 percent; NaN if unknown. The average ignores NaN.
        difference: minimum difference, in the same unit as the usage.
    """
    known = usage[~np.isnan(usage)]
    # Figures are added one by one, which `np.sum` does not do.
    average = np.cumsum(known)[-1] / len(known) if len(known) else np.nan
    is_below = usage + difference <= average
    if isinstance(candidates, Others):
        of_all = np.zeros(len(candidates.brokers), bool)
        of_all[np.delete(np.arange(len(of_all)), candidates.positions)] = is_below
        return [candidates.brokers[row] for row in np.flatnonzero(of_all).tolist()] or candidates
    return [candidates[row] for row in np.flatnonzero(is_below).tolist()] or candidates


def _is_idle(broker: BrokerSample) -> bool:
    """Return whether a broker has no bundles or no messages, which makes its earlier usage meaningless."""
    return not broker.bundles or not (broker.msg_rate_in or broker.msg_rate_out)
