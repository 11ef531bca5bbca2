"""The conditions under which Pulsar's load managers split a bundle automatically.

The modular load manager (BundleSplitterTask) compares long-term moving averages and acts on every sample. The
extensible load manager (DefaultNamespaceBundleSplitStrategyImpl) compares current figures and acts when a condition is
met in more than `hit_count_split` consecutive samples. A figure that equals a bound does not exceed it.
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
    """A bundle that might be too large.

    Attributes:
        bundle: `tenant/namespace/0x…_0x…`.
        broker: the owner's brokerId.
        topics: number of topics.
        sessions: number of producers and consumers.
        msg_rate: inbound plus outbound msg/s: the long-term moving average, or the current rate under the extensible
            load manager.
        msg_throughput: inbound plus outbound bytes/s, averaged or current like `msg_rate`.
        policy: the kind of policy that applies to the bundle's namespace; None if no policy applies.
        stays: why the bundle must not be split; None if it may be split.
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
        value: the compared figure: a count, msg/s or bytes/s.
        bound: the limit that the value exceeds.
    """

    name: str
    value: float
    bound: float

    @property
    def excess(self) -> float:
        """Return the value as a multiple of the bound."""
        return self.value / self.bound if self.bound > 0 else float("inf")


def condition_of(bundle: LoadedBundle, settings: Settings) -> SplitCondition | None:
    """Return the first split condition, in Pulsar's order, that a bundle meets; None if the bundle meets none."""
    sessions = settings.max_bundle_sessions if settings.max_bundle_sessions > 0 else math.inf  # 0: no limit
    conditions = (
        SplitCondition("topics", bundle.topics, settings.max_bundle_topics),
        SplitCondition("sessions", bundle.sessions, sessions),
        SplitCondition("msg_rate", bundle.msg_rate, settings.max_bundle_msg_rate),
        SplitCondition("bandwidth", bundle.msg_throughput, settings.max_bundle_bandwidth * MIB),
    )
    return next((condition for condition in conditions if condition.value > condition.bound), None)
