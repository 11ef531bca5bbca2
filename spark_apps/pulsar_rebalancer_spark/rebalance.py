"""Plan a run from its files. `application.py` starts the Spark session first.

This module uses neither Airflow nor Pulsar. A retry of the same run writes the same plan with the same hash.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from pulsar_rebalancer.decide import plan_files, run_plan
from pulsar_rebalancer.decide.run_input import RunBundles, RunInput
from pulsar_rebalancer.decide.run_plan import learn_from_run
from pulsar_rebalancer.errors import RebalancerError, SnapshotError
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.plan import Summary
from pulsar_rebalancer.run.tables import BROKERS, Cell
from pulsar_rebalancer.state import HitCount
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer.strategies.sample import ClusterSample, Judge, JudgedPair
from pulsar_rebalancer.strategies.scoring import SCORED
from pulsar_rebalancer.texts import number_of
from pulsar_rebalancer_spark import bundle_means
from pulsar_rebalancer_spark.hits import with_fired_flag, with_gaps, with_hit_counts, with_stored_hits
from pulsar_rebalancer_spark.pairing import broker_pairs
from pulsar_rebalancer_spark.scoring import scored_brokers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_Columns: TypeAlias = dict[str, pa.DataType]
_F, _KEY = pa.float64(), {"cluster": pa.string()}

_COUNT_COLUMNS: _Columns = dict.fromkeys(("high", "low"), pa.int64())
KNOWN = pa.schema({**_KEY, "broker": pa.string(), **_COUNT_COLUMNS, "counted_score": _F})
"""Columns of the table of stored hits: one row per broker, with the score of its most recent hit."""

_SETTINGS: _Columns = {
    **{f"{name}_weight": _F for name in SCORED},
    **dict.fromkeys(("low_threshold", "high_threshold"), _F),
    **dict.fromkeys(("hit_count_low", "hit_count_high"), pa.int64()),
}
_RUN_COLUMNS: _Columns = {
    **dict.fromkeys(("hot_threshold", "force_threshold"), _F),
    **dict.fromkeys(("judges", "counts"), pa.bool_()),
}
RULES = pa.schema({**_KEY, **_SETTINGS, **_RUN_COLUMNS})
"""Columns of the table of rules: one row per cluster, with settings and properties of the run (`Judge`, `HitRules`)."""

BUNDLES_PER_TASK = 100_000


def decide_run(spark: Callable[[], SparkSession], run: RunInput) -> Summary:
    """Make and write the plan for one run; `spark` waits for the Spark session and returns it.

    Raises SnapshotError `file_damaged` if the tables have no broker of the run's cluster.
    """
    plan = run.folder / "plan"
    plan.delete()
    if not run.brokers:
        raise SnapshotError(Reason.FILE_DAMAGED, f"{run.folder.uri}: table brokers lists no broker of {run.cluster}")
    with ThreadPoolExecutor(max_workers=1) as beside:
        tuned = beside.submit(lambda: _tuned_session(spark(), run))
        _ = run.known_means_file  # once for both threads, while Spark starts
        held = beside.submit(lambda: bundle_means.bundles_of_run(tuned.result(), run))
        # The means do not depend on the decisions.
        kept = beside.submit(lambda: bundle_means.store_means(run, held.result()))

        def means() -> StoragePath:
            return bundle_means.write_new_means(run, held.result, kept.result)

        try:
            # While Spark starts and computes the means.
            learned = learn_from_run(run)
            learned.write_costs(run)
            bundles = RunBundles(run, means, learned.bundle_loads)
            planned = run_plan.plan_run(run, bundles, learned, _make_judge(tuned.result, run))
            kept.result()
        finally:
            if not run.hit_rules.counts:
                run.new_means_file.delete()
    return plan_files.write_run_plan(run, planned)


def judged_pairs(brokers: DataFrame, stored_hits: DataFrame, rules: DataFrame) -> DataFrame:
    """Return all clusters' pairs, as `JudgedPair` by cluster; tables as in `scored_brokers` and `with_stored_hits`."""
    return (
        brokers.transform(scored_brokers, rules)
        .transform(with_stored_hits, stored_hits)
        .transform(broker_pairs)
        .transform(with_gaps)
        .transform(with_hit_counts)
        .transform(with_fired_flag)
    )


def stored_hits_rows(cluster: str, sample: ClusterSample, hits: Mapping[str, HitCount]) -> list[dict[str, Cell]]:
    scores, none = sample.counting.samples, HitCount()
    return [
        {"cluster": cluster, "broker": name, "counted_score": scores.get(name), **hits.get(name, none)._asdict()}
        for name in sorted({*hits, *scores})
    ]


def rule_row(cluster: str, sample: ClusterSample, hot_score: float) -> dict[str, Cell]:
    counting = {"judges": sample.counting.judges_sample, "counts": sample.counting.counts}
    thresholds = {"hot_threshold": hot_score, "force_threshold": sample.force_threshold}
    return {"cluster": cluster} | {name: getattr(sample.settings, name) for name in _SETTINGS} | thresholds | counting


