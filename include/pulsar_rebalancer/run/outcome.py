"""The outcome of a run: its moves and splits over all attempts, and what they cost clients."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from typing import ClassVar, Self, TypeVar

from pydantic import AwareDatetime, BaseModel, ConfigDict

from pulsar_rebalancer.reasons import Effect, Reason, Trait
from pulsar_rebalancer.run.plan import Move, Split, SplitOutcome, outcome_by_split, read_moves, read_splits, unsplit
from pulsar_rebalancer.run.request import RunRequest, Validation
from pulsar_rebalancer.state import BundleSplit, Unload
from pulsar_rebalancer.storage.documents import CLIENT_GAPS_FILE, VersionedDocument, validate_document
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer.texts import number_of

MAX_KEPT_GAPS = 2000
"""Maximum number of bundles whose last client gap is stored. Every manual plan reads the file (half a megabyte)."""


class ClientGap(BaseModel):
    """The cost of one move for its clients. A value that the brokers did not report is None, not 0.

    Clients are the producers and consumers of a sample of the bundle's topics. Seconds run from the unload.

    Attributes:
        owner_seconds: until a broker confirmed that it owns the bundle; None if none did.
        clients_seconds: until all clients were back; None if unknown or some are missing at the last count.
        watched_seconds: until the last count; None if there was none.
        topics, topics_measured: topics with clients, and topics in the sample.
        errors: topics in the sample that returned an error at the last count.
        unknown: why the clients could not be counted; empty if they were counted.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    owner_seconds: float | None = None
    clients_seconds: float | None = None
    watched_seconds: float | None = None
    clients_before: int | None = None
    clients_back: int | None = None
    topics: int | None = None
    topics_measured: int = 0
    errors: int | None = None
    unknown: str = ""

    @property
    def text(self) -> str:
        if self.unknown:
            return f"client gap unknown: {self.unknown}"
        if not self.clients_before:
            return "no client was connected" if self.clients_before == 0 else "client gap unknown"
        if self.clients_seconds is not None:
            said = f"clients were away for {self.clients_seconds:.1f} s"
        else:
            missing, clients = self.clients_before - (self.clients_back or 0), number_of(self.clients_before, "client")
            said = f"{missing} of {clients} had not reconnected after {self.watched_seconds:.1f} s"
        sampled = self.topics is not None and self.topics_measured < self.topics
        said += f" (measured on {self.topics_measured} of {self.topics} topics)" if sampled else ""
        return said + (f"; {number_of(self.errors, 'topic')} returned an error" if self.errors else "")


class ClientGapSummary(BaseModel):
    """The cost of several moves for their clients; `moves` counts those that unloaded their bundle.

    `unknown`: clients could not be counted; `not_back`: some were missing at the last count. Seconds are
    of `ClientGap.clients_seconds`; None if no client was connected before, or none reconnected.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    moves: int
    unknown: int
    not_back: int
    median_seconds: float | None
    p95_seconds: float | None
    longest_seconds: float | None
    errors: int

    @classmethod
    def from_gaps(cls, gaps: Iterable[ClientGap | None]) -> Self | None:
        moves = list(gaps)
        known = [gap for gap in moves if gap is not None and not gap.unknown]
        seconds = sorted(gap.clients_seconds for gap in known if gap.clients_before and gap.clients_seconds is not None)
        if not moves:
            return None
        return cls(
            moves=len(moves),
            unknown=len(moves) - len(known),
            not_back=sum(bool(gap.clients_before) and gap.clients_seconds is None for gap in known),
            median_seconds=round(statistics.median(seconds), 3) if seconds else None,
            p95_seconds=seconds[math.ceil(0.95 * len(seconds)) - 1] if seconds else None,
            longest_seconds=seconds[-1] if seconds else None,
            errors=sum(gap.errors or 0 for gap in known),
        )

    @property
    def sentence(self) -> str:
        parts = []
        if self.longest_seconds is not None:
            median, longest = f"a median of {self.median_seconds:.1f} s", f"at most {self.longest_seconds:.1f} s"
            parts.append(f"clients were away for {median} and {longest}")
        if self.not_back:
            parts.append(f"after {self.not_back} of {number_of(self.moves, 'move')}, some clients had not reconnected")
        if self.unknown:
            parts.append(f"for {self.unknown} of {number_of(self.moves, 'move')}, clients could not be counted")
        if self.errors:
            parts.append(f"{number_of(self.errors, 'topic')} returned an error")
        return "; ".join(parts) or "no client was connected"


def last_gaps_text(gaps: Collection[ClientGap], move_count: int) -> str:
    """Return a sentence, without a full stop, on the known costs of the last moves of a plan's bundles."""
    summary = ClientGapSummary.from_gaps(gaps)
    if summary is None:
        return "no move of these bundles was measured"
    return f"{summary.sentence}" + (
        f" (known for {len(gaps)} of {number_of(move_count, 'bundle')})" if len(gaps) < move_count else ""
    )


