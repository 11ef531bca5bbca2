"""Strategies that are decided by their specification: one task per cluster runs `strategies.pipeline`."""

from __future__ import annotations

import gc
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from pulsar_rebalancer.run.tables import DECISIONS, MOVES, table
from pulsar_rebalancer.strategies import pipeline, rows
from pulsar_rebalancer.strategies.bundles import COLUMNS, Bundles
from pulsar_rebalancer.strategies.kept import KeptState
from pulsar_rebalancer_spark import candidates, tables
from pulsar_rebalancer_spark.strategy import Decided

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame

    from pulsar_rebalancer.strategies.pipeline import RunContext
    from pulsar_rebalancer.strategies.sample import BrokerSample, Decision
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
    run: RunInput, brokers: Sequence[BrokerSample], held: Callable[[], DataFrame], kept: Callable[[], None]
) -> Decided:
    """Decide one run (`strategy.Decide`)."""
    bundles = candidates.with_reason(
        candidates.with_traffic(held()),
        {run.cluster: run.settings.excluded_namespaces},
        {run.cluster: run.settings.excluded_bundles},
    )
    answers = decide_clusters({run.cluster: brokers}, bundles, {run.cluster: run.context}).cache()
    try:
        decided = decisions(answers)[run.cluster]
        tables.write(moves(answers), run.folder / "plan" / "moves.parquet")
    finally:
        answers.unpersist()
    return decided


def decide_clusters(
    brokers: Mapping[str, Sequence[BrokerSample]], bundles: DataFrame, contexts: Mapping[str, RunContext]
) -> DataFrame:
    """Decide every cluster in a Python worker, exact to the last digit: Arrow in, Arrow out.

    Args:
        brokers: all that a cluster lists, by cluster.
        bundles: cluster and `strategies.bundles.COLUMNS`.
        contexts: what each cluster's run starts from; they travel to the workers, as the brokers do.

    Returns:
        cluster, decision, move and rest, one of the three in every row: to be cached, it is read more than once.
    """
    columns = pa.schema([pa.field("cluster", pa.string()), *COLUMNS])

    def answer(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held = pa.Table.from_batches((batch.cast(columns) for batch in batches), columns)
        # What is made is kept to the end: to look through it for garbage takes a third of the time.
        gc.disable()
        try:
            for cluster, context in contexts.items():
                of_cluster = held.filter(pc.field("cluster") == cluster).drop_columns("cluster")
                yield from _answer(cluster, context, brokers[cluster], Bundles(of_cluster)).to_batches()
        finally:
            gc.enable()

    return bundles.select(columns.names).repartition(1).mapInArrow(answer, _COLUMNS)


def _answer(cluster: str, context: RunContext, brokers: Sequence[BrokerSample], bundles: Bundles) -> pa.Table:
    decided = pipeline.decide(context, brokers, bundles)
    measures = {move.source: move.measure for move in decided.moves if move.taken}
    traffic = {b.broker: b.traffic(measures[b.broker]) for b in brokers if b.broker in measures}
    rest = {
        "kept": decided.kept.document(),
        "sentence": decided.sentence,
        "samples": decided.samples,
        "source_traffic": traffic,
    }
    decisions = table([rows.decision_row(cluster, decision) for decision in decided.decisions], DECISIONS)
    return pa.concat_tables(
        [
            _part(cluster, "decision", decisions.to_struct_array()),
            _part(cluster, "move", rows.move_table(cluster, decided.moves).to_struct_array()),
            _part(cluster, "rest", pa.chunked_array([[json.dumps(rest)]])),
        ]
    )


def _part(cluster: str, name: str, found: pa.ChunkedArray[Any]) -> pa.Table:
    columns: dict[str, Any] = {field.name: pa.nulls(len(found), field.type) for field in _ANSWER}
    return pa.table(columns | {"cluster": pa.repeat(cluster, len(found)), name: found}).cast(_ANSWER)


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
