"""What any strategy hands to the plan's writer, once its moves lie in `plan/moves.parquet`."""

from __future__ import annotations

from typing import Any, NamedTuple


class Decided(NamedTuple):
    """One decided run.

    Attributes:
        decisions: rows of the decisions table, before the moves are counted in (`outcome.complete`).
        source_traffic: current traffic of the sources, in the measure of their moves.
        kept: what the strategy and its placement keep; AvgShedder keeps its hit counts in the decisions.
        sentence: what was decided and why.
    """

    decisions: list[dict[str, Any]]
    source_traffic: dict[str, float]
    kept: dict[str, Any]
    sentence: str
