"""AvgShedder in numpy and Arrow: reads what the Spark application reads, writes the same means and moves, and no more.

    python -m lab.benchmarks.limit RUN FOLDER

The honest limit of what deciding can cost on one machine. It knows what `clusters.make` makes: a counted run, one
owner for each bundle, nothing quarantined. `decide.py` checks that its moves are those of the application.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from pulsar_rebalancer.decide.run_input import RunInput
from pulsar_rebalancer.decide.stays import BundleFacts
from pulsar_rebalancer.names import HEARTBEAT_NAMESPACE, SYSTEM_NAMESPACE, namespace_of
from pulsar_rebalancer.run.bundle_columns import COLUMNS, Bundles
from pulsar_rebalancer.run.plan import MAX_WAVES, OF_A_WAVE
from pulsar_rebalancer.run.tables import MEANS, MOVES, TRAFFIC, broker_samples
from pulsar_rebalancer.strategies.caps import needs_waves
from pulsar_rebalancer.strategies.left_out import left_out_of
from pulsar_rebalancer.strategies.means import LONG_TERM_SAMPLES, MAX_SAMPLES
from pulsar_rebalancer.strategies.placement.policy_filter import PolicyFilter
from pulsar_rebalancer.strategies.scoring import LARGEST_FLOAT32, SCORED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pulsar_rebalancer.run.tables import BrokerSample

Array: TypeAlias = np.ndarray[Any, Any]

Table: TypeAlias = Any
"""Arrow's, whose stubs do not know what it takes from numpy."""

pc: Any = pyarrow.compute
pa_table: Any = pa.table
_ANY_RANGE = "/0x00000000_0xffffffff"
_NEVER = rf"^{HEARTBEAT_NAMESPACE}/[^/]*$|^{SYSTEM_NAMESPACE}/[^/]*$"


def main(address: str, folder: str) -> None:
    """Decide a run; writes `means.parquet` and `moves.parquet` into the folder."""
    run = RunInput.read(address)
    brokers = pq.read_table(f"{address}/input/brokers.parquet")
    columns = ["cluster", "broker", "bundle", *TRAFFIC, "policy"]
    bundles = pq.read_table(f"{address}/input/bundles.parquet", columns=columns)
    if run.known_means is None or left_out_of(run) or run.counting.samples:
        raise ValueError(f"{address} is no run of lab.benchmarks.clusters")
    means = updated_means(bundles, pq.read_table(run.known_means.uri))
    pq.write_table(means, Path(folder) / "means.parquet")
    pairs = firing(run, brokers)
    found = moves(run, brokers, pairs, bundles, means)
    pq.write_table(found.select(MOVES.names), Path(folder) / "moves.parquet")


def updated_means(bundles: Table, previous: Table) -> Table:
    """Return the means of the bundles, in their order (see `strategies.means`)."""
    at = pc.index_in(bundles["bundle"], previous["bundle"].combine_chunks())
    new = pc.is_null(at).to_numpy()
    before = previous.take(pc.fill_null(at, 0))
    samples = np.where(new, 1, np.minimum(before["samples"].to_numpy() + 1, LONG_TERM_SAMPLES))
    short = np.minimum(samples, MAX_SAMPLES)

    def mean(name: str, now: Array, count: Array) -> Array:
        return np.where(new, now, ((count - 1) * before[name].to_numpy() + now) / count)

    now = {name: bundles[name].to_numpy() for name in TRAFFIC}
    columns: dict[str, Any] = {name: mean(name, now[name], short) for name in TRAFFIC}
    for measure in ("msg_rate", "msg_throughput"):
        both = now[f"{measure}_in"] + now[f"{measure}_out"]
        columns[f"long_term_{measure}"] = mean(f"long_term_{measure}", both, samples)
    columns |= {"samples": samples, "cluster": bundles["cluster"], "bundle": bundles["bundle"]}
    return pa_table([columns[name] for name in MEANS.names], schema=MEANS)


def scores(run: RunInput, brokers: Table) -> Array:
    """Return the scores of the brokers, percent (see `strategies.scoring`)."""

    def float32(figures: Array) -> Array:
        return np.clip(figures, -LARGEST_FLOAT32, LARGEST_FLOAT32).astype("float32").astype("float64")

    def weighted(name: str) -> Array:
        usage, limit = (float32(_figures(brokers, f"{name}_{part}")) for part in ("usage", "limit"))
        share = float32(np.divide(usage, limit, out=np.zeros(len(limit)), where=limit > 0))
        return np.asarray(float32(share * 100) * getattr(run.settings, f"{name}_weight"))

    return np.asarray(np.maximum.reduce([weighted(name) for name in SCORED]) / 100 * 100)


def _figures(table: Table, name: str) -> Array:
    return np.asarray(pc.fill_null(table[name], 0.0).to_numpy())


