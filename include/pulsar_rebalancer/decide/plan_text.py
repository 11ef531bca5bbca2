"""A manual plan as text for people and as JSON for programs, before it is carried out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pulsar_rebalancer.run.harm import last_time
from pulsar_rebalancer.run.plan import read_moves
from pulsar_rebalancer.texts import number_of, one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import JsonValue

    from pulsar_rebalancer.run.harm import Harm
    from pulsar_rebalancer.run.plan import Summary
    from pulsar_rebalancer.storage.path import StoragePath

LISTED = 20
"""Maximum number of listed moves, and of listed brokers."""


def document(summary: Summary, run: StoragePath, last: Mapping[str, Harm]) -> dict[str, JsonValue]:
    """Return the plan as JSON for programs. Only its first moves and the most loaded brokers are included.

    Args:
        last: what the last move of each bundle cost clients, by bundle, if known.
    """
    hand, moves = summary.by_hand, read_moves(run)[:LISTED]
    return {
        "plan": summary.hash if summary.has_effect else "",
        "until": summary.shown_until.isoformat(timespec="seconds"),
        "bundles": summary.bundles_taken,
        "moves": [{"bundle": m.bundle, "from": m.source, "to": m.destination} for m in moves],
        "splits": list(summary.splits_told),
        "stay": {str(reason): count for reason, count in summary.bundles_passed_over.items()},
        "unknown": list(hand.unknown) if hand else [],
        "scores": {name: [round(before, 2), round(after, 2)] for name, (before, after) in _hottest(summary)},
        "disturbed": {"topics": hand.topics, "producers": hand.producers, "consumers": hand.consumers} if hand else {},
        "last_seconds": {m.bundle: last[m.bundle].clients_seconds for m in moves if m.bundle in last},
        "folder": run.uri,
    }


def text(summary: Summary, run: StoragePath, dag_id: str, last: Mapping[str, Harm]) -> str:
    """Return the plan as a few lines of text, with the command that carries it out.

    Args:
        dag_id: id of the DAG that carries out the plan.
        last: what the last move of each bundle cost clients, by bundle, if known.
    """
    hand, moves = summary.by_hand, read_moves(run)
    lines = [f"{summary.sentence} (dry run: nothing was moved)"]
    for move in moves[:LISTED]:
        harm = f"; last time, {last[move.bundle].text}" if move.bundle in last else ""
        lines.append(f"  {move.bundle}: {move.source} -> {move.destination}{harm}")
    if summary.bundles_taken > LISTED:
        lines.append(f"  and {summary.bundles_taken - LISTED} more: {run.uri}/plan/moves.parquet")
    lines += [
        f"  {number_of(count, 'bundle')} {'stays' if count == 1 else 'stay'}: {reason}. {reason.meaning}"
        for reason, count in summary.bundles_passed_over.items()
    ]
    lines += [f"  no broker reports {one_line(name, 512)}" for name in (hand.unknown if hand else ())]
    if hand is not None and summary.has_effect:
        lines += [f"  score of {name}: {before:.1f} -> {after:.1f}" for name, (before, after) in _hottest(summary)]
        disturbed = {"topic": hand.topics, "producer": hand.producers, "consumer": hand.consumers}
        lines.append(f"  disturbed: {', '.join(number_of(count, noun) for noun, count in disturbed.items())}")
        lines += [f"  last time: {last_time(last.values(), len(moves))}"] if moves else []
        until, conf = document(summary, run, last)["until"], json.dumps({"plan": summary.hash})
        lines.append(f"To carry it out before {until}: airflow dags trigger {dag_id} --conf '{conf}'")
    return "\n".join(lines)


def _hottest(summary: Summary) -> list[tuple[str, tuple[float, float]]]:
    scores = summary.by_hand.scores if summary.by_hand else {}
    return sorted(scores.items(), key=lambda item: (-item[1][1], item[0]))[:LISTED]
