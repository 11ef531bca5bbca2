"""What every shedder sees of a cluster and what it answers: the seam between strategies and the rest.

A shedder is a function `shed(view, kept) -> Shed` in a module of its own, chosen by name in `strategies.registry`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from pulsar_rebalancer.snapshot import DECISIONS
from pulsar_rebalancer.strategies.candidates import is_heartbeat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pulsar_rebalancer.settings import Settings

Row = dict[str, Any]
MIB = 1048576


def free(bundle: str, source: str, destination: str) -> str | None:
    """No policy forbids anything."""
    return None


@dataclass(frozen=True)
class View:
    """One sample of one cluster.

    Attributes:
        cluster: name for the rows.
        brokers: rows of the brokers table, each with `left_out`: why it is neither source nor destination, or None.
            A broker without a report is left out.
        bundles: rows of the bundles table (`msg_rate_in` … `msg_throughput_out` are what the broker reports now), each
            with its short-term means of in plus out, `msg_rate` and `msg_throughput`, and `reason`: why it must stay,
            or None.
        settings: effective settings.
        forced: the run acts without waiting for hits.
        unloaded_brokers: seconds from a broker's last unload to its report, by broker; negative if the report is older.
        forbids: reason code why a bundle must not go from a source to a destination, or None.
    """

    cluster: str
    brokers: Sequence[Mapping[str, Any]]
    bundles: Sequence[Mapping[str, Any]]
    settings: Settings
    forced: bool = False
    unloaded_brokers: Mapping[str, float] = field(default_factory=dict)
    forbids: Callable[[str, str, str], str | None] = free

    @cached_property
    def judged(self) -> list[Mapping[str, Any]]:
        """Rows of the brokers that are not left out, by name: ties are broken by it."""
        rows = (row for row in self.brokers if not row.get("left_out"))
        return sorted(rows, key=lambda row: str(row["broker"]))

    def bundles_of(self, broker: str) -> list[Mapping[str, Any]]:
        """The bundles that a broker reports, heartbeat namespaces left out, by name."""
        rows = (row for row in self.by_broker.get(broker, ()) if not is_heartbeat(row["bundle"]))
        return sorted(rows, key=lambda row: str(row["bundle"]))

    @cached_property
    def by_broker(self) -> dict[str, list[Mapping[str, Any]]]:
        """All bundles, by the broker that reports them."""
        found: dict[str, list[Mapping[str, Any]]] = {}
        for row in self.bundles:
            found.setdefault(row["broker"], []).append(row)
        return found


class Shed(NamedTuple):
    """What one run of a shedder answers.

    Attributes:
        decisions: rows of the decisions table, a row per broker or pair looked at, then those left out. They say why
            bundles are to leave; what became of that is added once policies and caps were asked (`outcome.complete`).
        moves: rows of the moves table: every candidate bundle of what fired, taken or passed over; `destination` is
            None where placement is to name it, `wave` is None.
        kept: what the strategy keeps for the next run, a JSON document.
        sentence: what was found, for the terminal and the summary.
    """

    decisions: list[Row]
    moves: list[Row]
    kept: dict[str, Any]
    sentence: str


def decision(view: View, broker: str, **columns: Any) -> Row:
    """A row of the decisions table about one broker; columns that are not given are null."""
    start: Row = {"cluster": view.cluster, "source": broker, "fired": False, "bundles_taken": 0, "traffic_taken": 0.0}
    return dict.fromkeys(DECISIONS.names) | start | columns


def left_out(view: View) -> Iterator[Row]:
    """Rows of the decisions table for the brokers that are left out, by name."""
    for row in sorted(view.brokers, key=lambda row: str(row["broker"])):
        if row.get("left_out"):
            yield decision(view, row["broker"], reason=row["left_out"])


def move(
    view: View, bundle: Mapping[str, Any], *, number: int, rank: int, measure: str, reason: str, destination: str | None
) -> Row:
    """A row of the moves table.

    Args:
        view: the cluster.
        bundle: a row of the view's bundles.
        number: `pair` of the decision that it belongs to.
        rank: its position in the walk over the source's bundles.
        measure: `msg_rate` or `msg_throughput`.
        reason: `taken`, or why it is passed over.
        destination: the planned broker; None when placement names it.
    """
    return {
        "cluster": view.cluster,
        "pair": number,
        "source": bundle["broker"],
        "destination": destination,
        "bundle": bundle["bundle"],
        "rank": rank,
        "measure": measure,
        "traffic": bundle[measure],
        "msg_rate": bundle["msg_rate"],
        "msg_throughput": bundle["msg_throughput"],
        "taken": reason == "taken",
        "reason": reason,
        "wave": None,
    }


def amount(measure: str, figure: float) -> str:
    """A message rate or a throughput for a sentence."""
    return f"{figure:,.0f} msg/s" if measure == "msg_rate" else f"{figure / MIB:,.2f} MiB/s"


def counted(number: int, noun: str) -> str:
    """A number of things for a sentence."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def amount_of(moves: Sequence[Mapping[str, Any]]) -> str:
    """Bundles that move, for a sentence."""
    if not moves:
        return "no bundle"
    traffic = amount(moves[0]["measure"], math.fsum(row["traffic"] for row in moves))
    return f"{counted(len(moves), 'bundle')} with {traffic}"