def firing(run: RunInput, brokers: Table) -> Table:
    """Return the pairs that move something: pair, source, destination, measure, target."""
    settings, score = run.settings, scores(run, brokers)
    names, pools = brokers["broker"].to_numpy(), pc.fill_null(brokers["reserved_by"], "").to_numpy()
    order = np.lexsort((names, score, pools))
    _, starts, sizes = np.unique(pools[order], return_index=True, return_counts=True)
    places = [(start + np.arange((size + 1) // 2), size, start) for start, size in zip(starts, sizes, strict=True)]
    cold = order[np.concatenate([place for place, _, _ in places])]
    hot = order[np.concatenate([start + size - 1 - (place - start) for place, size, start in places])]
    gap = score[hot] - score[cold]
    before = run.before.decision.hits
    high, low = (
        np.array(
            [
                max(getattr(before.get(names[end], None), band, 0) for end in pair)
                for pair in zip(hot, cold, strict=True)
            ]
        )
        for band in ("high", "low")
    )
    steps = np.where(hot == cold, 2, 1)
    over = gap >= settings.low_threshold
    ready = np.where(gap >= settings.high_threshold, high + steps, 0) >= settings.hit_count_high
    fired = over & (ready | (low + steps >= settings.hit_count_low))
    wanted = {}
    for measure in ("msg_rate", "msg_throughput"):
        traffic = _figures(brokers, f"{measure}_in") + _figures(brokers, f"{measure}_out")
        wanted[measure] = (traffic[hot] - traffic[cold]) * settings.max_unload_percentage
    by_rate = fired & (wanted["msg_rate"] > settings.min_unload_message)
    some = by_rate | (fired & (wanted["msg_throughput"] > settings.min_unload_throughput))
    return pa_table(
        {
            "pair": np.flatnonzero(some),
            "source": pa.array(names[hot[some]], pa.string()),
            "destination": pa.array(names[cold[some]], pa.string()),
            "measure": np.where(by_rate, "msg_rate", "msg_throughput")[some],
            "target": np.where(by_rate, wanted["msg_rate"], wanted["msg_throughput"])[some],
        }
    )


def moves(run: RunInput, brokers: Table, pairs: Table, bundles: Table, means: Table) -> Table:
    """Return every bundle of a source, taken or passed over, with its wave."""
    at = pc.index_in(bundles["broker"], pairs["source"].combine_chunks())
    held = pc.is_valid(at)
    candidates, at, mean = bundles.filter(held), at.filter(held), means.filter(held)
    of_pair = pairs.take(at)
    rate = mean["msg_rate_in"].to_numpy() + mean["msg_rate_out"].to_numpy()
    throughput = mean["msg_throughput_in"].to_numpy() + mean["msg_throughput_out"].to_numpy()
    traffic = np.where(pc.equal(of_pair["measure"], "msg_rate").to_numpy(), rate, throughput)
    found = pa_table(
        {
            "cluster": candidates["cluster"],
            **{name: of_pair[name] for name in of_pair.column_names},
            "bundle": candidates["bundle"],
            "traffic": traffic,
            "order": 0.0 - traffic,
            "msg_rate": rate,
            "msg_throughput": throughput,
            "reason": _reasons(run, brokers, pairs, candidates, of_pair["source"]),
        }
    ).sort_by([("pair", "ascending"), ("order", "ascending"), ("bundle", "ascending")])
    pair = found["pair"].to_numpy()
    rank = _place(pair)
    reason = _walk(found, pair, rank)
    _cap(run, found, pair, reason)
    taken = reason == "taken"
    wave: list[Any] = np.full(len(reason), None).tolist()
    if taken.any() and not needs_waves(_listed(run, brokers)):
        for number, index in enumerate(np.flatnonzero(taken)):
            wave[index] = number // OF_A_WAVE
    elif taken.any():
        ranges = pc.list_element(pc.split_pattern(found["bundle"].filter(pa.array(taken)), "/"), 2)
        nth = _place(pc.dictionary_encode(ranges).combine_chunks().indices.to_numpy())
        for index, number in zip(np.flatnonzero(taken), nth.tolist(), strict=True):
            wave[index] = number if number < MAX_WAVES else None
        reason[np.flatnonzero(taken)[nth >= MAX_WAVES]] = "cap_waves"
    columns = {"rank": rank, "taken": reason == "taken", "reason": reason, "wave": wave}
    given = [columns.get(name, found[name] if name in found.column_names else None) for name in MOVES.names]
    return pa_table([pa.array(c) if isinstance(c, list) else c for c in given], names=MOVES.names).cast(MOVES)


def _place(keys: Array) -> Array:
    """Return the place of each row among those of the same key, from 0."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    first = np.r_[True, ordered[1:] != ordered[:-1]]
    begin = np.maximum.accumulate(np.where(first, np.arange(len(keys)), 0))
    place = np.empty(len(keys), dtype="int64")
    place[order] = np.arange(len(keys)) - begin
    return place


def _reasons(run: RunInput, brokers: Table, pairs: Table, candidates: Table, sources: Any) -> Any:
    """Return why bundles must stay, null for those that may move."""
    names = candidates["bundle"].combine_chunks()
    reason: Array = np.full(len(names), None, dtype=object)
    forbidden = _forbidden(run, brokers, pairs, candidates)
    free = pc.is_null(candidates["policy"]).to_numpy()
    closed = [source for source, namespace in forbidden if not namespace]
    if closed:
        mask = free & pc.is_in(sources, pa.array(closed)).to_numpy()
        reason[mask] = [forbidden[source, ""] for source in sources.filter(pa.array(mask)).to_pylist()]
    for index in np.flatnonzero(~free):
        reason[index] = forbidden.get((sources[index].as_py(), namespace_of(names[index].as_py())))
    known = BundleFacts.of(run, run.settings).moved
    for index in np.flatnonzero(pc.is_in(names, pa.array(list(known), pa.string())).to_numpy(zero_copy_only=False)):
        reason[index] = known[names[index].as_py()]
    for prefix in ("pulsar/", "sla-monitor/"):
        for index in np.flatnonzero(pc.starts_with(names, prefix).to_numpy(zero_copy_only=False)):
            if pc.match_substring_regex(names[index], _NEVER).as_py():
                reason[index] = "system_namespace"
    return pa.array(reason, pa.string())


def _forbidden(run: RunInput, brokers: Table, pairs: Table, candidates: Table) -> Mapping[tuple[str, str], str]:
    """Return why policies keep bundles on a source, by source and namespace, "" for those under no policy."""
    ruled = _ruled(run, brokers)
    served = candidates.filter(pc.is_valid(candidates["policy"])).select(["broker", "bundle"]).to_pylist()
    destination = dict(zip(pairs["source"].to_pylist(), pairs["destination"].to_pylist(), strict=True))
    asked = {(row["broker"], namespace_of(row["bundle"])) for row in served} | {(source, "") for source in destination}
    answers = {key: ruled.forbids(key[1] + _ANY_RANGE, key[0], destination[key[0]]) for key in asked}
    return {key: answer for key, answer in answers.items() if answer is not None}


def _ruled(run: RunInput, brokers: Table) -> PolicyFilter:
    """Return the rules over the cluster; of all bundles those of anti-affinity groups count."""
    held = pq.read_table(f"{run.folder.uri}/input/bundles.parquet", columns=["broker", "bundle", "policy"])
    grouped = held.filter(pc.is_valid(held["policy"])).select(["broker", "bundle"]).to_pylist()
    counted = Bundles(pa.Table.from_pylist(grouped, schema=COLUMNS))
    return PolicyFilter(run.policies, _listed(run, brokers), counted, run.settings)


def _listed(run: RunInput, brokers: Table) -> list[BrokerSample]:
    """Return what rules and waves ask of brokers."""
    return broker_samples(brokers.select(["broker", "error", "version", "topics"]).to_pylist(), left_out_of(run))


def _walk(found: Table, pair: Array, rank: Array) -> Array:
    """Return the reason of each bundle: all sources are walked over side by side."""
    traffic, preset = found["traffic"].to_numpy(), found["reason"].to_numpy()
    reason = np.where(traffic <= 0, "no_traffic", "over_remaining").astype(object)
    known = np.array([each is not None for each in preset])
    reason[known] = preset[known]
    firsts = np.flatnonzero(rank == 0)
    sizes = np.diff(np.r_[firsts, len(rank)])
    remaining = found["target"].to_numpy()[firsts].copy()
    may = ~known & (traffic > 0)
    for place in range(int(sizes.max(initial=0))):
        walking = np.flatnonzero(sizes > place)
        rows = firsts[walking] + place
        takes = may[rows] & (traffic[rows] <= remaining[walking])
        remaining[walking[takes]] -= traffic[rows[takes]]
        reason[rows[takes]] = "taken"
    return reason


def _cap(run: RunInput, found: Table, pair: Array, reason: Array) -> None:
    """Apply the caps in their order (see `strategies.caps`)."""
    groups, settings = run.policies.groups, run.settings
    if groups:
        seen: set[str] = set()
        for index in np.flatnonzero(reason == "taken"):
            group = groups.get(namespace_of(found["bundle"][index].as_py()))
            if group in seen:
                reason[index] = "anti_affinity"
            elif group is not None:
                seen.add(group)
    taken = np.flatnonzero(reason == "taken")
    if settings.max_bundles_per_broker is not None:
        reason[taken[_place(pair[taken]) >= settings.max_bundles_per_broker]] = "cap_broker"
    taken = np.flatnonzero(reason == "taken")
    reason[taken[settings.max_bundles_per_run :] if settings.max_bundles_per_run is not None else []] = "cap_run"


if __name__ == "__main__":
    main(*sys.argv[1:])
