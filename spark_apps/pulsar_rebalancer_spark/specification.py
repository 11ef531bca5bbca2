"""Strategies that are decided by their specification: one task per cluster runs `strategies.judging`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F

from pulsar_rebalancer.snapshot import MOVES
from pulsar_rebalancer.strategies import judging
from pulsar_rebalancer.strategies.scoring import traffic
from pulsar_rebalancer_spark import candidates, rules, tables
from pulsar_rebalancer_spark.decided import Decided

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import Row as SparkRow

    from pulsar_rebalancer.strategies.judging import Case
    from pulsar_rebalancer.strategies.view import Row
    from pulsar_rebalancer_spark.run_input import RunInput

_ANSWER = pa.schema([("cluster", pa.string()), ("kind", pa.string()), ("document", pa.string())])
_COLUMNS = "cluster string, kind string, document string"


def decide(
    spark: SparkSession, run: RunInput, brokers: DataFrame, bundles: DataFrame, updated_means: Callable[[], DataFrame]
) -> Decided:
    """Judge one run (`decided.Decide`)."""
    passed_over = tables.literal(spark, run.bundles_passed_over, tables.PASSED_OVER)
    of_cluster = rules.of_cluster({run.cluster: rules.entry(run.settings, run.counting)})
    held = candidates.with_reason(candidates.of_cluster(bundles, updated_means()), of_cluster, passed_over)
    answers = judge(brokers, held, {run.cluster: run.case}).cache()
    try:
        found = documents(answers).get(run.cluster)
        if found is None:
            return Decided([], {}, {}, "")
        tables.write(moves(answers), run.folder / "plan" / "moves.parquet")
    finally:
        answers.unpersist()
    rest = found["rest"][0]
    return Decided(found["decision"], rest["source_traffic"], rest["kept"], rest["sentence"])


def judge(brokers: DataFrame, bundles: DataFrame, cases: Mapping[str, Case]) -> DataFrame:
    """Judge every cluster in a Python worker, exact to the last digit: Arrow in, JSON out.

    Args:
        brokers: the brokers table.
        bundles: the bundles with their means and `reason` (`candidates.of_cluster`, `candidates.with_reason`).
        cases: what each cluster's run starts from; they travel to the workers.

    Returns:
        cluster, kind (`decision`, `move` or `rest`), document (JSON): to be cached, it is read more than once.
    """

    def answer(key: tuple[Any, ...], ours: pa.Table, theirs: pa.Table) -> pa.Table:
        cluster = key[0].as_py()
        reports = ours.to_pylist()
        judged = judging.judge(cases[cluster], cluster, reports, theirs.to_pylist())
        by_broker = {row["broker"]: row for row in reports}
        sources = {move["source"]: move["measure"] for move in judged.moves if move["taken"]}
        carried = {broker: traffic(by_broker[broker], measure) for broker, measure in sources.items()}
        rest = {"kept": judged.kept, "sentence": judged.sentence, "source_traffic": carried}
        kinds: dict[str, list[Row]] = {"decision": judged.decisions, "move": judged.moves, "rest": [rest]}
        rows = [(cluster, kind, json.dumps(document)) for kind, documents in kinds.items() for document in documents]
        return pa.Table.from_arrays([pa.array(part, pa.string()) for part in zip(*rows, strict=True)], schema=_ANSWER)

    return brokers.groupBy("cluster").cogroup(bundles.groupBy("cluster")).applyInArrow(answer, _COLUMNS)


def moves(answers: DataFrame) -> DataFrame:
    """The moves table of what `judge` answered."""
    schema = tables.spark_schema(MOVES)
    of_moves = answers.where(F.col("kind") == "move")
    return of_moves.select(F.from_json("document", schema).alias("move")).select("move.*")


def documents(answers: DataFrame) -> dict[str, dict[str, list[Any]]]:
    """Decisions and the rest, by cluster and kind."""
    found: dict[str, dict[str, list[Any]]] = {}
    for row in answers.where(F.col("kind") != "move").collect():
        found.setdefault(row["cluster"], {"decision": [], "rest": []})[row["kind"]].append(document(row))
    return found


def document(row: SparkRow) -> Any:
    """What a row of `judge`'s answer says."""
    return json.loads(row["document"])
