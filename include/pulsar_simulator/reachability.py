"""Track which brokers accept connections, and report changes to a callback."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from pulsar_simulator.faults import FaultKind, Faults

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsar_simulator.brokers import Membership


class Reachability:
    """The brokers that accept connections.

    Changes caused by faults are noticed automatically; call `follow` after any other change.
    """

    def __init__(self, membership: Membership, faults: Faults) -> None:
        self._membership = membership
        self._faults = faults
        self._reachable = [True] * len(membership.brokers)
        self._lock = threading.Lock()
        faults.changed = self.follow
        self.changed: Callable[[], None] = lambda: None
        """Called when a broker may have started or stopped accepting connections."""

    def accepts(self, index: int) -> bool:
        """Return whether a broker accepts connections."""
        broker = self._membership.brokers[index]
        return broker.alive and self._faults.find(FaultKind.DEAD, broker=broker.broker_id) is None

    def follow(self) -> None:
        """Call `changed` if any broker has started or stopped accepting connections since the last call."""
        with self._lock:
            reachable = [self.accepts(i) for i in range(len(self._reachable))]
            changed = reachable != self._reachable
            self._reachable = reachable
        if changed:
            self.changed()
