"""The brokers' scores of a run, for the metrics and the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsar_rebalancer.strategies.scoring import score

if TYPE_CHECKING:
    from pulsar_rebalancer.run.snapshot import Snapshot


def scores_of(run: Snapshot) -> dict[str, float]:
    """Return the score of each broker with a valid load report, percent, including brokers that are left out.

    Raises:
        SnapshotError: a file of the run cannot be read.
        StateError: `state_version`.
    """
    unknown = {*run.silent, *run.validation.quarantined}
    samples = run.brokers_without({})
    return {sample.broker: score(sample, run.settings) for sample in samples if sample.broker not in unknown}
