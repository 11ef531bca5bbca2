"""AvgShedder (PIP-364), one run over one cluster: the document of the algorithm.

Brokers are sorted by score and paired from the outside in, the hottest with the coldest. A pair whose gap stays above
a threshold for enough runs in a row fires: the hotter broker gives the colder one bundles worth up to
`max_unload_percentage` of their difference in traffic. Follows `AvgShedder.findBundlesForUnloading` of Pulsar 4.2.4 and
5.0.1, with two deviations. Where Pulsar leaves ties to the order of a hash map, names decide (brokers by score and name
ascending, bundles by traffic descending and name ascending). Brokers that an isolation policy reserves are paired among
themselves, because no bundle may go from them to the others. `pulsar_rebalancer_spark` holds the same as DataFrame
transforms.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from pulsar_rebalancer.state import Counting, HitCount
from pulsar_rebalancer.strategies import caps
from pulsar_rebalancer.strategies.candidates import is_heartbeat
from pulsar_rebalancer.strategies.outcome import complete, reasons_by_pair
from pulsar_rebalancer.strategies.scoring import score, traffic
from pulsar_rebalancer.strategies.view import decision, left_out, move

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pulsar_rebalancer.settings import Settings
    from pulsar_rebalancer.strategies.view import Row, View

COUNTED = Counting(counts=True, reason="counted")
NO_HITS = HitCount()


class AvgShed(NamedTuple):
    """What one run answers.

    Attributes:
        decisions: rows of the decisions table, outermost pair first, then the brokers left out.
        moves: rows of the moves table, by pair and rank.
        hits: the new counts by broker, zero counts left out; Pulsar keeps those of brokers that are gone.
    """

    decisions: list[Row]
    moves: list[Row]
    hits: dict[str, HitCount]


@dataclass(frozen=True, slots=True)
class Load:
    """One broker as it is judged: score in percent, traffic in msg/s and bytes/s, the policy that reserves it or ""."""

    broker: str
    score: float
    msg_rate: float
    msg_throughput: float
    pool: str = ""


@dataclass(frozen=True, slots=True)
class Pair:
    """The `number`-th pair from the outside; the middle one of an odd number of brokers is its own partner."""

    number: int
    source: Load
    destination: Load

    @property
    def gap(self) -> float:
        """Points of score between the two."""
        return self.source.score - self.destination.score

    @property
    def is_middle(self) -> bool:
        """Whether the broker has no partner."""
        return self.source.broker == self.destination.broker


class Hits(NamedTuple):
    """Hit counts of a pair's two brokers."""

    source: HitCount
    destination: HitCount

    @property
    def high(self) -> int:
        """The larger high count."""
        return max(self.source.high, self.destination.high)

    @property
    def low(self) -> int:
        """The larger low count."""
        return max(self.source.low, self.destination.low)


class Amount(NamedTuple):
    """How much a pair moves: `target` in msg/s or bytes/s, as `measure` says."""

    measure: str
    target: float


