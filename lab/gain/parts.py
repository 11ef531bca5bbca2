"""GainShedder without one of its parts, and two controls that must lose.

A part is taken away by replacing a function while a run lasts, so that the product has no switches for experiments.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING
from unittest.mock import patch

import numpy as np

from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.replay import columns
from pulsar_rebalancer.replay.columns import ColumnarBundles
from pulsar_rebalancer.run.tables import Measure
from pulsar_rebalancer.strategies import learning, sample
from pulsar_rebalancer.strategies.learning import BundleCosts
from pulsar_rebalancer.strategies.shedders import gain_shedder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

MESSAGES = "always messages"
RANDOM = "control: random bundles"
SHUFFLED = "control: shuffled loads"


@contextmanager
def _persistence(of_all: float) -> Iterator[None]:
    """Let this share of every deviation last: 1 is only the present, 0 only the hour."""
    usual = learning._update_persistence

    def persisting(*given):  # type: ignore[no-untyped-def]
        return replace(usual(*given), persistence=of_all)

    with patch.object(learning, "_update_persistence", persisting):
        yield


@contextmanager
def _equal_costs() -> Iterator[None]:
    with patch.object(BundleCosts, "with_correction", lambda costs, *_: costs):
        yield


@contextmanager
def _no_residuals() -> Iterator[None]:
    usual = learning.learn

    def learn(*given):  # type: ignore[no-untyped-def]
        result = usual(*given)
        brokers = {name: of._replace(residual=0.0) for name, of in result.learned.brokers.items()}
        return result._replace(learned=replace(result.learned, brokers=brokers))

    with patch.object(columns, "learn", learn):
        yield


@contextmanager
def _from_partner() -> Iterator[None]:
    """Measure heights from the middle between the two brokers, not from the mean of all."""
    usual = gain_shedder._pick

    def move(sample, own, hotter, colder):  # type: ignore[no-untyped-def]
        middle = (hotter.height + colder.height) / 2
        hotter.height, colder.height = hotter.height - middle, colder.height - middle
        moved = usual(sample, own, hotter, colder)
        hotter.height, colder.height = hotter.height + middle, colder.height + middle
        return moved

    with patch.object(gain_shedder, "_pick", move):
        yield


@contextmanager
def _one_price() -> Iterator[None]:
    with patch.multiple(gain_shedder, _URGENT_DIVISOR=1, _LARGE_BUNDLE_POINTS=float("inf")):
        yield


@contextmanager
def _one_round() -> Iterator[None]:
    with patch.object(gain_shedder, "_MAX_MOVES_PER_PAIR", 1):
        yield


@contextmanager
def _random_bundles() -> Iterator[None]:
    """Move a bundle whenever GainShedder would, but one drawn from those that may move."""
    usual, random = gain_shedder._pick, Random(1)

    def move(sample, own, hotter, colder):  # type: ignore[no-untyped-def]
        hot, cold, points = hotter.height, colder.height, sample.learning.learned.points
        chosen = usual(sample, own, hotter, colder)
        if chosen is None:
            return None
        put_back = hotter.bundles.index(chosen)
        hotter.reasons[put_back] = None
        drawn = random.choice([number for number, reason in enumerate(hotter.reasons) if reason is None])
        hotter.loads[put_back] = points * chosen.load
        hotter.reasons[drawn], hotter.loads[drawn] = Reason.TAKEN, np.inf
        load = points * hotter.bundles[drawn].load
        hotter.height, colder.height = hot - load / hotter.cores, cold + load / colder.cores
        return hotter.bundles[drawn]

    with patch.object(gain_shedder, "_pick", move):
        yield


@contextmanager
def _shuffled_loads() -> Iterator[None]:
    """Let each bundle show the loads of another bundle of its broker, the same one each time."""
    usual = ColumnarBundles.of_broker

    def of_broker(self, broker, limit=None):  # type: ignore[no-untyped-def]
        bundles = usual(self, broker, limit)
        others = Random(broker).sample(bundles, len(bundles))
        return [bundle._replace(load=other.load) for bundle, other in zip(bundles, others, strict=True)]

    with patch.object(ColumnarBundles, "of_broker", of_broker):
        yield


@contextmanager
def _messages() -> Iterator[None]:
    with ExitStack() as stack:
        for module in (columns, sample):
            stack.enter_context(patch.object(module, "measure_of", lambda bottleneck: Measure.RATE))
        yield


PARTS: Mapping[str, Callable[[], AbstractContextManager[None]]] = {
    "only the present": lambda: _persistence(1),
    "only the hour": lambda: _persistence(0),
    "half of a deviation lasts": lambda: _persistence(0.5),
    "every message costs the same": _equal_costs,
    "nothing but bundles explains a score": _no_residuals,
    "distance from the partner": _from_partner,
    "one price for all moves": _one_price,
    "one bundle for each pair and run": _one_round,
    RANDOM: _random_bundles,
    SHUFFLED: _shuffled_loads,
}
"""What is taken away, by the contestant's name."""


def without(part: str) -> AbstractContextManager[None]:
    """Return what takes a part away while it is entered; nothing for other contestants."""
    return {**PARTS, MESSAGES: _messages}.get(part, nullcontext)()
