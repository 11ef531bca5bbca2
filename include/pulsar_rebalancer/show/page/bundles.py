"""Bundles on the page: those found by name, and those that stay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.names import is_heartbeat, is_in_bundle
from pulsar_rebalancer.orders.manual_plans import Drain
from pulsar_rebalancer.reasons import Reason, Trait
from pulsar_rebalancer.run.plan import candidate_rows, candidates_table, read_decisions
from pulsar_rebalancer.run.snapshot import Snapshot
from pulsar_rebalancer.run.tables import Measure, Row
from pulsar_rebalancer.show.page.brokers import drain_text, pair_views, short_name_by_broker
from pulsar_rebalancer.show.page.page_model import DrainView, FoundBundle, FoundBundles, PairView, StayView
from pulsar_rebalancer.show.page.recent_runs import Run, latest_runs
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer.strategies.sample import amount_text

MAX_FOUND_LISTED = 50

_FOUND_COLUMNS = ["bundle", "broker", "topics", "msg_throughput_in", "msg_throughput_out"]

Column: TypeAlias = Any
KeepingRules: TypeAlias = Callable[[Snapshot, Collection[str]], dict[str, Reason]]


def find_bundles(storage: ClusterStorage, text: str, now: datetime, keeping_rules: KeepingRules) -> FoundBundles:
    """Return the bundles of a broker, of a topic, or with a text in their names, those with the most traffic first.

    `keeping_rules` returns the rule that keeps each of some bundles (`decide.stays.keeping_rules`).

    Raises SnapshotError if the latest sample cannot be read.
    """
    begun, ended = latest_runs(storage, now)
    run = begun if begun is None or begun.summary else ended or begun
    if run is None:
        return FoundBundles()
    table = run.snapshot.read_table("bundles", _FOUND_COLUMNS)
    labels = short_name_by_broker([sample.broker for sample in run.brokers])
    broker = next((name for name, label in labels.items() if text in (name, label)), "")
    table = table.filter(_topic_mask(table["bundle"], text) if "://" in text else _match_mask(table, text, broker))
    table = table.append_column("traffic", pc.add(table["msg_throughput_in"], table["msg_throughput_out"]))
    largest = table.sort_by([("traffic", "descending"), ("bundle", "ascending")]).slice(0, MAX_FOUND_LISTED)
    rows = largest.select(["bundle", "broker", "traffic", "topics"]).to_pylist()
    stays = _StayExplainer(run, [row["bundle"] for row in rows], keeping_rules)
    found = tuple(FoundBundle(**row, **stays.explain(row["bundle"], row["broker"])) for row in rows)
    return FoundBundles(bundles=found, all=table.num_rows, broker=broker, sampled_at=run.request.collected_at)


def _match_mask(table: pa.Table, text: str, broker: str) -> Column:
    return pc.or_(pc.match_substring(table["bundle"], text), pc.equal(table["broker"], pa.scalar(broker)))


def _topic_mask(bundles: Column, topic: str) -> Column:
    namespace = topic.partition("://")[2].rpartition("/")[0]
    of_namespace = bundles.filter(pc.starts_with(bundles, f"{namespace}/")).to_pylist()
    return pc.is_in(bundles, pa.array([name for name in of_namespace if is_in_bundle(topic, name)], pa.string()))


class _StayExplainer:
    """Why some bundles stay: the run's own answer, else the rule that keeps the bundle, else what its broker did."""

    def __init__(self, run: Run, names: Collection[str], rules: KeepingRules) -> None:
        self.run, self.settings = run, run.request.resolved.settings
        try:
            considered = candidates_table(run.folder)
            considered = considered.filter(pc.is_in(considered["bundle"], pa.array(names, pa.string())))
            self.rows = {row["bundle"]: row for row in considered.to_pylist()}
            self.decisions = {row["pair"]: row for row in read_decisions(run.folder)}
            self.rules = rules(run.snapshot, names)
            self.unloads = run.snapshot.state.moves.unloads
        except SnapshotError:
            self.rows, self.decisions, self.rules, self.unloads = {}, {}, {}, {}

    @cached_property
    def pair_by_broker(self) -> dict[str, PairView]:
        pairs = pair_views(self.run)
        return {pair.destination: pair for pair in pairs} | {pair.source: pair for pair in pairs}

    @cached_property
    def left_out_brokers(self) -> dict[str, Reason]:
        return {sample.broker: sample.left_out for sample in self.run.brokers if sample.left_out}

    def explain(self, bundle: str, broker: str) -> dict[str, str]:
        """Return the reason code and its sentence, and the bundle's last move."""
        reason: str
        row, move, unload = self.rows.get(bundle), self.run.move_outcomes.get(bundle), self.unloads.get(bundle)
        moved = f"{unload.at:%H:%M %Z} from {unload.source} to {unload.destination}" if unload else ""
        rule = self.rules.get(bundle) or self.left_out_brokers.get(broker)
        if move is not None:
            reason, text = move.reason, f"The plan moves the bundle to {move.destination}. {move.reason.meaning}"
        elif row is not None and row["taken"]:
            reason = verdict = self.run.outcome.verdict if self.run.outcome else Reason.TAKEN
            text = f"The plan moves the bundle to {row['destination']}. {verdict.meaning}"
        elif stays := Reason.get(row["reason"]) if row else rule:
            reason, text = stays, " ".join(filter(None, [stays.meaning, self._stay_detail(bundle, stays, row)]))
        else:
            reason, text = "", self._why_no_move_needed(broker)
        return {"reason": reason, "why": text, "moved": moved}

    def _stay_detail(self, bundle: str, reason: Reason, row: Row | None) -> str:
        unload = self.unloads.get(bundle)
        if unload and reason in (Reason.RECENTLY_UNLOADED, Reason.DESTINATION_KEPT):
            again = unload.at + timedelta(minutes=self.settings.grace_period_minutes)
            return f"The bundle was moved at {unload.at:%H:%M} and may move again at {again:%H:%M %Z}."
        pair = self.decisions.get(row["pair"]) if row else None
        if row is None or pair is None or not row["measure"] or pair["target"] is None:
            return ""
        values = row["traffic"], pair["traffic_taken"], pair["target"]
        own, taken, target = (amount_text(Measure(row["measure"]), value) for value in values)
        return f"This bundle carries {own}. The chosen bundles carry {taken} of the {target} that should move."

    def _why_no_move_needed(self, broker: str) -> str:
        pair = self.pair_by_broker.get(broker)
        if pair is None:
            return "No rule keeps the bundle, but the strategy did not need to move it."
        if pair.source != broker:
            return f"No rule keeps the bundle, but {broker} sheds nothing, because its partner {pair.source} is hotter."
        if pair.fired:
            return f"No rule keeps the bundle, but {broker} sheds other bundles, which are enough."
        gap = "" if pair.gap is None else f" The gap is {pair.gap:.1f} points."
        hits = "Hits: " + ", ".join(f"{hit.have} of {hit.need} {kind}" for kind, hit in pair.hits.items())
        return f"No rule keeps the bundle, but {broker} sheds nothing.{gap} {f'{hits}.' if pair.hits else pair.meaning}"


