"""Rules for retrying moves and splits, and for their records in the state store."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pulsar_rebalancer.reasons import Reason, Trait
from pulsar_rebalancer.run.plan import Move
from pulsar_rebalancer.run.splits import Split
from pulsar_rebalancer.state.state_documents import BundleSplit, Unload

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from pulsar_rebalancer.run.outcome import MoveOutcome
    from pulsar_rebalancer.run.splits import SplitOutcome
    from pulsar_rebalancer.storage.path import StoragePath

RETRIED = Trait.PASSING | Trait.RETRIED
"""Traits of outcomes that retrying the task can fix."""

TRIES = 3
"""Maximum number of runs in a row that move a bundle home if it lands on other brokers."""

_Planned = TypeVar("_Planned", Move, Split)
_Record = TypeVar("_Record", Unload, BundleSplit)


def remaining(planned: Iterable[_Planned], outcomes: Mapping[str, MoveOutcome | SplitOutcome]) -> list[_Planned]:
    """Return the planned items without an outcome, and those whose outcome another attempt could improve.

    Args:
        outcomes: outcomes of earlier attempts, by bundle.
    """
    done = {bundle for bundle, outcome in outcomes.items() if not outcome.reason.has(RETRIED)}
    return [item for item in planned if item.bundle not in done]


def records_of(records: Mapping[str, _Record], plan_id: str) -> dict[str, _Record]:
    """Return the state store's records for one plan, by bundle."""
    return {bundle: record for bundle, record in records.items() if record.plan_id == plan_id}


def failed_moves(
    outcomes: Iterable[MoveOutcome], unloads: Mapping[str, Unload], closed_at: datetime | None
) -> set[str]:
    """Return the bundles whose moves count towards the circuit breaker's limit `failed_moves`.

    Args:
        unloads: the state store's unloads, by bundle.
        closed_at: when a person last closed the breaker; None if never. Earlier failures do not count.
    """
    failed = {outcome.bundle for outcome in outcomes if outcome.failed}
    return {bundle for bundle in failed if closed_at is None or bundle not in unloads or unloads[bundle].at > closed_at}


def write_outcomes(file: StoragePath, outcomes: Mapping[str, MoveOutcome | SplitOutcome]) -> None:
    """Write outcomes with all details to a file, sorted by bundle."""
    file.write_json([outcomes[bundle].model_dump(mode="json") for bundle in sorted(outcomes)])


def remembered(
    records: Mapping[str, _Record], outcomes: Iterable[MoveOutcome | SplitOutcome], plan_id: str
) -> dict[str, _Record]:
    """Return the records to keep after a run. Records of planned bundles that the run did not change are dropped.

    As in Pulsar, an unload counts only after success (ModularLoadManagerImpl). A record of this plan without an outcome
    is kept as interrupted, because its result is unknown.

    Args:
        records: the state store's unloads or splits, by bundle.
    """
    untouched = {
        outcome.bundle
        for outcome in outcomes
        if not (outcome.attempts or outcome.ok or outcome.reason is Reason.INTERRUPTED)
    }
    kept = {}
    for bundle, record in records.items():
        if record.plan_id != plan_id:
            kept[bundle] = record
        elif bundle not in untouched:
            interrupted = record.model_copy(update={"outcome": Reason.INTERRUPTED})
            kept[bundle] = record if record.outcome else interrupted
    return kept