def pairs(loads: Iterable[Load]) -> list[Pair]:
    """Brokers of the same pool paired from the outside in, the outermost pair first, pool after pool."""
    found: list[Pair] = []
    in_order = sorted(loads, key=lambda load: (load.pool, load.score, load.broker))
    for _, members in groupby(in_order, key=lambda load: load.pool):
        pool = list(members)
        found += [Pair(len(found) + n, pool[-1 - n], pool[n]) for n in range((len(pool) + 1) // 2)]
    return found


def count(pair: Pair, before: Hits, settings: Settings) -> Hits:
    """Hits of a pair with this sample; a gap in the high band is a low hit as well.

    A middle broker has no gap, so it counts only when the low threshold is 0, and then twice: once for each side.
    """
    if pair.gap < settings.low_threshold:
        return Hits(NO_HITS, NO_HITS)
    step = 2 if pair.is_middle else 1
    high = pair.gap >= settings.high_threshold
    return Hits(*(HitCount(hit.high + step if high else 0, hit.low + step) for hit in before))


def ready(hits: Hits, settings: Settings) -> bool:
    """Whether one of the two brokers has collected enough hits: counts belong to brokers, not to pairs."""
    return hits.high >= settings.hit_count_high or hits.low >= settings.hit_count_low


def amount(pair: Pair, settings: Settings) -> Amount | None:
    """How much to move: by message rate, else by throughput; None when neither differs by more than its minimum."""
    rate = (pair.source.msg_rate - pair.destination.msg_rate) * settings.max_unload_percentage
    throughput = (pair.source.msg_throughput - pair.destination.msg_throughput) * settings.max_unload_percentage
    if rate > settings.min_unload_message:
        return Amount("msg_rate", rate)
    if throughput > settings.min_unload_throughput:
        return Amount("msg_throughput", throughput)
    return None


def select(view: View, pair: Pair, wanted: Amount) -> list[Row]:
    """Walk over the source's bundles, the busiest first: each that fits into what remains is taken.

    Bundles with a reason to stay, their own or of policies, are passed over and never count.

    Args:
        view: the cluster.
        pair: a fired pair.
        wanted: how much to move.

    Returns:
        Rows of the moves table by rank, `wave` still None.
    """
    remaining = wanted.target
    source, destination = pair.source.broker, pair.destination.broker
    rows = []
    held = view.by_broker.get(source, [])
    for rank, bundle in enumerate(sorted(held, key=lambda row: (-row[wanted.measure], row["bundle"]))):
        name, carried = bundle["bundle"], bundle[wanted.measure]
        reason = "system_namespace" if is_heartbeat(name) else bundle["reason"]
        reason = reason or view.forbids(name, source, destination)
        if reason is None:
            reason = "no_traffic" if carried <= 0 else "over_remaining" if carried > remaining else "taken"
        if reason == "taken":
            remaining -= carried
        columns = {"measure": wanted.measure, "reason": reason, "destination": destination}
        rows.append(move(view, bundle, number=pair.number, rank=rank, **columns))
    return rows


def shed(
    view: View,
    hits: Mapping[str, HitCount],
    *,
    counting: Counting = COUNTED,
    force_threshold: float | None = None,
    groups: Mapping[str, str] | None = None,
) -> AvgShed:
    """One run over one cluster.

    Args:
        view: the sample. The counts of a broker left out freeze.
        hits: counts by broker as the last run left them.
        counting: how the sample counts (`state.counting`).
        force_threshold: gap in points from which a forced run acts; None for any other run.
        groups: anti-affinity group by namespace; None for none.
    """
    settings = view.settings
    before = {} if counting.clear else dict(hits)
    judged = pairs(_load(row, settings) for row in view.judged)
    decisions, moves, after = [], [], dict(before)
    for pair in judged:
        row, kept = _decide(view, pair, before, counting, force_threshold)
        decisions.append(row)
        after[pair.source.broker], after[pair.destination.broker] = kept
        if row["measure"] is not None:
            moves += select(view, pair, Amount(row["measure"], row["target"]))
    frozen = [row | _frozen(before.get(row["source"], NO_HITS)) for row in left_out(view)]
    if counting.counts and not any(pair.gap >= settings.low_threshold for pair in judged):
        names = {row["source"] for row in frozen}
        after = {broker: hit for broker, hit in after.items() if broker in names}
    moves = caps.apply(moves, settings, groups or {})
    taken = [row for row in moves if row["taken"]]
    return AvgShed(
        complete([*decisions, *frozen], taken, reasons_by_pair(moves)),
        moves,
        {broker: hit for broker, hit in sorted(after.items()) if hit != NO_HITS},
    )


def _load(row: Mapping[str, Any], settings: Settings) -> Load:
    rate, throughput = traffic(row, "msg_rate"), traffic(row, "msg_throughput")
    return Load(row["broker"], score(row, settings), rate, throughput, row.get("reserved_by") or "")


def _decide(
    view: View, pair: Pair, hits: Mapping[str, HitCount], counting: Counting, force_threshold: float | None
) -> tuple[Row, Hits]:
    """The decision on one pair, and the counts it leaves behind."""
    settings = view.settings
    before = Hits(hits.get(pair.source.broker, NO_HITS), hits.get(pair.destination.broker, NO_HITS))
    judging = counting.counts or counting.reason == "other_thresholds"
    judged = count(pair, before, settings) if judging else before
    if force_threshold is not None:
        fired = pair.gap >= force_threshold and not pair.is_middle
    else:
        fired = judging and pair.gap >= settings.low_threshold and ready(judged, settings)
    # Counts start anew with the firing, whether or not a bundle is found: a pair must earn its hits again.
    after = Hits(NO_HITS, NO_HITS) if fired else judged if counting.counts else before
    wanted = amount(pair, settings) if fired else None
    row = decision(view, pair.source.broker) | {
        "pair": pair.number,
        "pool": pair.source.pool or None,
        "destination": pair.destination.broker,
        "source_score": pair.source.score,
        "destination_score": pair.destination.score,
        "gap": pair.gap,
        **_columns(before, "_before"),
        **_columns(after, ""),
        "high_hits": judged.high,
        "low_hits": judged.low,
        "fired": fired,
        "reason": _reason(pair, fired, wanted, settings, counting),
        "measure": wanted.measure if wanted else None,
        "target": wanted.target if wanted else None,
    }
    return row, after


def _columns(hits: Hits, suffix: str) -> dict[str, int]:
    return {
        f"source_high{suffix}": hits.source.high,
        f"source_low{suffix}": hits.source.low,
        f"destination_high{suffix}": hits.destination.high,
        f"destination_low{suffix}": hits.destination.low,
    }


def _reason(pair: Pair, fired: bool, wanted: Amount | None, settings: Settings, counting: Counting) -> str:
    if pair.is_middle:
        return "middle"
    if fired:
        return "fired" if wanted else "below_minimum"
    if pair.gap < settings.low_threshold:
        return "below_low"
    if counting.reason == "forced":
        return "below_force"
    if counting.reason == "too_soon":
        return "too_soon"
    return "hits_high" if pair.gap >= settings.high_threshold else "hits_low"


def _frozen(hits: HitCount) -> dict[str, int]:
    """Columns of a broker left out."""
    high, low = hits
    return {"source_high_before": high, "source_low_before": low, "source_high": high, "source_low": low}
