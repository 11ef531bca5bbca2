"""The scores of the brokers of a run, as metrics report them and the page draws them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsar_rebalancer.strategies.scoring import score

if TYPE_CHECKING:
    from pulsar_rebalancer.run.snapshot import Snapshot


def scores_of(run: Snapshot) -> dict[str, float]:
    """Return the score of each broker whose report counts, percent; some of them may be left out.

    Raises:
        SnapshotError: a file of the run cannot be read.
        StateError: `state_version`.
    """
    unknown = {*run.silent, *run.validation.quarantined}
    return {each.broker: score(each, run.settings) for each in run.brokers_without({}) if each.broker not in unknown}
