"""AvgShedder as column expressions: no Python on executors (see `strategies.avg_shedder`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsar_rebalancer.run.tables import MOVES, table
from pulsar_rebalancer.strategies import rows
from pulsar_rebalancer.strategies.kept import KeptState
from pulsar_rebalancer_spark import (
    candidates,
    caps,
    hit_counting,
    pairing,
    policies,
    rules,
    scoring,
    selection,
    tables,
)
from pulsar_rebalancer_spark.decision_tables import Decided

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from pulsar_rebalancer.strategies.sample import Decision
    from pulsar_rebalancer_spark.run_input import RunInput


def decide(
    spark: SparkSession, run: RunInput, brokers: DataFrame, bundles: DataFrame, updated_means: Callable[[], DataFrame]
) -> Decided:
    """Score, pair, count, select and cap (`decision_tables.Decide`)."""
    entry = rules.entry(run.settings, run.counting, run.request.force_threshold)
    of_cluster = rules.of_cluster({run.cluster: entry})
    known = tables.literal(spark, run.known_brokers, tables.KNOWN)
    loads = scoring.loads(brokers, of_cluster, known)
    found = pairing.numbered(row.asDict() for row in hit_counting.decide(pairing.pairs(loads)).collect())
    firing = [{name: row[name] for name in tables.names(tables.FIRING)} for row in found if row["measure"] is not None]
    moves = run.folder / "plan" / "moves.parquet"
    if firing:
        passed_over = tables.literal(spark, run.bundles_passed_over, tables.PASSED_OVER)
        pairs = tables.literal(spark, firing, tables.FIRING)
        held = candidates.of_sources(bundles, pairs, updated_means())
        forbidden = policies.forbidden(run.context, run.cluster, brokers, bundles, firing)
        if forbidden:
            held = policies.with_policy(held, tables.literal(spark, forbidden, tables.FORBIDDEN))
        judged = candidates.with_reason(held, of_cluster, passed_over)
        selected = selection.select(pairs, judged)
        tables.write(caps.apply(selected, of_cluster, {run.cluster: run.policies.groups}), moves)
    else:
        moves.write_table(table([], MOVES))
    decisions = [rows.decision(row) for row in found]
    traffic = {row["source"]: row["source_traffic"] for row in found}
    return Decided(decisions, traffic, KeptState(), _sentence(decisions, run), {})


def _sentence(decisions: list[Decision], run: RunInput) -> str:
    pairs = [pair for pair in decisions if pair.gap is not None and pair.source != pair.destination]
    settings = run.settings
    over = sum(pair.gap is not None and pair.gap >= settings.low_threshold for pair in pairs)
    low = max((pair.low_hits or 0 for pair in pairs), default=0)
    high = max((pair.high_hits or 0 for pair in pairs), default=0)
    hits = f"{low} of {settings.hit_count_low} low hits, {high} of {settings.hit_count_high} high hits"
    fired = sum(pair.fired for pair in pairs)
    return f"{over} of {len(pairs)} pairs differ by {settings.low_threshold:g} points or more, {hits}, {fired} fired"
