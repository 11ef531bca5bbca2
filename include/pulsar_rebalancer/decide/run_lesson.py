"""What a learning strategy knows after a sample, computed while Spark computes the means."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_rebalancer.decide.run_input import RunInput
from pulsar_rebalancer.run.tables import BUNDLE_COSTS, BUNDLES, COSTS, NO_COSTS, NO_LOADS, RATES, Cell
from pulsar_rebalancer.state.state_documents import Learned
from pulsar_rebalancer.strategies import learning
from pulsar_rebalancer.strategies.learning import BundleCosts, Correction, Lesson, Sums
from pulsar_rebalancer.strategies.sample import RecentMove
from pulsar_rebalancer.strategies.scoring import UNIT, measure_of

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

_KNOWN = pa.schema([BUNDLE_COSTS.field("bundle"), *(pa.field(name, pa.float64()) for name in COSTS)])


class RunLesson(NamedTuple):
    """The lesson of a run's sample, and what is known about bundles after it: `BUNDLE_COSTS` and `NO_LOADS`."""

    lesson: Lesson = Lesson()
    costs: pa.Table = NO_COSTS
    loads: pa.Table = NO_LOADS

    def write(self, run: RunInput) -> None:
        if self.costs and run.counting.counts and not run.new_costs.exists():
            run.new_costs.write_table(self.costs)


def lesson_of(run: RunInput) -> RunLesson:
    """Return the values known after the run's sample; empty if the strategy does not learn.

    A bundle belongs to the first broker by name that reports it or, if it moved a few minutes ago, to its
    destination. Missing and quarantined values are ignored. What is known about brokers and bundles without a
    report is kept.
    """
    before, counts = run.learned, run.counting.counts
    if before is None:
        return RunLesson()
    minutes = _minutes(run)
    measure, recent = measure_of(before.bottleneck), run.recent_moves
    gone = run.before.moves.splits
    late = {name: move for name, move in recent.items() if move.minutes < learning.MOVED and name not in gone}
    reported, missing = _at_destinations(_reported(run, (f"{measure}_in", f"{measure}_out")), late)
    brokers, names = reported["broker"], reported["bundle"]
    stored = _stored(run, before)
    known = _known(run, stored, names)
    refused = pc.is_in(names, pa.array([*run.validation.quarantined, *missing], pa.string())).to_numpy()
    inward, outward = (np.nan_to_num(reported[f"{measure}_{way}"].to_numpy()) for way in ("in", "out"))
    rate = np.where(refused, known.quick, (inward + outward) / UNIT[measure])
    after, change = known.averaged(rate, minutes, counts=counts)
    after = BundleCosts(*(np.where(refused, *columns) for columns in zip(known, after, strict=True)))
    *of_sample, lasted, deviation = after.summands(rate, change := np.where(refused, 0.0, change))
    lesson = Lesson(before, _sums(brokers, [*of_sample, lasted * ~refused, deviation * ~refused]))
    # A run that does not count decides by what was learned before it or, if nothing was, by its own sample.
    if counts or not before.samples:
        lesson = learning.learn(before, run.brokers, lesson.sums, recent.values(), run.settings, minutes)
        after = after.corrected(change, *_by_bundle(brokers, lesson.corrections))
    columns = [pa.array(column.astype(np.float32), from_pandas=True) for column in after]
    costs = pa.table([names, *columns], schema=BUNDLE_COSTS)
    # A new bundle whose values were refused remains unknown.
    costs = costs.filter(pc.is_valid(costs["quick_rate"]))
    if run.silent:
        unreported = stored.filter(pc.invert(pc.is_in(stored["bundle"], names)))
        costs = pa.concat_tables([costs, unreported.cast(BUNDLE_COSTS)])
    loads = pa.array(after.loads(lesson.learned.persistence), from_pandas=True)
    return RunLesson(lesson, costs, pa.table([names, loads], schema=NO_LOADS.schema))


def _minutes(run: RunInput) -> float:
    """Return the minutes since the last counted sample, at least the interval."""
    last = run.before.decision.counted_at
    since = (run.request.collected_at - last).total_seconds() if last else 0.0
    return max(since, run.settings.interval_seconds) / 60


