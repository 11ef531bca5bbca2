"""What the attempts at moving and at splitting a bundle have in common: what a retry does, and what is remembered."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pulsar_rebalancer.reasons import Reason, Trait
from pulsar_rebalancer.run.plan import Move
from pulsar_rebalancer.run.splits import Split
from pulsar_rebalancer.state.state_documents import BundleSplit, Unload

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pulsar_rebalancer.run.outcome import MoveOutcome
    from pulsar_rebalancer.run.splits import SplitOutcome
    from pulsar_rebalancer.storage.path import StoragePath

RETRIED = Trait.PASSING | Trait.RETRIED
"""Outcomes that a retry of the task can mend."""

_Planned = TypeVar("_Planned", Move, Split)
_Record = TypeVar("_Record", Unload, BundleSplit)


def remaining(planned: Iterable[_Planned], outcomes: Mapping[str, MoveOutcome | SplitOutcome]) -> list[_Planned]:
    """Return what of a plan has no outcome, or one that another attempt can mend.

    Args:
        outcomes: of earlier attempts, by bundle.
    """
    done = {bundle for bundle, outcome in outcomes.items() if not outcome.reason.has(RETRIED)}
    return [each for each in planned if each.bundle not in done]


def records_of(records: Mapping[str, _Record], plan_id: str) -> dict[str, _Record]:
    """Return what an attempt at a plan has noted in the state store, by bundle."""
    return {bundle: record for bundle, record in records.items() if record.plan_id == plan_id}


def is_unended(record: Unload | BundleSplit) -> bool:
    """Return whether an attempt that was killed may have carried it out."""
    return record.outcome in ("", Reason.INTERRUPTED)


def write_outcomes(file: StoragePath, outcomes: Mapping[str, MoveOutcome | SplitOutcome]) -> None:
    """Write the details of outcomes, by bundle."""
    file.write_json([outcomes[bundle].model_dump(mode="json") for bundle in sorted(outcomes)])


def remembered(
    records: Mapping[str, _Record], outcomes: Iterable[MoveOutcome | SplitOutcome], plan_id: str
) -> dict[str, _Record]:
    """Return what is remembered after a run: bundles that were left alone are not, interrupted ones are.

    Of those nobody knows; Pulsar, too, remembers an unload only after its success (ModularLoadManagerImpl).

    Args:
        records: unloads or splits of the state store, by bundle.
    """
    left_alone = {
        each.bundle for each in outcomes if not (each.attempts or each.ok or each.reason is Reason.INTERRUPTED)
    }
    found = {}
    for bundle, record in records.items():
        if record.plan_id != plan_id:
            found[bundle] = record
        elif bundle not in left_alone:
            interrupted = record.model_copy(update={"outcome": Reason.INTERRUPTED})
            found[bundle] = record if record.outcome else interrupted
    return found
