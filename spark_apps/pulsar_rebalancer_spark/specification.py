"""Strategies that are decided by their specification: one task per cluster runs `strategies.pipeline`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F

from pulsar_rebalancer.run.tables import DECISIONS, MOVES, table
from pulsar_rebalancer.strategies import pipeline, rows
from pulsar_rebalancer.strategies.bundles import Bundles
from pulsar_rebalancer.strategies.kept import KeptState
from pulsar_rebalancer_spark import candidates, rules, tables
from pulsar_rebalancer_spark.decision_tables import Decided

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from pulsar_rebalancer.run.tables import Cell
    from pulsar_rebalancer.strategies.pipeline import RunContext
    from pulsar_rebalancer.strategies.sample import Decision
    from pulsar_rebalancer_spark.run_input import RunInput

_ANSWER = pa.schema(
    {
        "cluster": pa.string(),
        "decision": pa.struct(list(DECISIONS)),
        "move": pa.struct(list(MOVES)),
        "rest": pa.string(),
    }
)
_COLUMNS = (
    f"cluster string, decision struct<{tables.columns(DECISIONS)}>, move struct<{tables.columns(MOVES)}>, rest string"
)


def decide(
    spark: SparkSession, run: RunInput, brokers: DataFrame, bundles: DataFrame, updated_means: Callable[[], DataFrame]
) -> Decided:
    """Decide one run (`decision_tables.Decide`)."""
    passed_over = tables.literal(spark, run.bundles_passed_over, tables.PASSED_OVER)
    of_cluster = rules.of_cluster({run.cluster: rules.entry(run.settings, run.counting)})
    held = candidates.with_reason(candidates.of_cluster(bundles, updated_means()), of_cluster, passed_over)
    answers = decide_clusters(brokers, held, {run.cluster: run.context}).cache()
    try:
        decided = decisions(answers).get(run.cluster, Decided([], {}, KeptState(), "", {}))
        if decided.decisions:
            tables.write(moves(answers), run.folder / "plan" / "moves.parquet")
    finally:
        answers.unpersist()
    return decided


def decide_clusters(brokers: DataFrame, bundles: DataFrame, contexts: Mapping[str, RunContext]) -> DataFrame:
    """Decide every cluster in a Python worker, exact to the last digit: Arrow in, Arrow out.

    Args:
        brokers: the brokers table.
        bundles: the bundles with their means and `reason` (`candidates.of_cluster`, `candidates.with_reason`).
        contexts: what each cluster's run starts from; they travel to the workers.

    Returns:
        cluster, decision, move and rest, one of the three in every row: to be cached, it is read more than once.
    """

    def answer(key: tuple[Any, ...], listed: pa.Table, held: pa.Table) -> pa.Table:
        cluster = key[0].as_py()
        context = contexts[cluster]
        samples = rows.broker_samples(listed.to_pylist(), context.left_out)
        decided = pipeline.decide(context, samples, Bundles(held))
        measures = {move.source: move.measure for move in decided.moves if move.taken}
        traffic = {b.broker: b.traffic(measures[b.broker]) for b in samples if b.broker in measures}
        rest = {
            "kept": decided.kept.document(),
            "sentence": decided.sentence,
            "samples": decided.samples,
            "source_traffic": traffic,
        }
        found: list[Mapping[str, Cell | Mapping[str, Cell]]] = [
            *({"decision": rows.decision_row(cluster, decision)} for decision in decided.decisions),
            *({"move": rows.move_row(cluster, move)} for move in decided.moves),
            {"rest": json.dumps(rest)},
        ]
        return table([{"cluster": cluster, **row} for row in found], _ANSWER)

    return brokers.groupBy("cluster").cogroup(bundles.groupBy("cluster")).applyInArrow(answer, _COLUMNS)


def moves(answers: DataFrame) -> DataFrame:
    """Return the moves table of what `decide_clusters` answered."""
    return answers.where(F.col("move").isNotNull()).select("move.*")


def decisions(answers: DataFrame) -> dict[str, Decided]:
    """Return what `decide_clusters` answered without the moves, by cluster."""
    found: dict[str, Decided] = {}
    decided: dict[str, list[Decision]] = {}
    for row in answers.where(F.col("move").isNull()).drop("move").collect():
        if row["rest"] is None:
            decided.setdefault(row["cluster"], []).append(rows.decision(row["decision"].asDict()))
            continue
        rest = json.loads(row["rest"])
        kept = KeptState.parse({}, rest["kept"])
        found[row["cluster"]] = Decided([], rest["source_traffic"], kept, rest["sentence"], rest["samples"])
    return {cluster: each._replace(decisions=decided.get(cluster, [])) for cluster, each in found.items()}
