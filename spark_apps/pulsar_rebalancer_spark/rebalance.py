"""The application that decides: `spark-submit rebalance.py --root ROOT --run RUN [--run RUN ...]`.

Files in, files out: it touches neither Airflow nor Pulsar. The driver holds pairs and taken moves, never the bundles.
A retry on the same run writes the same plan with the same hash. With the wheel installed nothing else is needed; from a
source tree PYTHONPATH names the folders include/ and spark_apps/.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pulsar_rebalancer.config.enums import Strategy
from pulsar_rebalancer.errors import RebalancerError, SnapshotError
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.tables import BROKERS, BUNDLES, MEANS
from pulsar_rebalancer_spark import avg_shedder, means, plan_output, specification, tables
from pulsar_rebalancer_spark.run_input import RunInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from pulsar_rebalancer.run.plan import Summary
    from pulsar_rebalancer_spark.decision_tables import Decide


def session() -> SparkSession:
    """Return the Spark session; master and memory come from spark-submit."""
    # Python workers take the driver's interpreter unless the connection names another (`spark.pyspark.python`).
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("pulsar-rebalancer")
    return (
        builder.config("spark.sql.session.timeZone", "UTC")
        # Spark would look up the Python call site of every column expression: seconds in all.
        .config("spark.python.sql.dataFrameDebugging.enabled", "false")
        # Parquet packs names about ten times; Spark would take a million bundles for few and broadcast them.
        .config("spark.sql.sources.fileCompressionFactor", "10")
        .config("spark.sql.join.preferSortMergeJoin", "false")
        # What executors write is for its owner alone, as everything below the storage root.
        .config("spark.hadoop.fs.permissions.umask-mode", "077")
        .getOrCreate()
    )


def decide(spark: SparkSession, run: RunInput) -> Summary:
    """Decide one run and write its plan.

    Raises:
        SnapshotError: `file_damaged` when the tables hold no broker of the run's cluster.
    """
    plan = run.folder / "plan"
    plan.delete()
    bundles = tables.read(spark, [run.folder / "input" / "bundles.parquet"], BUNDLES)
    brokers = tables.read(spark, [run.folder / "input" / "brokers.parquet"], BROKERS)
    brokers = brokers.where(brokers["cluster"] == run.cluster)
    strategy: Decide = avg_shedder.decide if run.settings.strategy is Strategy.AVG else specification.decide
    with ThreadPoolExecutor(max_workers=1) as beside:
        # The means do not depend on the decisions: two small jobs share the cores.
        means_of_run = beside.submit(_updated_means, spark, run, bundles)
        decided = strategy(spark, run, brokers, bundles, means_of_run.result)
        means_of_run.result()
    if not decided.decisions:
        raise SnapshotError(Reason.FILE_DAMAGED, f"{run.folder.uri}: the brokers table has no broker of {run.cluster}")
    return plan_output.write(run, plan_output.with_drains(run, decided) if run.drains.brokers else decided)


def _updated_means(spark: SparkSession, run: RunInput, bundles: DataFrame) -> DataFrame:
    """Return means with this sample, kept for the next run only when the sample counts."""
    known = run.known_means
    previous = tables.read(spark, [known], MEANS) if known else tables.empty(spark, MEANS)
    if run.decision.means and not known:
        print(f"means: {run.decision.means} is gone, bundles start anew with this sample")
    if run.bundles_quarantined:
        # Figures that validation refused would stay in a mean for ten samples: the old mean stays instead.
        refused = F.broadcast(tables.literal(spark, run.bundles_quarantined, tables.PASSED_OVER).drop("reason"))
        sound = bundles.join(refused, on=["cluster", "bundle"], how="left_anti")
        known_of_refused = previous.join(refused, on=["cluster", "bundle"], how="left_semi")
        updated = means.update(sound, previous).unionByName(known_of_refused)
    else:
        updated = means.update(bundles, previous)
    if not run.counting.counts:
        return updated
    if not tables.is_written(run.new_means):
        tables.write(updated, run.new_means)
    return tables.read(spark, [run.new_means], MEANS)


def _report(summary: Summary, seconds: float) -> str:
    scores = f"{summary.score_min:.1f} to {summary.score_max:.1f}" if summary.brokers else "none"
    lines = [
        f"{summary.cluster}: {summary.brokers} brokers, scores {scores} percent, sample {summary.counting}",
        f"  {summary.resolved.settings.strategy}: {summary.sentence}",
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
    except Exception as error:
        traceback.print_exc()
        print(f"not decided: {type(error).__name__} [{Reason.DECIDE_FAILED}]", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
