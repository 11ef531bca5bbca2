"""Reason codes: why something happened or did not, and what follows from it."""

from __future__ import annotations

from pulsar_rebalancer.reasons.reason import Reason
from pulsar_rebalancer.reasons.traits import Effect, Trait

__all__ = ["Effect", "Reason", "Trait"]
