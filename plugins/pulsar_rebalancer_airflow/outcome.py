"""The end of a run: `outcome.json` beside the plan, and the same for people to read."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict

from pulsar_rebalancer import documents
from pulsar_rebalancer.plan import Summary, read_moves
from pulsar_rebalancer.reasons import Effect
from pulsar_rebalancer.run import RunRequest, Validation
from pulsar_rebalancer.unloading import MoveOutcome
from pulsar_rebalancer_airflow.wave_history import read_outcomes

if TYPE_CHECKING:
    from collections.abc import Container
    from datetime import datetime

    from pulsar_rebalancer.storage import Folder

LISTED = 20
"""How many moves the log names one by one."""

_LANDED = frozenset({"moved", "astray"})


class Outcome(BaseModel):
    """`outcome.json`: how a run ended.

    Attributes:
        plan_id: name of the run's folder.
        ended_at: when report wrote this.
        verdict: the gate's reason code; `blocked` when validation stopped the run, `unfinished` when another task did.
        moves: every move of a plan whose gate was open; empty otherwise.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: int = documents.VERSION
    plan_id: str
    cluster: str
    airflow_run_id: str
    ended_at: AwareDatetime
    verdict: str
    moves: tuple[MoveOutcome, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        """Moves by reason code, most frequent first."""
        return dict(Counter(move.reason for move in self.moves).most_common())

    @property
    def landed(self) -> int:
        """Bundles that have another owner than before the run."""
        return sum(move.reason in _LANDED for move in self.moves)

    def write(self, run: Folder) -> None:
        """Write to `<run>/outcome.json`."""
        (run / "outcome.json").write_json(self.model_dump(mode="json"))

    @classmethod
    def read(cls, run: Folder) -> Self:
        """Read from `<run>/outcome.json`.

        Raises:
            SnapshotError: `file_missing`, `file_damaged` or `file_version`.
        """
        return documents.read(cls, run / "outcome.json")


def conclude(run: Folder, gate: str, begun: Container[str], now: datetime) -> Outcome:
    """The outcome of a run from its files.

    Args:
        run: the run's folder.
        gate: the gate's reason code; empty when it was not asked.
        begun: bundles whose wave was begun, as the unload history has it.
        now: the present.

    Raises:
        SnapshotError: a file of the run cannot be read.
    """
    request = RunRequest.read(run)
    return Outcome(
        plan_id=run.name,
        cluster=request.cluster,
        airflow_run_id=request.airflow_run_id,
        ended_at=now,
        verdict=gate or ("blocked" if _blocked(run) else "unfinished"),
        moves=_moves(run, begun) if gate == "open" else (),
    )


def _blocked(run: Folder) -> bool:
    return (run / "validation.json").exists() and bool(Validation.read(run).reasons(Effect.BLOCK))


def _moves(run: Folder, begun: Container[str]) -> tuple[MoveOutcome, ...]:
    known = read_outcomes(run)
    return tuple(
        known.get(move.bundle)
        or MoveOutcome(
            bundle=move.bundle,
            source=move.source,
            destination=move.destination,
            reason="interrupted" if move.bundle in begun else "not_attempted",
        )
        for move in read_moves(run)
    )


def describe(outcome: Outcome, run: Folder) -> str:
    """The run in a few lines: scores, pairs, hits, verdict, what was moved and where it is now."""
    lines = [f"Cluster {outcome.cluster}, run {run.uri}"]
    if (run / "plan" / "summary.json").exists():
        lines += _decided(Summary.read(run))
    lines.append(f"  verdict: {outcome.verdict}")
    if outcome.moves:
        verified = sum(move.ok for move in outcome.moves)
        counts = ", ".join(f"{count} {reason}" for reason, count in outcome.counts.items())
        lines.append(f"  moves:   {verified} of {len(outcome.moves)} verified on their planned broker ({counts})")
    for move in outcome.moves[:LISTED]:
        lines.append(f"    {move.bundle}: {move.source} -> {move.destination}: {move.reason} {move.error}".rstrip())
    if len(outcome.moves) > LISTED:
        lines.append(f"    and {len(outcome.moves) - LISTED} more: {run.uri}/outcome.json")
    return "\n".join(lines)


def _decided(summary: Summary) -> list[str]:
    scores = "no broker was judged"
    if summary.score_min is not None and summary.score_max is not None:
        span = f"{summary.score_min:.1f} to {summary.score_max:.1f} % (range {summary.score_range:.1f})"
        scores = f"{span} over {summary.brokers} brokers"
    settings = summary.resolved.settings
    low, high = summary.hits
    return [
        f"  scores:  {scores}",
        f"  pairs:   {summary.pairs}, {summary.pairs_over} at or above {settings.low_threshold:g}, "
        f"{summary.pairs_fired} fired; {summary.bundles_taken} bundles to be moved",
        f"  hits:    most low {low} of {settings.hit_count_low}, most high {high} of {settings.hit_count_high} "
        f"({summary.counting})",
    ]
