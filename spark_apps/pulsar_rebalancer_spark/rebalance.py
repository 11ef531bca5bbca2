"""The application that decides: `spark-submit rebalance.py --root ROOT --run RUN [--run RUN ...]`.

Files in, files out: it touches neither Airflow nor Pulsar. The driver holds pairs and taken moves, never the bundles.
A retry on the same run writes the same plan with the same hash. With the wheel installed nothing else is needed; from a
source tree PYTHONPATH names the folders include/ and spark_apps/.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from pulsar_rebalancer.errors import RebalancerError, SnapshotError
from pulsar_rebalancer.snapshot import BROKERS, BUNDLES, MEANS, MOVES, table
from pulsar_rebalancer_spark import (
    candidates,
    caps,
    hit_counting,
    means,
    pairing,
    plan_output,
    rules,
    scoring,
    selection,
    tables,
)
from pulsar_rebalancer_spark.run_input import RunInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from pulsar_rebalancer.plan import Summary
    from pulsar_rebalancer.storage import Folder


def session() -> SparkSession:
    """The Spark session; master and memory come from spark-submit."""
    builder = SparkSession.builder.appName("pulsar-rebalancer")
    return (
        builder.config("spark.sql.session.timeZone", "UTC")
        # Spark would look up the Python call site of every column expression: seconds in all.
        .config("spark.python.sql.dataFrameDebugging.enabled", "false")
        # Parquet packs names about ten times; Spark would take a million bundles for few and broadcast them.
        .config("spark.sql.sources.fileCompressionFactor", "10")
        .config("spark.sql.join.preferSortMergeJoin", "false")
        .getOrCreate()
    )


def decide(spark: SparkSession, run: RunInput) -> Summary:
    """Decide one run and write its plan.

    Raises:
        SnapshotError: `file_damaged` when the tables hold no broker of the run's cluster.
    """
    plan = run.folder / "plan"
    plan.delete()
    entry = rules.entry(run.settings, run.counting, run.request.force_threshold)
    of_cluster = rules.of_cluster({run.cluster: entry})
    bundles = tables.read(spark, [run.folder / "input" / "bundles.parquet"], BUNDLES)
    with ThreadPoolExecutor(max_workers=1) as beside:
        # The means do not depend on the decisions: two small jobs share the cores.
        updating = beside.submit(_updated_means, spark, run, bundles)
        decided = _decided(spark, run, of_cluster)
        judged = [row.asDict() for row in decided.collect()]
        updated = updating.result()
    if not judged:
        raise SnapshotError("file_damaged", f"{run.folder.uri}: the brokers table has no broker of {run.cluster}")
    firing = [{name: row[name] for name in tables.names(tables.FIRING)} for row in judged if row["measure"] is not None]
    if firing:
        passed_over = tables.literal(spark, run.bundles_passed_over, tables.PASSED_OVER)
        pairs = tables.literal(spark, firing, tables.FIRING)
        held = candidates.with_reason(candidates.of_sources(bundles, pairs, updated), of_cluster, passed_over)
        _write(caps.apply(selection.select(pairs, held), of_cluster), plan / "moves.parquet")
    else:
        (plan / "moves.parquet").write_table(table([], MOVES))
    return plan_output.write(run, judged)


def _decided(spark: SparkSession, run: RunInput, of_cluster: Column) -> DataFrame:
    brokers = tables.read(spark, [run.folder / "input" / "brokers.parquet"], BROKERS)
    known = tables.literal(spark, run.known_brokers, tables.KNOWN)
    of_run = brokers.where(brokers["cluster"] == run.cluster)
    return hit_counting.decide(pairing.pairs(scoring.loads(of_run, of_cluster, known)))


def _updated_means(spark: SparkSession, run: RunInput, bundles: DataFrame) -> DataFrame:
    """Means with this sample, kept for the next run only when the sample counts."""
    known = run.known_means
    previous = tables.read(spark, [known], MEANS) if known else tables.empty(spark, MEANS)
    if run.decision.means and not known:
        print(f"means: {run.decision.means} is gone, bundles start anew with this sample")
    updated = means.update(bundles, previous)
    if not run.counting.counts:
        return updated
    _write(updated, run.new_means)
    return tables.read(spark, [run.new_means], MEANS)


def _write(frame: DataFrame, file: Folder) -> None:
    frame.write.mode("overwrite").parquet(file.for_spark)


def _report(summary: Summary, seconds: float) -> str:
    scores = f"{summary.score_min:.1f} to {summary.score_max:.1f}" if summary.brokers else "none"
    lines = [
        f"{summary.cluster}: {summary.brokers} brokers, scores {scores} percent, sample {summary.counting}",
        f"  {summary.pairs} pairs, {summary.pairs_over} over the low threshold, {summary.pairs_fired} fired",
        f"  {summary.bundles_taken} bundles to move in {summary.waves} waves",
    ]
    if summary.bundles_passed_over:
        reasons = ", ".join(f"{reason} {count}" for reason, count in summary.bundles_passed_over.items())
        lines.append(f"  passed over: {reasons}")
    if summary.bundles_taken:
        lines.append(f"  predicted scores {summary.predicted_min:.1f} to {summary.predicted_max:.1f} percent")
    return "\n".join([*lines, f"  plan {summary.plan_id} {summary.hash[:16]} in {seconds:.1f} s"])


def main(arguments: Sequence[str]) -> int:
    """Decide the runs one after the other; 1 and a line with the reason code when one cannot be decided."""
    parser = argparse.ArgumentParser(prog="rebalance.py", description="Decide runs of the Pulsar rebalancer.")
    parser.add_argument("--root", required=True, help="storage root, the folder of all clusters")
    parser.add_argument("--run", required=True, action="append", help="folder of a run; may be given again")
    given = parser.parse_args(arguments)
    try:
        runs = [RunInput.read(given.root, run) for run in given.run]
        spark = session()
        try:
            for run in runs:
                started = time.monotonic()
                print(_report(decide(spark, run), time.monotonic() - started), flush=True)
        finally:
            spark.stop()
    except RebalancerError as error:
        print(f"not decided: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