MAX_NAMES_LISTED = 1000
"""Maximum number of bundles named for each drained broker or plan."""

_NEVER_MOVE_REASONS = (Reason.SYSTEM_NAMESPACE, Reason.NO_TOPIC)
"""Reasons why a bundle never leaves a drained broker."""


def stay_views(folder: StoragePath) -> tuple[StayView, ...]:
    """Return the first bundles considered but not moved. Raises SnapshotError if no plan is readable."""
    return _views((row["reason"], row["bundle"], row["source"]) for row in candidate_rows(folder) if not row["taken"])


def drain_views(run: Run | None, drains: Mapping[str, Drain]) -> Iterator[DrainView]:
    """Yield the drained brokers with the bundles still there after a run, except heartbeat bundles."""
    if run is None or run.summary is None:
        yield from (DrainView(broker=broker, drained=drain_text(drain)) for broker, drain in drains.items())
        return
    # The progress of an earlier drain says nothing about this one.
    served = {
        name: each for name, each in run.summary.drains.items() if name in drains and each.since == drains[name].at
    }
    own: Counter[str] = Counter()
    left: dict[str, dict[str, tuple[str, str, str]]] = {broker: {} for broker in drains}
    for row in _considered_rows(run.folder) if served else ():
        if is_heartbeat(row["bundle"]):
            own[row["source"]] += 1
            continue
        reason = _why_not_moved(run, row["bundle"]) if row["taken"] else row["reason"]
        if reason and row["source"] in left:
            # A bundle has a second row if a plan also considers it for its former broker.
            left[row["source"]].setdefault(row["bundle"], (reason, row["bundle"], row["source"]))
    for broker, drain in drains.items():
        bundles = served[broker].bundles if broker in served else None
        never = own[broker] + sum(reason in _NEVER_MOVE_REASONS for reason, *_ in left[broker].values())
        ended = [move for move in run.move_outcomes.values() if move.source == broker]
        yield DrainView(
            broker=broker,
            drained=drain_text(drain),
            bundles=None if bundles is None else bundles - own[broker],
            movable=None if bundles is None else max(0, bundles - never),
            moving=served[broker].moving - len(ended) if broker in served and run.outcome is None else 0,
            gone=sum(move.reason.has(Trait.NEW_OWNER) for move in ended),
            left=_views(left[broker].values()),
            more=max(0, len(left[broker]) - MAX_NAMES_LISTED),
        )


def _why_not_moved(run: Run, bundle: str) -> str:
    """Return why a bundle has no new owner; empty if it has one or might still get one."""
    move = run.move_outcomes.get(bundle)
    if move is None:
        return run.outcome.verdict if run.outcome else ""
    return "" if move.reason.has(Trait.NEW_OWNER) else move.reason


def _considered_rows(folder: StoragePath) -> list[Row]:
    try:
        return candidate_rows(folder)
    except SnapshotError:
        return []


def _views(rows: Iterable[tuple[str, str, str]]) -> tuple[StayView, ...]:
    return tuple(
        StayView(bundle=bundle, broker=broker, reason=Reason(reason))
        for reason, bundle, broker in sorted(rows)[:MAX_NAMES_LISTED]
    )
