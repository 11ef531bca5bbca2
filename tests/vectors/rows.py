"""Small clusters by hand, and what holds for the rows of every shedder's answer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pulsar_rebalancer.settings import Settings
from pulsar_rebalancer.snapshot import DECISIONS, MOVES
from pulsar_rebalancer.strategies.outcome import complete, reasons_by_pair
from pulsar_rebalancer.strategies.view import View

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pulsar_rebalancer.strategies.view import Shed

MIB = 1048576


def broker(name: str, cpu: float, *, bundles: int = 0, rate: float = 0, throughput: float = 0, **more: Any) -> Any:
    """A row of the brokers table; `cpu` in percent."""
    row = {"broker": name, "cpu_usage": cpu, "cpu_limit": 100.0, "bundles": bundles, "left_out": None}
    return row | {"msg_rate_in": float(rate), "msg_throughput_in": float(throughput)} | more


def bundle(owner: str, name: str, *, rate: float = 0, throughput: float = 0, **more: Any) -> Any:
    """A row of the bundles table; the rate is inbound, the throughput outbound, both now and as a mean."""
    row = {"broker": owner, "bundle": name, "policy": None, "reason": None}
    row |= dict.fromkeys(("msg_rate_out", "msg_throughput_in", "topics", "producers", "consumers", "cache_size"), 0)
    row |= {"msg_rate_in": float(rate), "msg_throughput_out": float(throughput)}
    return row | {"msg_rate": float(rate), "msg_throughput": float(throughput)} | more


def view(brokers: Sequence[Any], bundles: Sequence[Any], settings: Settings | None = None, **more: Any) -> View:
    """A sample of one cluster."""
    return View("c", brokers, bundles, settings or Settings(), **more)


def taken(result: Shed) -> list[str]:
    """Bundles taken, in order."""
    return [move["bundle"] for move in result.moves if move["taken"]]


def completed(result: Shed) -> list[Any]:
    """The decisions, as they are when neither placement nor caps keep anything back."""
    going = [move for move in result.moves if move["taken"]]
    return complete(result.decisions, going, reasons_by_pair(result.moves))


def reasons(result: Shed) -> dict[str, str]:
    """Reason code by source."""
    return {row["source"]: row["reason"] for row in completed(result)}


def check(sample: View, result: Shed) -> None:
    """What the interface promises for every answer."""
    assert all(list(row) == DECISIONS.names for row in result.decisions)
    assert all(set(row) == set(MOVES.names) for row in result.moves)
    assert json.loads(json.dumps([result.decisions, result.moves, result.kept])) == [*result[:3]]
    assert result.sentence
    judged = [row for row in completed(result) if row["pair"] is not None]
    assert [row["pair"] for row in judged] == list(range(len(judged)))
    assert all(row["reason"] and row["explanation"] for row in judged)
    assert all(row["source_score"] is not None for row in judged)
    named = {row[end] for row in result.decisions for end in ("source", "destination")} - {None}
    assert named == {row["broker"] for row in sample.brokers}
    fired = {row["pair"]: row["measure"] for row in judged if row["fired"]}
    assert all((row["measure"] is None) == (row["target"] is None) == (not row["fired"]) for row in judged)
    assert {row["pair"]: row["measure"] for row in result.moves}.items() <= fired.items()
    giving = {row["pair"] for row in result.moves if row["taken"]}
    assert giving == {row["pair"] for row in judged if row["reason"] == "fired"}
