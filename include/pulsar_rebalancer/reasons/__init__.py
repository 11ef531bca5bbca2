"""Reason codes, which explain every decision and result, and their effect on a run."""

from __future__ import annotations

from pulsar_rebalancer.reasons.reason import Reason, reasons_text
from pulsar_rebalancer.reasons.traits import Effect, Trait

__all__ = ["Effect", "Reason", "Trait", "reasons_text"]