class LastClientGap(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    at: AwareDatetime
    client_gap: ClientGap


class BundleClientGaps(VersionedDocument):
    FILE: ClassVar[str] = CLIENT_GAPS_FILE

    bundles: dict[str, LastClientGap] = {}

    def with_gaps(self, gap_by_bundle: Mapping[str, ClientGap | None], now: datetime) -> Self:
        """Return a copy with the cost of further moves. Unknown values are ignored, the oldest are dropped."""
        known = {
            b: LastClientGap(at=now, client_gap=gap)
            for b, gap in gap_by_bundle.items()
            if gap is not None and not gap.unknown
        }
        every = self.bundles | known
        latest = sorted(every, key=lambda bundle: (every[bundle].at, bundle))[-MAX_KEPT_GAPS:]
        return self.model_copy(update={"bundles": {bundle: every[bundle] for bundle in sorted(latest)}})

    @classmethod
    def last_gaps(cls, folder: StoragePath, bundles: Iterable[str]) -> dict[str, ClientGap]:
        known = cls.read_or_none(folder) or cls()
        return {bundle: known.bundles[bundle].client_gap for bundle in bundles if bundle in known.bundles}


class MoveOutcome(BaseModel):
    """The outcome of one move.

    Attributes:
        owner: brokerId that the brokers reported as owner after the move; empty if unknown.
        attempts: number of unload requests that were not refused; 0 if the bundle was not unloaded.
        seconds: from the first request to the outcome.
        error: the error message that caused the outcome, if any; it contains no secrets.
        destination_kept: True if the leader might remember the destination, although the unload failed.
        client_gap: cost of the move for the bundle's clients; None if unknown or not unloaded.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    bundle: str
    source: str
    destination: str
    owner: str = ""
    reason: Reason
    attempts: int = 0
    seconds: float = 0.0
    error: str = ""
    destination_kept: bool = False
    client_gap: ClientGap | None = None

    @property
    def ok(self) -> bool:
        return self.reason.has(Trait.ON_PLANNED_BROKER)

    @property
    def counts_as_failed(self) -> bool:
        """Return whether the move counts towards the breaker's limit `failed_moves`. Interrupted moves do not count."""
        ended = self.reason is not Reason.INTERRUPTED
        return ended and not self.ok and not self.reason.has(Trait.SETTLED | Trait.NOT_BEGUN)

    @property
    def reported_text(self) -> str:
        return f"owner {self.owner or '-'}"


def unmoved(move: Move, reason: Reason) -> MoveOutcome:
    return MoveOutcome(bundle=move.bundle, source=move.source, destination=move.destination, reason=reason)


def wave_file(run: StoragePath, wave: int) -> StoragePath:
    return run / "unload" / f"wave-{wave:02d}.json"


def outcomes_of_wave(file: StoragePath) -> dict[str, MoveOutcome]:
    outcomes = (validate_document(MoveOutcome, row, file.uri) for row in file.read_json())
    return {outcome.bundle: outcome for outcome in outcomes}


def read_move_outcomes(run: StoragePath) -> dict[str, MoveOutcome]:
    folder = run / "unload"
    files = [folder / name for name in folder.entry_names() if name.startswith("wave-")]
    return {bundle: outcome for file in files for bundle, outcome in outcomes_of_wave(file).items()}


_Planned = TypeVar("_Planned", Move, Split)
_Outcome = TypeVar("_Outcome", MoveOutcome, SplitOutcome)


class Outcome(VersionedDocument):
    """`outcome.json`: the outcome of a run, written by the *report* task.

    Attributes:
        plan_id: name of the run's folder.
        verdict: the gate's code; `blocked` if validation stopped the run, `unfinished` if another task failed.
        moves, splits: outcomes of all that the plan moves and splits; empty if the gate was not open.
        destinations_kept: destinations of this or an earlier run that the leader might remember, by bundle.
        in_force: the orders in force at the time of writing (such as a drain), and who gave them.
        client_gap: cost of the moves for their clients; None if no bundle was unloaded.
    """

    FILE: ClassVar[str] = "outcome.json"

    plan_id: str
    cluster: str
    airflow_run_id: str
    ended_at: AwareDatetime
    verdict: Reason
    moves: tuple[MoveOutcome, ...] = ()
    destinations_kept: dict[str, str] = {}
    splits: tuple[SplitOutcome, ...] = ()
    in_force: str = ""
    client_gap: ClientGapSummary | None = None

    @property
    def move_counts(self) -> dict[Reason, int]:
        return dict(Counter(move.reason for move in self.moves).most_common())

    @property
    def split_counts(self) -> dict[Reason, int]:
        return dict(Counter(split.reason for split in self.splits).most_common())

    @property
    def split_count(self) -> int:
        return sum(split.reason is Reason.SPLIT for split in self.splits)

    @property
    def moved_count(self) -> int:
        return sum(move.reason.has(Trait.NEW_OWNER) for move in self.moves)


def conclude_run(
    run: StoragePath, gate_verdict: Reason | None, now: datetime, kept: Mapping[str, str] | None = None
) -> Outcome:
    """Assemble the outcome of a run from the run's files; raises SnapshotError if one cannot be read.

    The verdict `open` and known outcomes from an earlier report are kept, even if tasks have been cleared
    since then. `gate_verdict` is None if the run did not reach the gate; `kept` are destinations that the leader
    might still remember, by bundle.
    """
    request = RunRequest.read(run)
    earlier = Outcome.read_if_exists(run)
    opened = gate_verdict is Reason.OPEN or (earlier is not None and earlier.verdict is Reason.OPEN)
    verdict = Reason.OPEN if opened else gate_verdict or (Reason.BLOCKED if _is_blocked(run) else Reason.UNFINISHED)
    moved, split = (earlier.moves, earlier.splits) if earlier else ((), ())
    moves = _latest_outcomes(read_moves(run), unmoved, moved, read_move_outcomes(run)) if opened else ()
    return Outcome(
        plan_id=run.name,
        cluster=request.cluster,
        airflow_run_id=request.airflow_run_id,
        ended_at=now,
        verdict=verdict,
        moves=moves,
        destinations_kept=dict(kept or {}),
        splits=_latest_outcomes(read_splits(run), unsplit, split, outcome_by_split(run)) if opened else (),
        client_gap=client_gap_summary(moves),
    )


def client_gap_summary(moves: Iterable[MoveOutcome]) -> ClientGapSummary | None:
    return ClientGapSummary.from_gaps(move.client_gap for move in moves if move.attempts)


def _is_blocked(run: StoragePath) -> bool:
    validation = Validation.read_if_exists(run)
    return validation is not None and bool(validation.reason_counts(Effect.BLOCK))


def _latest_outcomes(
    planned_items: Iterable[_Planned],
    make_unattempted: Callable[[_Planned, Reason], _Outcome],
    earlier_outcomes: Iterable[_Outcome],
    recorded_outcomes: Mapping[str, _Outcome],
) -> tuple[_Outcome, ...]:
    last = {item.bundle: make_unattempted(item, Reason.NOT_ATTEMPTED) for item in planned_items}
    last |= {outcome.bundle: outcome for outcome in earlier_outcomes if not outcome.reason.has(Trait.NOT_BEGUN)}
    return tuple((last | dict(recorded_outcomes)).values())


RETRIED = Trait.PASSING | Trait.RETRIED
"""Traits of failures that a retry of the task may fix."""

MAX_RETURN_TRIES = 3
"""Maximum consecutive runs that try to return a bundle to a restarted broker but see it land on another broker."""

_Record = TypeVar("_Record", Unload, BundleSplit)


def items_left(planned_items: Iterable[_Planned], outcomes: Mapping[str, MoveOutcome | SplitOutcome]) -> list[_Planned]:
    done = {bundle for bundle, outcome in outcomes.items() if not outcome.reason.has(RETRIED)}
    return [item for item in planned_items if item.bundle not in done]


def records_of_plan(records: Mapping[str, _Record], plan_id: str) -> dict[str, _Record]:
    return {bundle: record for bundle, record in records.items() if record.plan_id == plan_id}


def failed_moves(
    outcomes: Iterable[MoveOutcome], unloads: Mapping[str, Unload], closed_at: datetime | None
) -> set[str]:
    """Return the bundles whose moves count towards the circuit breaker's limit `failed_moves`.

    Failures before an operator last closed the breaker (None: never) do not count.
    """
    failed = {outcome.bundle for outcome in outcomes if outcome.counts_as_failed}
    return {bundle for bundle in failed if closed_at is None or bundle not in unloads or unloads[bundle].at > closed_at}


def write_outcomes(file: StoragePath, outcomes: Mapping[str, MoveOutcome | SplitOutcome]) -> None:
    file.write_json([outcomes[bundle].model_dump(mode="json") for bundle in sorted(outcomes)])


def records_to_keep(
    records: Mapping[str, _Record], outcomes: Iterable[MoveOutcome | SplitOutcome], plan_id: str
) -> dict[str, _Record]:
    """Return the records to keep after a run, without those of planned bundles that it did not change.

    As in Pulsar, an unload counts only after success (ModularLoadManagerImpl). A record of this plan
    without an outcome is kept as interrupted, because its result is unknown.
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
