"""AvgShedder: pairs on the driver, bundles as column expressions, no Python on executors.

Brokers are thousands: the specification itself scores and pairs them, counts their hits, and caps what is taken.
Bundles are millions and stay on the executors: their means, why they must stay, and the walk over those of a source.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsar_rebalancer.run.tables import MOVES, table
from pulsar_rebalancer.strategies import waves
from pulsar_rebalancer.strategies.bundles import COLUMNS, Bundles
from pulsar_rebalancer.strategies.kept import KeptState, ShedderState
from pulsar_rebalancer.strategies.sample import ClusterSample
from pulsar_rebalancer.strategies.shedders.avg_shedder import shed
from pulsar_rebalancer_spark import candidates, capped_moves, policies, selection, tables
from pulsar_rebalancer_spark.strategy import Decided

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame

    from pulsar_rebalancer.config.settings import Settings
    from pulsar_rebalancer.run.tables import Cell
    from pulsar_rebalancer.state.counting import Counting
    from pulsar_rebalancer.state.model import HitCount
    from pulsar_rebalancer.strategies.sample import BrokerSample, Decision
    from pulsar_rebalancer_spark.run_input import RunInput


def decide(run: RunInput, brokers: Sequence[BrokerSample], bundles: Callable[[], DataFrame]) -> Decided:
    """Score, pair, count, select and cap (`strategy.Decide`)."""
    decisions = judged(brokers, run.settings, run.counting, run.decision.hits, run.request.force_threshold)
    giving = firing(run.cluster, decisions, run.settings.min_bundle_share)
    moves = run.folder / "plan" / "moves.parquet"
    if giving:
        forbidden = policies.forbidden(run.context, run.cluster, brokers, policies.served(run), giving)
        held = candidates.with_traffic(bundles())
        spark = held.sparkSession
        if forbidden:
            held = policies.with_policy(held, tables.literal(spark, forbidden, tables.FORBIDDEN))
        held = candidates.with_reason(
            held,
            {run.cluster: run.settings.excluded_namespaces},
            {run.cluster: run.settings.excluded_bundles},
        )
        walked = selection.select(tables.literal(spark, giving, tables.FIRING), held)
        capped_moves.write(walked, moves, run.settings, run.policies.groups, by_range=waves.needed(brokers))
    else:
        moves.write_table(table([], MOVES))
    by_name = {broker.broker: broker for broker in brokers}
    traffic = {each.source: by_name[each.source].traffic(each.measure) for each in decisions if each.measure}
    return Decided(decisions, traffic, KeptState(), _sentence(decisions, run), {})


def judged(
    brokers: Sequence[BrokerSample],
    settings: Settings,
    counting: Counting,
    hits: Mapping[str, HitCount],
    force_threshold: float | None = None,
) -> list[Decision]:
    """Return what the specification decides on brokers and pairs, which does not depend on their bundles.

    Args:
        brokers: all that the cluster lists.
        settings: effective settings.
        counting: how the sample counts.
        hits: by broker, before this sample.
        force_threshold: gap in points from which a forced run acts; None for any other run.
    """
    without_bundles = Bundles(COLUMNS.empty_table())
    sample = ClusterSample(brokers, without_bundles, settings, counting=counting, force_threshold=force_threshold)
    return shed(sample, ShedderState(hits=hits)).decisions


def firing(cluster: str, decisions: Iterable[Decision], min_bundle_share: float) -> list[dict[str, Cell]]:
    """Return the pairs that move something (`tables.FIRING`)."""
    names = [name for name in tables.names(tables.FIRING) if name not in ("cluster", "least")]
    return [
        {"cluster": cluster, "least": each.target * min_bundle_share, **{name: getattr(each, name) for name in names}}
        for each in decisions
        if each.target is not None
    ]


def _sentence(decisions: Sequence[Decision], run: RunInput) -> str:
    pairs = [pair for pair in decisions if pair.gap is not None and pair.source != pair.destination]
    settings = run.settings
    over = sum(pair.gap is not None and pair.gap >= settings.low_threshold for pair in pairs)
    low = max((pair.low_hits or 0 for pair in pairs), default=0)
    high = max((pair.high_hits or 0 for pair in pairs), default=0)
    hits = f"{low} of {settings.hit_count_low} low hits, {high} of {settings.hit_count_high} high hits"
    fired = sum(pair.fired for pair in pairs)
    return f"{over} of {len(pairs)} pairs differ by {settings.low_threshold:g} points or more, {hits}, {fired} fired"
