"""Shedders by name. A further one takes a module with `shed(view, kept)`, a line here and its vectors.

AvgShedder is not among them: Spark transforms decide it in production, `avg_shedder` is their specification.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from pulsar_rebalancer.choices import Strategy
from pulsar_rebalancer.strategies import overload_shedder, threshold_shedder, transfer_shedder, uniform_load_shedder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pulsar_rebalancer.strategies.view import Shed, View


class Shedder(Protocol):
    """One run of a strategy over one cluster."""

    def __call__(self, view: View, kept: Mapping[str, Any]) -> Shed:
        """Decide.

        Args:
            view: the sample.
            kept: what the strategy kept from the last counted run, `{}` at first.
        """


SHEDDERS: Mapping[Strategy, Shedder] = {
    Strategy.THRESHOLD: threshold_shedder.shed,
    Strategy.OVERLOAD: overload_shedder.shed,
    Strategy.UNIFORM: uniform_load_shedder.shed,
    Strategy.TRANSFER: transfer_shedder.shed,
}
