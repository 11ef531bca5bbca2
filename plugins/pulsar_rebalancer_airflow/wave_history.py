"""What one wave of a plan has done so far: planned before the first unload, then one outcome after the other.

The unload history in the state store protects bundles from being moved again; the file beside the plan keeps the
details (attempts, seconds, errors) for report.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pulsar_rebalancer import documents
from pulsar_rebalancer.reasons import PASSING
from pulsar_rebalancer.state import MovesState, Unload
from pulsar_rebalancer.unloading import MoveOutcome

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from pulsar_rebalancer.plan import Move
    from pulsar_rebalancer.storage import Folder
    from pulsar_rebalancer_airflow.state_store import StateStore

REPEATED = PASSING | {"unowned", "unknown_owner"}
"""Outcomes that a retry of the wave can mend: a broker did not answer, or the bundle still waits for an owner."""

REFUSED = frozenset({"unauthorized", "forbidden", "certificate_refused", "read_only", "foreign_redirect"})
"""Outcomes that only a person can mend."""

_SECONDS_BETWEEN_WRITES = 1.0


def wave_file(run: Folder, wave: int) -> Folder:
    """The file with the outcomes of one wave."""
    return run / "unload" / f"wave-{wave:02d}.json"


def read_outcomes(run: Folder) -> dict[str, MoveOutcome]:
    """Outcomes of all waves of a run, by bundle.

    Raises:
        SnapshotError: a file cannot be read.
    """
    folder = run / "unload"
    files = [folder / name for name in folder.names() if name.startswith("wave-")]
    return {bundle: outcome for file in files for bundle, outcome in _outcomes(file).items()}


def _outcomes(file: Folder) -> dict[str, MoveOutcome]:
    found = (documents.load(MoveOutcome, row, file.uri) for row in file.read_json())
    return {outcome.bundle: outcome for outcome in found}


class WaveHistory:
    """The history of one wave, over all attempts of its task.

    Args:
        store: of the cluster.
        run: the run's folder.
        plan_id: whose wave it is.
        wave: its number.
    """

    def __init__(self, store: StateStore, run: Folder, plan_id: str, wave: int) -> None:
        self._store = store
        self._file = wave_file(run, wave)
        self._plan_id = plan_id
        self._unloads = {b: unload for b, unload in store.moves().unloads.items() if unload.plan_id == plan_id}
        self.outcomes = _outcomes(self._file) if self._file.exists() else {}
        self._begun = frozenset(self._unloads)
        self._written_at = 0.0

    def remaining(self, moves: Sequence[Move]) -> list[Move]:
        """The moves without an outcome, or with one that another attempt can mend."""
        done = {bundle for bundle, outcome in self.outcomes.items() if outcome.reason not in REPEATED}
        return [move for move in moves if move.bundle not in done]

    def plan(self, moves: Sequence[Move], now: datetime) -> None:
        """Store the moves as planned: from here on each counts as recently unloaded, whatever happens to the task."""
        for move in moves:
            self._unloads[move.bundle] = Unload(
                at=now, plan_id=self._plan_id, source=move.source, destination=move.destination
            )
        self._store_unloads()

    def add(self, outcome: MoveOutcome, now: datetime) -> None:
        """Note an outcome; written at most once a second, so call `write` at the end."""
        merged = self._merged(outcome)
        self.outcomes[outcome.bundle] = merged
        planned = self._unloads[outcome.bundle]
        self._unloads[outcome.bundle] = planned.model_copy(
            update={"at": now, "outcome": merged.reason, "owner": merged.owner}
        )
        if time.monotonic() - self._written_at >= _SECONDS_BETWEEN_WRITES:
            self.write()

    def write(self) -> None:
        """Write history and details."""
        self._file.write_json([self.outcomes[bundle].model_dump(mode="json") for bundle in sorted(self.outcomes)])
        self._store_unloads()
        self._written_at = time.monotonic()

    def _store_unloads(self) -> None:
        # What a restore or a tidying report did to other bundles meanwhile stays.
        self._store.put_moves(MovesState(unloads=self._store.moves().unloads | self._unloads))

    def _merged(self, outcome: MoveOutcome) -> MoveOutcome:
        """The outcome over all attempts: what an earlier attempt unloaded and this one finds in place was moved."""
        earlier = self.outcomes.get(outcome.bundle)
        attempts = outcome.attempts + (earlier.attempts if earlier else 0)
        if outcome.bundle in self._begun and earlier is None:
            # An attempt that was killed may have unloaded it: it must not pass for one that was left alone.
            attempts = max(attempts, 1)
        resumed = outcome.reason == "already_there" and outcome.bundle in self._begun
        return outcome.model_copy(update={"attempts": attempts, "reason": "moved" if resumed else outcome.reason})