def _make_judge(session_of_run: Callable[[], SparkSession], run: RunInput) -> Judge:
    """Return what judges the pairs of a run's brokers in Spark."""

    def judge(sample: ClusterSample, hits: Mapping[str, HitCount], hot_score: float) -> list[JudgedPair]:
        spark = session_of_run()
        left_out = [broker.broker for broker in sample.brokers if broker.left_out is not None]
        brokers = bundle_means.read_frame(spark, [run.folder / "input" / "brokers.parquet"], BROKERS).coalesce(1)
        brokers = brokers.where((F.col("cluster") == run.cluster) & ~F.col("broker").isin(left_out))
        known = bundle_means.literal(spark, stored_hits_rows(run.cluster, sample, hits), KNOWN)
        rules = bundle_means.literal(spark, [rule_row(run.cluster, sample, hot_score)], RULES)
        pairs = judged_pairs(brokers, known.hint("shuffle_hash"), rules.hint("shuffle_hash"))
        return sorted(JudgedPair(*row[1:]) for row in pairs.collect())

    return judge


def _tuned_session(spark: SparkSession, run: RunInput) -> SparkSession:
    """Return the session; the number of tasks depends on the run's size (small: no shuffle)."""
    tasks = max(1, math.ceil(run.bundles_footer.num_rows / BUNDLES_PER_TASK))
    spark.conf.set("spark.sql.shuffle.partitions", tasks)
    # For few rows, compiling a query takes longer than interpreting it.
    spark.conf.set("spark.sql.codegen.wholeStage", str(tasks > 1).lower())
    spark.conf.set("spark.sql.codegen.factoryMode", "FALLBACK" if tasks > 1 else "NO_CODEGEN")
    # Adaptive execution would run each stage as a job to find the size, which the number of rows already gives.
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    return spark


def _plan_report(summary: Summary, seconds: float) -> str:
    scores = f"{summary.score_min:.1f} to {summary.score_max:.1f}" if summary.brokers else "none"
    lines = [
        f"{summary.cluster}: {number_of(summary.brokers, 'broker')}, scores {scores} %, sample: {summary.counting}",
        f"  {summary.resolved.settings.strategy}: {summary.sentence}",
        f"  {number_of(summary.bundles_taken, 'bundle')} to move in {number_of(summary.waves, 'wave')}",
    ]
    if summary.bundle_skip_reasons:
        reasons = ", ".join(f"{reason} {count}" for reason, count in summary.bundle_skip_reasons.items())
        lines.append(f"  passed over: {reasons}")
    if summary.bundles_taken:
        lines.append(f"  predicted scores {summary.predicted_min:.1f} to {summary.predicted_max:.1f} %")
    return "\n".join([*lines, f"  plan {summary.plan_id} (hash {summary.hash[:16]}), made in {seconds:.1f} s"])


def _error_text(error: BaseException, root: str) -> str:
    """Return what went wrong, with its reason code."""
    if isinstance(error, RebalancerError):
        return str(error)
    condition = error.getCondition() or "" if isinstance(error, PySparkException) else ""
    if condition == "PATH_NOT_FOUND":
        # The driver has just read the run, so only Spark, which runs on other machines, does not see it.
        return f"Spark cannot find the storage root {root} on its machines [{Reason.FILE_MISSING}]"
    # Only errors of a Spark Connect server have a status.
    status = error.getGrpcStatusCode().name if hasattr(error, "getGrpcStatusCode") else ""
    if status == "UNAUTHENTICATED":
        return f"the Spark Connect server refused the token of the Airflow connection [{Reason.SPARK_UNREACHABLE}]"
    if status == "UNAVAILABLE" or condition.startswith("INVALID_HANDLE"):
        return f"the Spark Connect server has stopped: start it again [{Reason.SPARK_UNREACHABLE}]"
    traceback.print_exception(error)
    return f"{type(error).__name__} [{Reason.SPARK_FAILED}]"


def main(arguments: Sequence[str], spark: Future[SparkSession]) -> int:
    """Plan a run, print the result, and return the exit code: 1 if it fails, with its reason code printed."""
    parser = argparse.ArgumentParser(prog="application.py", description="Make the plan of a rebalancer run.")
    parser.add_argument("--root", required=True, help="storage root, the folder of all clusters")
    parser.add_argument("--run", required=True, help="folder of the run")
    given, started = parser.parse_args(arguments), time.monotonic()
    try:
        summary = decide_run(spark.result, RunInput.read(given.run.rstrip("/")))
    except BaseException as error:  # someone else's strategy may raise anything
        print(f"not decided: {given.run}: {_error_text(error, given.root)}", file=sys.stderr, flush=True)
        return 1
    print(_plan_report(summary, time.monotonic() - started), flush=True)
    return 0
