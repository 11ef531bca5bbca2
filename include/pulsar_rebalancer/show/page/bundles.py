"""Bundles on the page: those found by name, and those that stay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

import pyarrow.compute as pc

from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.names import is_heartbeat
from pulsar_rebalancer.orders.manual_plans import Drain
from pulsar_rebalancer.reasons import Reason, Trait
from pulsar_rebalancer.run.plan import candidate_rows
from pulsar_rebalancer.run.tables import Row
from pulsar_rebalancer.show.page.brokers import drained
from pulsar_rebalancer.show.page.page_model import BundleFound, BundlesFound, DrainView, StayView
from pulsar_rebalancer.show.page.recent_runs import Run, latest
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer.storage.path import StoragePath

FOUND_LISTED = 50

_COLUMNS = ["bundle", "broker", "topics", "msg_throughput_in", "msg_throughput_out"]


def find_bundles(storage: ClusterStorage, part: str, now: datetime) -> BundlesFound:
    """Return the bundles whose names contain a text, those with the most traffic first.

    Raises SnapshotError if the latest sample cannot be read.
    """
    run, _ = latest(storage, now)
    if run is None:
        return BundlesFound()
    table = run.snapshot.table("bundles", _COLUMNS)
    table = table.filter(pc.match_substring(table["bundle"], part))
    table = table.append_column("traffic", pc.add(table["msg_throughput_in"], table["msg_throughput_out"]))
    largest = table.sort_by([("traffic", "descending"), ("bundle", "ascending")]).slice(0, FOUND_LISTED)
    rows = largest.select(list(BundleFound.model_fields)).to_pylist()
    return BundlesFound(bundles=tuple(BundleFound(**row) for row in rows), all=table.num_rows)


NAMES_LISTED = 1000
"""Maximum number of bundles named for each drained broker or plan."""

_NEVER_MOVE = (Reason.SYSTEM_NAMESPACE, Reason.NO_TOPIC)
"""Why bundles always stay on a drained broker."""


def stay_views(folder: StoragePath) -> tuple[StayView, ...]:
    """Return the first bundles considered but not moved. Raises SnapshotError if no plan is readable."""
    return _named((row["reason"], row["bundle"], row["source"]) for row in candidate_rows(folder) if not row["taken"])


def drain_views(run: Run | None, drains: Mapping[str, Drain]) -> Iterator[DrainView]:
    """Yield the drained brokers with the bundles still there after a run, except heartbeat bundles."""
    if run is None or run.summary is None:
        yield from (DrainView(broker=broker, drained=drained(drain)) for broker, drain in drains.items())
        return
    # The progress of an earlier drain says nothing about this one.
    served = {
        name: each for name, each in run.summary.drains.items() if name in drains and each.since == drains[name].at
    }
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
            more=max(0, len(left[broker]) - NAMES_LISTED),
        )


def _left_by(run: Run, bundle: str) -> str:
    """Return why a bundle has no new owner; empty if it has one or might still get one."""
    move = run.moves.get(bundle)
    if move is None:
        return run.outcome.verdict if run.outcome else ""
    return "" if move.reason.has(Trait.NEW_OWNER) else move.reason


def _considered(folder: StoragePath) -> list[Row]:
    try:
        return candidate_rows(folder)
    except SnapshotError:
        return []


def _named(rows: Iterable[tuple[str, str, str]]) -> tuple[StayView, ...]:
    return tuple(
        StayView(bundle=bundle, broker=broker, reason=reason, meaning=Reason(reason).meaning)
        for reason, bundle, broker in sorted(rows)[:NAMES_LISTED]
    )
