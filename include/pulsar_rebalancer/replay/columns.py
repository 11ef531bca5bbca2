"""Bundles of one minute as numpy columns: those of a broker become objects only when a strategy asks for them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from pulsar_rebalancer.names import namespace_of
from pulsar_rebalancer.run.tables import TRAFFIC
from pulsar_rebalancer.strategies.bundles import Bundles
from pulsar_rebalancer.strategies.means import LONG_TERM_SAMPLES, MAX_SAMPLES
from pulsar_rebalancer.strategies.sample import BundleSample

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import numpy.typing as npt

    from pulsar_rebalancer.reasons import Reason

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]
    Flags = npt.NDArray[np.bool_]

NOBODY = -1
"""Owner of a bundle that no broker reports."""

UNKNOWN_RATE = 50.0
"""Long-term message rate of a bundle that nobody has reported yet (NamespaceBundleStats' default, 50 msg/s)."""


class MeanColumns:
    """Short-term and long-term means of all bundles, as `strategies.means.update` keeps them.

    Attributes:
        short: msg/s and bytes/s in and out, a row for each figure of `run.tables.TRAFFIC`.
        long_term_msg_rate: msg/s in plus out.
    """

    def __init__(self, count: int) -> None:
        self.short: Floats = np.zeros((len(TRAFFIC), count))
        self.long_term_msg_rate: Floats = np.full(count, UNKNOWN_RATE)
        self._samples: Ints = np.zeros(count, dtype=np.int64)

    def update(self, present: Flags, sample: Floats) -> None:
        """Add a sample; a bundle that is not in it is forgotten.

        Args:
            present: which bundles are in it.
            sample: a row for each figure.
        """
        samples = np.minimum(self._samples + 1, LONG_TERM_SAMPLES)
        short = np.minimum(samples, MAX_SAMPLES)
        self.short = np.where(present, ((short - 1) * self.short + sample) / short, 0.0)
        rate = sample[0] + sample[1]
        long_term = ((samples - 1) * self.long_term_msg_rate + rate) / samples
        self.long_term_msg_rate = np.where(present, long_term, UNKNOWN_RATE)
        self._samples = np.where(present, samples, 0)


class ColumnBundles(Bundles):
    """The bundles of a cluster, as strategies ask for them.

    Args:
        names: of the bundles, ascending.
        index: of a bundle by name.
        namespaces: all that the bundles are of.
        brokers: their names.
        owner: index of the broker that reports each bundle, or `NOBODY`.
        present: what they carry now, a row for each figure of `run.tables.TRAFFIC`.
        means: their means.
        reasons: why a bundle must stay, by index.
    """

    def __init__(
        self,
        names: Sequence[str],
        index: Mapping[str, int],
        namespaces: Collection[str],
        brokers: Sequence[str],
        owner: Ints,
        present: Floats,
        means: MeanColumns,
        reasons: Mapping[int, Reason],
    ) -> None:
        self._names = names
        self._index = index
        self._namespaces = namespaces
        self._brokers = brokers
        self._broker = {name: number for number, name in enumerate(brokers)}
        self._owner = owner
        self._present = present
        self._means = means
        self._reasons = reasons

    def of(self, broker: str) -> list[BundleSample]:
        """Return the bundles that one broker reports, by name."""
        number = self._broker.get(broker)
        return [] if number is None else self._samples(np.flatnonzero(self._owner == number))

    def find(self, broker: str, bundle: str) -> BundleSample:
        """Return one bundle of one broker.

        Raises:
            KeyError: the broker does not report it.
        """
        number = self._index[bundle]
        if self._owner[number] != self._broker[broker]:
            raise KeyError(bundle)
        return self._samples(np.array([number]))[0]

    def served(self, namespaces: Collection[str] | None = None) -> Counter[tuple[str, str]]:
        """Return how many bundles of a namespace a broker reports, by namespace and broker."""
        found: Counter[tuple[str, str]] = Counter()
        if namespaces is not None and not any(name in self._namespaces for name in namespaces):
            return found
        for number in np.flatnonzero(self._owner != NOBODY).tolist():
            namespace = namespace_of(self._names[number])
            if namespaces is None or namespace in namespaces:
                found[namespace, self._brokers[self._owner[number]]] += 1
        return found

    def long_term_msg_rates(self) -> dict[str, float]:
        """Return the long-term message rate of each broker that has bundles, msg/s."""
        owned = np.flatnonzero(self._owner != NOBODY)
        count = len(self._brokers)
        rates = np.bincount(self._owner[owned], weights=self._means.long_term_msg_rate[owned], minlength=count)
        has = np.bincount(self._owner[owned], minlength=count)
        return {name: float(rates[i]) for i, name in enumerate(self._brokers) if has[i]}

    def _samples(self, numbers: Ints) -> list[BundleSample]:
        present = self._present[:, numbers].tolist()
        rate = (self._means.short[0] + self._means.short[1])[numbers].tolist()
        throughput = (self._means.short[2] + self._means.short[3])[numbers].tolist()
        long_term = self._means.long_term_msg_rate[numbers].tolist()
        owners = self._owner[numbers].tolist()
        return [
            BundleSample(
                broker=self._brokers[owners[i]],
                bundle=self._names[number],
                **{name: present[row][i] for row, name in enumerate(TRAFFIC)},
                topics=1,
                msg_rate=rate[i],
                msg_throughput=throughput[i],
                long_term_msg_rate=long_term[i],
                reason=self._reasons.get(number),
            )
            for i, number in enumerate(numbers.tolist())
        ]
