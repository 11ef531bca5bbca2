"""Between tables and the typed core: the one place where rows of brokers, decisions and moves are dictionaries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.tables import DECISIONS, MOVES, Measure
from pulsar_rebalancer.strategies.sample import CandidateMove, Decision

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pulsar_rebalancer.run.tables import Cell


def decision_row(cluster: str, decision: Decision) -> dict[str, Cell]:
    """Return the row of the decisions table."""
    return {"cluster": cluster} | {name: getattr(decision, name) for name in DECISIONS.names if name != "cluster"}


def decision(row: Mapping[str, Any]) -> Decision:
    """Return what a row of the decisions table says; further columns are passed over."""
    columns = {name: row[name] for name in DECISIONS.names if name != "cluster"}
    measure = Measure(row["measure"]) if row["measure"] else None
    return Decision(**columns | {"reason": Reason(row["reason"]), "measure": measure})


def move_row(cluster: str, move: CandidateMove) -> dict[str, Cell]:
    """Return the row of the moves table."""
    return {"cluster": cluster} | {name: getattr(move, name) for name in MOVES.names if name != "cluster"}


def move_table(cluster: str, moves: Sequence[CandidateMove]) -> pa.Table:
    """Return the moves table, column by column: there may be hundreds of thousands."""
    columns: dict[str, Any] = dict.fromkeys(MOVES.names, ())
    if moves:
        columns |= zip(CandidateMove._fields, zip(*moves, strict=True), strict=True)
    taken = [reason is Reason.TAKEN for reason in columns["reason"]]
    columns |= {"cluster": pa.repeat(cluster, len(moves)), "taken": taken}
    return pa.table(columns, schema=MOVES)


def move(row: Mapping[str, Any]) -> CandidateMove:
    """Return what a row of the moves table says."""
    columns = {name: row[name] for name in MOVES.names if name not in ("cluster", "taken")}
    return CandidateMove(**columns | {"reason": Reason(row["reason"]), "measure": Measure(row["measure"])})