def _sums(brokers: pa.ChunkedArray[Any], summands: Iterable[Floats]) -> dict[str, Sums]:
    """Return each broker's sums of whole numbers, so that the order of bundles does not affect the plan's hash."""
    values = {name: np.nan_to_num(value) for name, value in zip(Sums._fields, summands, strict=True)}
    units = {name: _unit(value) for name, value in values.items()}
    whole: Any = [np.rint(value / units[name]).astype(np.int64) for name, value in values.items()]
    added = pa.table([brokers, *whole], names=["broker", *values]).group_by("broker")
    rows = added.aggregate([(name, "sum") for name in values]).to_pylist()
    return {row["broker"]: Sums(*(row[f"{name}_sum"] * units[name] for name in values)) for row in rows}


def _unit(values: Floats) -> float:
    """Return a power of 2 of which each value is at most 2^40, so that a million of them add up in 64 bits."""
    return math.ldexp(1.0, math.frexp(float(np.abs(values).max(initial=0.0)))[1] - 40)


def _by_bundle(brokers: pa.ChunkedArray[Any], corrections: Mapping[str, Correction]) -> Floats:
    at: Any = pc.index_in(brokers, pa.array(list(corrections), pa.string()))
    of_brokers = np.array([*corrections.values(), Correction()])
    of_bundles: Floats = of_brokers[pc.fill_null(at, len(corrections)).to_numpy()]
    return of_bundles.T


def _reported(run: RunInput, values: tuple[str, str]) -> pa.Table:
    columns = ["broker", "bundle", *values]
    parts = [pa.schema([BUNDLES.field(name) for name in (*columns, "owners")]).empty_table()]
    for rows in run.batches("bundles", ["cluster", *columns, "owners"]):
        parts.append(rows.filter(pc.equal(rows["cluster"], pa.scalar(run.cluster))).select(parts[0].column_names))
    reported = pa.concat_tables(parts).combine_chunks()
    if not run.shares_bundles:
        return reported
    shared = pa.array(reported["owners"].to_numpy() > 1)
    chosen: Any = [("broker", "min"), *((name, "max") for name in values)]
    several = reported.filter(shared).group_by("bundle").aggregate(chosen)
    several = several.select(["broker_min", "bundle", *(f"{name}_max" for name in values)]).rename_columns(columns)
    return pa.concat_tables([reported.filter(pc.invert(shared)).select(columns), several])


def _at_destinations(reported: pa.Table, late: Mapping[str, RecentMove]) -> tuple[pa.Table, list[str]]:
    """Move late bundles' rows to their destinations, and return the bundles whose rows were missing."""
    if not late:
        return reported, []
    at: Any = pc.index_in(reported["bundle"], pa.array(list(late), pa.string()))
    sources = pa.array([move.source for move in late.values()], pa.string()).take(at)
    destinations = pa.array([move.destination for move in late.values()], pa.string()).take(at)
    from_source: Any = pc.equal(reported["broker"], sources)
    brokers: Any = pc.if_else(pc.fill_null(from_source, False), destinations, reported["broker"])
    found = set(at.unique().to_pylist())
    missing = [name for number, name in enumerate(late) if number not in found]
    rows = [{"broker": late[name].destination, "bundle": name} for name in missing]
    moved_rows = reported.set_column(0, reported.schema.field(0), brokers)
    return pa.concat_tables([moved_rows, pa.Table.from_pylist(rows, schema=reported.schema)]), missing


def _stored(run: RunInput, before: Learned) -> pa.Table:
    """Return the costs after the last counted sample; empty if the bottleneck has changed since."""
    if before.samples and run.known_costs:
        return run.known_costs.read_table(_KNOWN.names).cast(_KNOWN)
    return _KNOWN.empty_table()  # not when the module is loaded: it loads pandas, and every DAG file would


def _known(run: RunInput, known: pa.Table, bundles: pa.ChunkedArray[Any]) -> BundleCosts:
    if parts := run.parts_of_split_bundles:
        # Of several rows, the first is found: that of a part with costs of its own.
        known = pa.concat_tables([known, _parts(known, parts)])
    at: Any = pc.index_in(bundles, known["bundle"].combine_chunks())
    return BundleCosts(*(known[name].combine_chunks().take(at).to_numpy() for name in COSTS))


def _parts(known: pa.Table, parts: Sequence[dict[str, Cell]]) -> pa.Table:
    split = known.filter(pc.is_in(known["bundle"], pa.array([part["bundle"] for part in parts], pa.string())))
    of_split = {row["bundle"]: row for row in split.to_pylist()}
    rows = []
    for part in parts:
        if row := of_split.get(part["bundle"]):
            shared = {name: None if row[name] is None else row[name] * part["share"] for name in RATES}
            rows.append(row | shared | {"bundle": part["part"]})
    return pa.Table.from_pylist(rows, schema=_KNOWN)
