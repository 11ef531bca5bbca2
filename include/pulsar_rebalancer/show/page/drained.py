"""The names of bundles that stay: bundles left on drained brokers, and bundles considered by a plan but not moved."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.names import is_heartbeat
from pulsar_rebalancer.reasons import Reason, Trait
from pulsar_rebalancer.run.plan import considered
from pulsar_rebalancer.show.page.brokers import drained
from pulsar_rebalancer.show.page.plan_view import DrainView, StayView

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pulsar_rebalancer.run.tables import Row
    from pulsar_rebalancer.show.page.recent_runs import Run
    from pulsar_rebalancer.state.manual_plans import Drain
    from pulsar_rebalancer.storage.path import StoragePath

LISTED = 1000
"""Maximum number of bundles named for each drained broker or plan."""

_NEVER_MOVE = (Reason.SYSTEM_NAMESPACE, Reason.NO_TOPIC)
"""Why bundles always stay on a drained broker."""


def stay_views(folder: StoragePath) -> tuple[StayView, ...]:
    """Return the first bundles that a run's plan considered but does not move, by reason and name.

    Raises:
        SnapshotError: the run has no readable plan.
    """
    return _named((row["reason"], row["bundle"], row["source"]) for row in considered(folder) if not row["taken"])


def drain_views(run: Run | None, drains: Mapping[str, Drain]) -> Iterator[DrainView]:
    """Yield the drained brokers, each with the bundles that are still there after a run, except heartbeat bundles.

    Args:
        run: the run on the page; None if there is none.
    """
    if run is None or run.summary is None:
        yield from (DrainView(broker=broker, drained=drained(drain)) for broker, drain in drains.items())
        return
    served = run.summary.drains
    own: Counter[str] = Counter()
    left: dict[str, dict[str, tuple[str, str, str]]] = {broker: {} for broker in drains}
    for row in _considered(run.folder) if served else ():
        if is_heartbeat(row["bundle"]):
            own[row["source"]] += 1
            continue
        reason = _left_by(run, row["bundle"]) if row["taken"] else row["reason"]
        if reason and row["source"] in left:
            # A bundle has a second row if a plan also considers it for its former broker.
            left[row["source"]].setdefault(row["bundle"], (reason, row["bundle"], row["source"]))
    for broker, drain in drains.items():
        bundles = served[broker].bundles if broker in served else None
        never = own[broker] + sum(reason in _NEVER_MOVE for reason, *_ in left[broker].values())
        ended = [move for move in run.moves.values() if move.source == broker]
        yield DrainView(
            broker=broker,
            drained=drained(drain),
            bundles=None if bundles is None else bundles - own[broker],
            movable=None if bundles is None else max(0, bundles - never),
            moving=served[broker].moving - len(ended) if broker in served and run.outcome is None else 0,
            gone=sum(move.reason.has(Trait.NEW_OWNER) for move in ended),
            left=_named(left[broker].values()),
            more=max(0, len(left[broker]) - LISTED),
        )


def _left_by(run: Run, bundle: str) -> str:
    """Return why one of the plan's bundles has no new owner; empty if it has a new owner or might still get one."""
    move = run.moves.get(bundle)
    if move is None:
        return run.outcome.verdict if run.outcome else ""
    return "" if move.reason.has(Trait.NEW_OWNER) else move.reason


def _considered(folder: StoragePath) -> list[Row]:
    try:
        return considered(folder)
    except SnapshotError:
        return []


def _named(rows: Iterable[tuple[str, str, str]]) -> tuple[StayView, ...]:
    return tuple(
        StayView(bundle=bundle, broker=broker, reason=reason, meaning=Reason(reason).meaning)
        for reason, bundle, broker in sorted(rows)[:LISTED]
    )
