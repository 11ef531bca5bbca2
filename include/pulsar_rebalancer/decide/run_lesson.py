"""The figures that a learning strategy knows after a run's sample (`strategies.learning`).

They follow from sums over each broker's bundles. The sums are computed from a few columns while Spark is still
starting, so that Spark can correct the costs in the same pass over the bundles as the means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_rebalancer.run.compacted_tables import batches
from pulsar_rebalancer.run.tables import BUNDLES, COSTS, MEANS_WITH_COSTS, RATES
from pulsar_rebalancer.strategies import learning
from pulsar_rebalancer.strategies.bottleneck import UNIT, measure_of
from pulsar_rebalancer.strategies.learning import START_COST, START_VARIANCE, Lesson, Sums

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from pulsar_rebalancer.decide.run_input import RunInput
    from pulsar_rebalancer.run.tables import Cell
    from pulsar_rebalancer.state.learned import Learned

    Floats = npt.NDArray[np.float64]

_KNOWN = pa.schema([MEANS_WITH_COSTS.field("bundle"), *(pa.field(name, pa.float64()) for name in COSTS)])
_LARGEST = 1e9  # of a figure that is summed, so that a sum of a million is a whole number of 64 bits
_FRACTION = 1000


def lesson_of(run: RunInput) -> Lesson:
    """Return the figures known after the run's sample; empty if neither the strategy nor the shadow learns.

    Raises:
        SnapshotError: the bundles table or the means cannot be read.
    """
    before = run.learned
    if before is None:
        return Lesson()
    sums = sums_of(run, before)
    if not run.counting.counts:
        return Lesson(before, sums)
    return learning.learn(before, run.brokers, sums, run.context.recent.values(), run.settings)


def sums_of(run: RunInput, before: Learned) -> dict[str, Sums]:
    """Return each broker's sums over its bundles. A bundle with several reports counts for the first broker by name.

    Whole numbers are added, so the order of the bundles affects neither the sums nor the plan's hash.

    Args:
        before: figures known before the sample.
    """
    measure = measure_of(before.bottleneck)
    reported = _reported(run, (f"{measure}_in", f"{measure}_out"))
    known = _known(run, before)
    at: Any = pc.index_in(reported["bundle"], known["bundle"].combine_chunks())
    refused = pc.is_in(reported["bundle"], pa.array(list(run.validation.quarantined), pa.string())).to_numpy()
    of_bundle = {name: known[name].combine_chunks().take(at).to_numpy() for name in COSTS}
    inward, outward = (np.nan_to_num(reported[f"{measure}_{way}"].to_numpy()) for way in ("in", "out"))
    present = (inward + outward) / UNIT[measure]
    figures = _figures(of_bundle, present, refused, learning.steps(before, run.settings, counts=run.counting.counts))
    columns: dict[str, Any] = {"broker": reported["broker"]} | {name: _whole(of) for name, of in figures.items()}
    table = pa.table(columns)
    added = table.group_by("broker").aggregate([(name, "sum") for name in Sums._fields])
    of_brokers = {
        row["broker"]: Sums(*(row[f"{name}_sum"] / _FRACTION for name in Sums._fields)) for row in added.to_pylist()
    }
    return {broker: of._replace(doubt=of.doubt * _FRACTION) for broker, of in of_brokers.items()}


def _figures(
    before: dict[str, Floats], present: Floats, refused: npt.NDArray[np.bool_], steps: Sequence[float]
) -> dict[str, Floats]:
    """Return the figures to be summed for each bundle, keyed by their names in `Sums`; `doubt` is divided by 1000.

    Args:
        before: columns of the means before this sample, NaN where nothing is known.
        present: current traffic of each bundle, in msg/s or kB/s.
        refused: True for bundles that validation left out; their quick averages are used.
        steps: steps of the averages, from `learning.steps`.
    """
    rate = np.where(refused, before["quick_rate"], present)
    old = {name: _or(before[name], rate) for name in RATES}
    new = {name: old[name] + step * (rate - old[name]) for name, step in zip(RATES, steps, strict=True)}
    cost, change = _or(before["cost"], START_COST), np.where(refused, 0.0, rate - old["quarter_rate"])
    hour, quick = (np.where(refused, before[name], new[name]) for name in ("hour_rate", "quick_rate"))
    variance = _or(before["cost_variance"], START_VARIANCE)
    summands: Any = learning.summands(cost, variance, rate=rate, change=change, quick=quick, hour=hour)
    figures: dict[str, Floats] = summands._asdict()
    return figures | {"doubt": summands.doubt / _FRACTION}


def _or(column: Floats, other: Floats | float) -> Floats:
    return np.where(np.isnan(column), other, column)


def _whole(figure: Floats) -> npt.NDArray[np.int64]:
    whole: Floats = np.rint(np.nan_to_num(figure.clip(-_LARGEST, _LARGEST)) * _FRACTION)
    return whole.astype(np.int64)


def _reported(run: RunInput, figures: tuple[str, str]) -> pa.Table:
    """Return one row per bundle: its broker (if several, the first by name), its name, and its largest figures."""
    columns = ["broker", "bundle", *figures]
    parts = [pa.schema([BUNDLES.field(name) for name in (*columns, "owners")]).empty_table()]
    for rows in batches(run.file("bundles"), ["cluster", *columns, "owners"]):
        parts.append(rows.filter(pc.equal(rows["cluster"], pa.scalar(run.cluster))).select(parts[0].column_names))
    reported = pa.concat_tables(parts).combine_chunks()
    if not run.shares_bundles:
        return reported
    shared = pa.array(reported["owners"].to_numpy() > 1)
    chosen: Any = [("broker", "min"), *((name, "max") for name in figures)]
    several = reported.filter(shared).group_by("bundle").aggregate(chosen)
    several = several.select(["broker_min", "bundle", *(f"{name}_max" for name in figures)]).rename_columns(columns)
    return pa.concat_tables([reported.filter(pc.invert(shared)).select(columns), several])


def _known(run: RunInput, before: Learned) -> pa.Table:
    """Return the columns `COSTS` of the means before this sample, including rows for parts of split bundles."""
    if run.known_means is None:
        return _KNOWN.empty_table()
    stored = run.known_means.read_table(["cluster", "bundle", *(COSTS if before.samples else ())])
    stored = stored.filter(pc.equal(stored["cluster"], pa.scalar(run.cluster)))
    for name in _KNOWN.names:
        if name not in stored.column_names:
            stored = stored.append_column(name, pa.nulls(len(stored)))
    known = stored.select(_KNOWN.names).cast(_KNOWN)
    parts = run.parts_of_split_bundles
    # Of several rows, the first is found: that of a part with means of its own.
    return pa.concat_tables([known, _parts(known, parts)]) if parts else known


def _parts(known: pa.Table, parts: Sequence[dict[str, Cell]]) -> pa.Table:
    """Return rows for the parts of split bundles, each with its share of the rates."""
    split = known.filter(pc.is_in(known["bundle"], pa.array([part["bundle"] for part in parts], pa.string())))
    of_split = {row["bundle"]: row for row in split.to_pylist()}
    rows = []
    for part in parts:
        if row := of_split.get(part["bundle"]):
            shared = {name: None if row[name] is None else row[name] * part["share"] for name in RATES}
            rows.append(row | shared | {"bundle": part["part"]})
    return pa.Table.from_pylist(rows, schema=_KNOWN)
