"""The history of one wave: all moves are recorded as planned, then each move's start and end.

The state store gets the whole wave before the first unload, so that its bundles are not moved again. The
wave's file in the run's folder records each move before its unload and its outcome afterwards.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from datetime import datetime

from pulsar_rebalancer.names import range_of
from pulsar_rebalancer.reasons import Reason, Trait
from pulsar_rebalancer.run.outcome import (
    RETRIED,
    ClientGap,
    MoveOutcome,
    Outcome,
    failed_moves,
    items_left,
    outcomes_of_wave,
    read_move_outcomes,
    records_of_plan,
    records_to_keep,
    unmoved,
    wave_file,
    write_outcomes,
)
from pulsar_rebalancer.run.plan import Move
from pulsar_rebalancer.state import KeptDestination, MovesState, Unload
from pulsar_rebalancer.storage.path import StoragePath

_SECONDS_BETWEEN_WRITES = 1.0


class WaveHistory:
    """The history of one wave, across all attempts of the wave's task.

    `change_moves` applies a change to the latest stored history, so that other writers' changes are preserved. An
    outcome is `interrupted` while its move is in progress.
    """

    def __init__(
        self,
        stored_state: MovesState,
        change_moves: Callable[[Callable[[MovesState], MovesState]], None],
        run: StoragePath,
        wave: int,
    ) -> None:
        self._store = change_moves
        self._file = wave_file(run, wave)
        self._plan_id = run.name
        earlier = outcomes_of_wave(self._file) if self._file.exists() else {}
        self._earlier: Mapping[str, MoveOutcome] = earlier
        reported = Outcome.read_if_exists(run)
        self._reported = {move.bundle for move in reported.moves if move.counts_as_failed} if reported else set()
        self._other_waves = [move for bundle, move in read_move_outcomes(run).items() if bundle not in earlier]
        self._before = stored_state.unloads
        self._unloads = records_of_plan(stored_state.unloads, run.name)
        self._planned = frozenset(self._unloads)
        self.outcomes = dict(earlier)
        self._written_at = self._measured_at = 0.0
        self._writing = asyncio.Lock()
        self._begun = self._written_up_to = 0

    def remaining_moves(self, moves: Sequence[Move]) -> list[Move]:
        return items_left(moves, self.outcomes)

    def has_planned(self, moves: Sequence[Move]) -> bool:
        return any(move.bundle in self._planned for move in moves)

    @property
    def maybe_unloaded_bundles(self) -> frozenset[str]:
        """Return the bundles that an earlier attempt might have unloaded, because it recorded the unload."""
        return frozenset(bundle for bundle, outcome in self._earlier.items() if outcome.attempts)

    @property
    def unsettled_bundle_ranges(self) -> frozenset[str]:
        """Return other waves' hash ranges that still have to be placed: the leader may store their destinations."""
        unsettled = (
            move for move in self._other_waves if move.destination_kept or (move.attempts and move.reason.has(RETRIED))
        )
        return frozenset(range_of(move.bundle) for move in unsettled)

    @property
    def ended_moves(self) -> list[MoveOutcome]:
        return _ended_moves(self.outcomes.values())

    def new_failures(self, closed_at: datetime | None) -> int:
        """Return the number of failed moves since a person last closed the breaker that it has not counted yet."""
        known = (*self._other_waves, *self.outcomes.values())
        return len(failed_moves(known, self._unloads, closed_at) - self._reported)

    def record_planned_moves(self, moves: Sequence[Move], now: datetime) -> None:
        """Store the moves as planned. Their bundles count as recently unloaded, even if the task is killed."""
        for move in moves:
            self._unloads[move.bundle] = Unload(
                at=now,
                plan_id=self._plan_id,
                source=move.source,
                destination=move.destination,
                tries=self._number_of_tries(move),
            )
        self._store_unloads()

    def _number_of_tries(self, move: Move) -> int:
        last = self._before.get(move.bundle)
        if last is None or not last.missed(move.destination):
            return 1
        return last.tries + (last.plan_id != self._plan_id)

    async def record_begin(self, move: Move) -> None:
        """Record for a retry that a bundle is about to be unloaded; return once the wave's file is written."""
        begun = unmoved(move, Reason.INTERRUPTED)
        earlier = self._earlier.get(move.bundle, begun)
        known = {"attempts": earlier.attempts + 1, "destination_kept": earlier.destination_kept}
        self.outcomes[move.bundle] = begun.model_copy(update=known)
        self._begun += 1
        number = self._begun
        async with self._writing:
            if self._written_up_to < number:
                up_to, outcomes = self._begun, dict(self.outcomes)
                await asyncio.to_thread(write_outcomes, self._file, outcomes)
                self._written_up_to = up_to

    def add_outcome(self, outcome: MoveOutcome, now: datetime) -> None:
        """Record an outcome. Written at most once a second; call `write_outcomes` at the end to write the rest."""
        self._add_outcome(outcome, now)
        if time.monotonic() - self._written_at >= _SECONDS_BETWEEN_WRITES:
            self.write_outcomes()

    def record_client_gap(self, bundle: str, client_gap: ClientGap) -> None:
        self.outcomes[bundle] = self.outcomes[bundle].model_copy(update={"client_gap": client_gap})
        if time.monotonic() - self._measured_at >= _SECONDS_BETWEEN_WRITES:
            self._write_wave_file()
            self._measured_at = time.monotonic()

    def add_skipped_moves(self, outcomes: Sequence[MoveOutcome], now: datetime) -> None:
        for outcome in outcomes:
            self._add_outcome(outcome, now)
        self._write_wave_file()
        if any(outcome.bundle in self._planned for outcome in outcomes):
            self._store_unloads()

    def _add_outcome(self, outcome: MoveOutcome, now: datetime) -> None:
        merged = self._merged_outcome(outcome)
        self.outcomes[outcome.bundle] = merged
        planned = self._unloads.get(outcome.bundle)
        if planned is not None:
            ended = {"at": now, "outcome": merged.reason, "owner": merged.owner}
            self._unloads[outcome.bundle] = planned.model_copy(update=ended)

    def write_outcomes(self) -> None:
        self._write_wave_file()
        self._store_unloads()
        self._written_at = time.monotonic()

    def _write_wave_file(self) -> None:
        write_outcomes(self._file, self.outcomes)

    def _store_unloads(self) -> None:
        def change(state: MovesState) -> MovesState:
            # The destination of a new unload replaces a kept one.
            replaced = {outcome.bundle for outcome in self.ended_moves if outcome.attempts}
            kept = {bundle: record for bundle, record in state.kept_destinations.items() if bundle not in replaced}
            changed = {"unloads": state.unloads | self._unloads, "kept_destinations": kept | self._kept_destinations()}
            return state.model_copy(update=changed)

        self._store(change)

    def _kept_destinations(self) -> dict[str, KeptDestination]:
        return {
            bundle: KeptDestination(at=last.at, plan_id=self._plan_id, destination=last.destination, owner=last.owner)
            for bundle, last in self._unloads.items()
            if bundle in self.outcomes and self.outcomes[bundle].destination_kept
        }

    def _merged_outcome(self, outcome: MoveOutcome) -> MoveOutcome:
        earlier = self._earlier.get(outcome.bundle)
        if earlier is None or earlier.reason.has(Trait.NOT_BEGUN):
            return outcome
        if outcome.reason.has(Trait.NOT_BEGUN):
            return earlier
        attempts = earlier.attempts
        if earlier.reason is Reason.INTERRUPTED and outcome.owner == outcome.source:
            attempts -= 1  # the earlier attempt was killed before its unload
        changes = {
            "attempts": outcome.attempts + attempts,
            "reason": Reason.MOVED if attempts and outcome.reason is Reason.ALREADY_THERE else outcome.reason,
            "destination_kept": outcome.destination_kept
            or (earlier.destination_kept and not outcome.attempts and not outcome.ok),
        }
        return outcome.model_copy(update=changes)


def _ended_moves(wave_outcomes: Iterable[MoveOutcome]) -> list[MoveOutcome]:
    known = (outcome for outcome in wave_outcomes if outcome.reason is not Reason.INTERRUPTED)
    return [outcome for outcome in known if not outcome.reason.has(Trait.NOT_BEGUN)]


def moves_state_to_keep(history: MovesState, outcome: Outcome, now: datetime, grace_minutes: float) -> MovesState:
    unloads = records_to_keep(history.recent_unloads(now, grace_minutes), outcome.moves, outcome.plan_id)
    return history.model_copy(update={"unloads": unloads})


def drop_destinations(
    history: MovesState, owners: Mapping[str, Container[str]], collected_at: datetime, now: datetime
) -> MovesState:
    """Drop destinations that the leader has forgotten because their bundles have a new owner.

    `owners` are the brokers that reported a bundle at `collected_at`. Destinations recorded from then until
    `now` are kept; later ones were recorded before the clock was set back, and may be dropped.
    """
    kept = {
        bundle: destination
        for bundle, destination in history.kept_destinations.items()
        if collected_at < destination.at <= now or destination.owner in owners.get(bundle, (destination.owner,))
    }
    return history.model_copy(update={"kept_destinations": kept})
