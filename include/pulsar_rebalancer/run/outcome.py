"""The outcome of a run, its moves and its splits: `outcome.json`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, ClassVar, TypeVar

from pydantic import AwareDatetime, BaseModel, ConfigDict

from pulsar_rebalancer.reasons import Effect, Reason, Trait
from pulsar_rebalancer.run.harm import Harm, HarmSummary
from pulsar_rebalancer.run.plan import Move, read_moves
from pulsar_rebalancer.run.request import RunRequest, Validation
from pulsar_rebalancer.run.splits import Split, SplitOutcome, not_split, read_outcomes, read_splits
from pulsar_rebalancer.storage.documents import VersionedDocument, load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime

    from pulsar_rebalancer.storage.path import StoragePath


class MoveOutcome(BaseModel):
    """The outcome of one move.

    Attributes:
        bundle: `tenant/namespace/0x…_0x…`.
        source: brokerId of the bundle's owner according to the plan.
        destination: brokerId of the new owner according to the plan.
        owner: brokerId of the owner that the brokers reported after the move; empty if there is none or it could not be
            read.
        attempts: number of unload requests that were not refused; 0 if the bundle was not unloaded.
        seconds: seconds from the first request to the outcome.
        error: the error message from a broker or the connection, if it caused the outcome; it contains no secrets.
        destination_kept: True if the leader might still remember the destination, although the unload failed.
        harm: cost of the move for the bundle's clients; None if it is unknown, or if the bundle was not unloaded.
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
    harm: Harm | None = None

    @property
    def ok(self) -> bool:
        """Return whether the bundle is on its planned destination."""
        return self.reason.has(Trait.ON_PLANNED_BROKER)

    @property
    def failed(self) -> bool:
        """Return whether the move counts towards the breaker's limit `failed_moves`. Interrupted moves do not count."""
        ended = self.reason is not Reason.INTERRUPTED
        return ended and not self.ok and not self.reason.has(Trait.SETTLED | Trait.NOT_BEGUN)

    @property
    def read_back(self) -> str:
        """Return a phrase that says who owns the bundle after the move."""
        return f"owner {self.owner or '-'}"


def not_moved(move: Move, reason: Reason) -> MoveOutcome:
    """Return an outcome that says why a move was not started."""
    return MoveOutcome(bundle=move.bundle, source=move.source, destination=move.destination, reason=reason)


def wave_file(run: StoragePath, wave: int) -> StoragePath:
    """Return the file with the outcomes of one wave."""
    return run / "unload" / f"wave-{wave:02d}.json"


def read_wave(file: StoragePath) -> dict[str, MoveOutcome]:
    """Return the outcomes of one wave, by bundle.

    Raises:
        SnapshotError: the file cannot be read.
    """
    outcomes = (load(MoveOutcome, row, file.uri) for row in file.read_json())
    return {outcome.bundle: outcome for outcome in outcomes}


def read_waves(run: StoragePath) -> dict[str, MoveOutcome]:
    """Return the outcomes of all waves of a run, by bundle.

    Raises:
        SnapshotError: a file cannot be read.
    """
    folder = run / "unload"
    files = [folder / name for name in folder.names() if name.startswith("wave-")]
    return {bundle: outcome for file in files for bundle, outcome in read_wave(file).items()}


_Planned = TypeVar("_Planned", Move, Split)
_Outcome = TypeVar("_Outcome", MoveOutcome, SplitOutcome)


class Outcome(VersionedDocument):
    """`outcome.json`: the outcome of a run.

    Attributes:
        plan_id: name of the run's folder.
        ended_at: when the *report* task wrote this document.
        verdict: the gate's reason code; `blocked` if validation stopped the run, `unfinished` if another task failed.
        moves: outcomes of all the plan's moves; empty if the gate was not open.
        destinations_kept: destinations from this or an earlier run that the leader might still remember, by bundle.
        splits: outcomes of all the plan's splits; empty if the gate was not open.
        in_force: a sentence about the orders in force at the time of writing (such as a drain), and who gave them.
        harm: cost of the moves for their clients; None if no bundle was unloaded.
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
    harm: HarmSummary | None = None

    @property
    def counts(self) -> dict[Reason, int]:
        """Return the number of moves for each reason, the most frequent reason first."""
        return dict(Counter(move.reason for move in self.moves).most_common())

    @property
    def split_counts(self) -> dict[Reason, int]:
        """Return the number of splits for each reason, the most frequent reason first."""
        return dict(Counter(split.reason for split in self.splits).most_common())

    @property
    def split(self) -> int:
        """Return the number of bundles that the run has split."""
        return sum(split.reason is Reason.SPLIT for split in self.splits)

    @property
    def landed(self) -> int:
        """Return the number of bundles with a new owner after the run."""
        return sum(move.reason.has(Trait.NEW_OWNER) for move in self.moves)


def conclude(run: StoragePath, gate: Reason | None, now: datetime, kept: Mapping[str, str] | None = None) -> Outcome:
    """Assemble the outcome of a run from the run's files.

    The verdict `open` and known outcomes from an earlier report are kept, even if tasks have been cleared since then.

    Args:
        gate: the gate's verdict; None if the run did not reach the gate.
        kept: destinations that the leader might still remember, by bundle.

    Raises:
        SnapshotError: one of the run's files cannot be read.
    """
    request = RunRequest.read(run)
    earlier = Outcome.find(run)
    opened = gate is Reason.OPEN or (earlier is not None and earlier.verdict is Reason.OPEN)
    verdict = Reason.OPEN if opened else gate or (Reason.BLOCKED if _blocked(run) else Reason.UNFINISHED)
    moved, split = (earlier.moves, earlier.splits) if earlier else ((), ())
    moves = _latest(read_moves(run), not_moved, moved, read_waves(run)) if opened else ()
    return Outcome(
        plan_id=run.name,
        cluster=request.cluster,
        airflow_run_id=request.airflow_run_id,
        ended_at=now,
        verdict=verdict,
        moves=moves,
        destinations_kept=dict(kept or {}),
        splits=_latest(read_splits(run), not_split, split, read_outcomes(run)) if opened else (),
        harm=harm_of(moves),
    )


def harm_of(moves: Iterable[MoveOutcome]) -> HarmSummary | None:
    """Return the cost of moves for their clients; None if no bundle was unloaded."""
    return HarmSummary.of(move.harm for move in moves if move.attempts)


def _blocked(run: StoragePath) -> bool:
    validation = Validation.find(run)
    return validation is not None and bool(validation.reasons(Effect.BLOCK))


def _latest(
    planned: Iterable[_Planned],
    unknown: Callable[[_Planned, Reason], _Outcome],
    earlier: Iterable[_Outcome],
    found: Mapping[str, _Outcome],
) -> tuple[_Outcome, ...]:
    """Return the latest outcome of each bundle: from its task, else from an earlier report, else from the plan."""
    last = {item.bundle: unknown(item, Reason.NOT_ATTEMPTED) for item in planned}
    last |= {outcome.bundle: outcome for outcome in earlier if not outcome.reason.has(Trait.NOT_BEGUN)}
    return tuple((last | dict(found)).values())
