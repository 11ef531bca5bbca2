"""When Pulsar splits a bundle by itself.

Modular load manager (BundleSplitterTask): long-term means, at every sample. Extensible load manager
(DefaultNamespaceBundleSplitStrategyImpl): what the broker measures now, in more samples in a row than
`hit_count_split`. All comparisons are strict.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pulsar_rebalancer.config.pulsar_settings import MIB

if TYPE_CHECKING:
    from pulsar_rebalancer.config.settings import Settings
    from pulsar_rebalancer.reasons import Reason


@dataclass(frozen=True, slots=True)
class LoadedBundle:
    """A bundle that may be too large.

    Attributes:
        bundle: `tenant/namespace/0x…_0x…`.
        broker: brokerId of its owner.
        topics: number of topics.
        sessions: number of producers and consumers.
        msg_rate: msg/s in plus out: the long-term mean, or the current rate under the extensible load manager.
        msg_throughput: bytes/s, in the same way.
        policy: the kind of policy that its namespace is under, or None.
        stays: why it must not be split, or None.
    """

    bundle: str
    broker: str
    topics: int
    sessions: int
    msg_rate: float
    msg_throughput: float
    policy: str | None = None
    stays: Reason | None = None


class SplitCondition(NamedTuple):
    """A condition that a bundle meets.

    Attributes:
        name: "topics", "sessions", "msg_rate" or "bandwidth".
        value: the compared figure: a number, msg/s or bytes/s.
        bound: what it exceeds.
    """

    name: str
    value: float
    bound: float

    @property
    def excess(self) -> float:
        """Return the value as a multiple of the bound."""
        return self.value / self.bound if self.bound > 0 else float("inf")


def condition_of(bundle: LoadedBundle, settings: Settings) -> SplitCondition | None:
    """Return the first condition of splitting that a bundle meets, in Pulsar's order; None when it meets none."""
    sessions = settings.max_bundle_sessions if settings.max_bundle_sessions > 0 else math.inf  # 0 switches it off
    conditions = (
        SplitCondition("topics", bundle.topics, settings.max_bundle_topics),
        SplitCondition("sessions", bundle.sessions, sessions),
        SplitCondition("msg_rate", bundle.msg_rate, settings.max_bundle_msg_rate),
        SplitCondition("bandwidth", bundle.msg_throughput, settings.max_bundle_bandwidth * MIB),
    )
    return next((condition for condition in conditions if condition.value > condition.bound), None)
