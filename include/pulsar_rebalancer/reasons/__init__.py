"""Every reason code, what it means and what to do: the one list that code, README and alerts share."""

from __future__ import annotations

from pulsar_rebalancer.reasons.inputs import INPUTS
from pulsar_rebalancer.reasons.reason import Effect, Reason
from pulsar_rebalancer.reasons.verdicts import VERDICTS

__all__ = ["PASSING", "REASONS", "Effect", "Reason"]

REASONS: dict[str, Reason] = {reason.code: reason for reason in (*INPUTS, *VERDICTS)}
"""Reason codes by name."""

PASSING = frozenset(code for code, reason in REASONS.items() if reason.passing)
"""Reason codes that may be gone a moment later."""
