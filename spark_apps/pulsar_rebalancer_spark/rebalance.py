"""Plan several runs in parallel, from the runs' files. `application.py` starts the Spark session first.

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
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from pulsar_rebalancer.decide import plan_files, run_plan
from pulsar_rebalancer.decide.run_input import RunBundles, RunInput
from pulsar_rebalancer.decide.run_lesson import lesson_of
from pulsar_rebalancer.errors import RebalancerError, SnapshotError
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.plan import Summary
from pulsar_rebalancer.run.tables import BROKERS, Cell
from pulsar_rebalancer.state.state_documents import HitCount
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer.strategies.sample import ClusterSample, Judge, JudgedPair
from pulsar_rebalancer.strategies.scoring import SCORED
from pulsar_rebalancer.texts import number_of
from pulsar_rebalancer_spark import bundle_means
from pulsar_rebalancer_spark.hits import compared, counted, fired, remembered
from pulsar_rebalancer_spark.pairing import paired
from pulsar_rebalancer_spark.scoring import scored
from pulsar_rebalancer_spark.session import own_session, release, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_Columns: TypeAlias = dict[str, pa.DataType]
_F, _KEY = pa.float64(), {"cluster": pa.string()}

_COUNTS: _Columns = dict.fromkeys(("high", "low"), pa.int64())
KNOWN = pa.schema({**_KEY, "broker": pa.string(), **_COUNTS, "counted_score": _F})
"""Columns of the table of what the state has about brokers: hits, and the score that has recently caused a hit."""

_SETTINGS: _Columns = {
    **{f"{name}_weight": _F for name in SCORED},
    **dict.fromkeys(("low_threshold", "high_threshold"), _F),
    **dict.fromkeys(("hit_count_low", "hit_count_high"), pa.int64()),
}
_OF_RUN: _Columns = {
    **dict.fromkeys(("hot_threshold", "force_threshold"), _F),
    **dict.fromkeys(("judges", "counts"), pa.bool_()),
}
RULES = pa.schema({**_KEY, **_SETTINGS, **_OF_RUN})
"""Columns of the table of each cluster's rules: settings, and what holds for the run (`Judge`, `Counting`)."""

BUNDLES_PER_TASK = 100_000
RUNS_AT_ONCE = 4


def decide(spark: Callable[[], SparkSession], run: RunInput) -> Summary:
    """Make and write the plan for one run; `spark` waits for the Spark session and returns it.

    Raises SnapshotError `file_damaged` if the tables have no broker of the run's cluster.
    """
    plan = run.folder / "plan"
    plan.delete()
    if not run.brokers:
        raise SnapshotError(Reason.FILE_DAMAGED, f"{run.folder.uri}: the brokers table has no broker of {run.cluster}")
    with ThreadPoolExecutor(max_workers=1) as beside:
        own = beside.submit(lambda: _session_of_run(spark(), run))
        _ = run.known_means  # once for all threads, while Spark starts
        held = beside.submit(lambda: bundle_means.of_run(own.result(), run))
        # The means do not depend on the decisions.
        kept = beside.submit(lambda: bundle_means.keep_means(run, held.result()))

        def means() -> StoragePath:
            return bundle_means.means_of_sample(run, held.result, kept.result)

        try:
            # While Spark starts and computes the means.
            learned = lesson_of(run)
            learned.write(run)
            bundles = RunBundles(run, means, learned.loads)
            planned = run_plan.plan_run(run, bundles, learned, _judge(own.result, run))
            kept.result()
        finally:
            bundle_means.forget_means(run)
            # The session is released after the means are written, even if something failed.
            beside.submit(lambda: release(own.result()))
    return plan_files.write_run(run, planned)


def judged(brokers: DataFrame, known: DataFrame, rules: DataFrame) -> DataFrame:
    """Return the pairs of all clusters, as `JudgedPair` by cluster; for the tables, see `scored` and `remembered`."""
    return (
        brokers.transform(scored, rules)
        .transform(remembered, known)
        .transform(paired)
        .transform(compared)
        .transform(counted)
        .transform(fired)
    )


def known_of(cluster: str, sample: ClusterSample, hits: Mapping[str, HitCount]) -> list[dict[str, Cell]]:
    """Return a cluster's rows of the table `KNOWN`."""
    scores, none = sample.counting.samples, HitCount()
    return [
        {"cluster": cluster, "broker": name, "counted_score": scores.get(name), **hits.get(name, none)._asdict()}
        for name in sorted({*hits, *scores})
    ]


def rules_of(cluster: str, sample: ClusterSample, hot: float) -> dict[str, Cell]:
    """Return a cluster's row of the table `RULES`."""
    counting = {name: getattr(sample.counting, name) for name in ("judges", "counts")}
    thresholds = {"hot_threshold": hot, "force_threshold": sample.force_threshold}
    return {"cluster": cluster} | {name: getattr(sample.settings, name) for name in _SETTINGS} | thresholds | counting


def _judge(session_of_run: Callable[[], SparkSession], run: RunInput) -> Judge:
    """Return what judges the pairs of a run's brokers in Spark."""

    def judge(sample: ClusterSample, hits: Mapping[str, HitCount], hot: float) -> list[JudgedPair]:
        spark = session_of_run()
        left_out = [broker.broker for broker in sample.brokers if broker.left_out is not None]
        brokers = bundle_means.read(spark, [run.folder / "input" / "brokers.parquet"], BROKERS).coalesce(1)
        brokers = brokers.where((F.col("cluster") == run.cluster) & ~F.col("broker").isin(left_out))
        known = bundle_means.literal(spark, known_of(run.cluster, sample, hits), KNOWN)
        rules = bundle_means.literal(spark, [rules_of(run.cluster, sample, hot)], RULES)
        pairs = judged(brokers, known.hint("shuffle_hash"), rules.hint("shuffle_hash"))
        return sorted(JudgedPair(*row[1:]) for row in pairs.collect())

    return judge


def _session_of_run(spark: SparkSession, run: RunInput) -> SparkSession:
    """Return a separate session; the number of tasks depends on the run's size (small: no shuffle)."""
    own, tasks = own_session(spark), max(1, math.ceil(run.bundles_footer.num_rows / BUNDLES_PER_TASK))
    own.conf.set("spark.sql.shuffle.partitions", tasks)
    if tasks == 1:
        # For few rows, compiling a query takes longer than interpreting it.
        own.conf.set("spark.sql.codegen.wholeStage", "false")
        own.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    # Adaptive execution would run each stage as a job to find the size, which the number of rows already gives.
    own.conf.set("spark.sql.adaptive.enabled", "false")
    return own


def _report(summary: Summary, seconds: float) -> str:
    scores = f"{summary.score_min:.1f} to {summary.score_max:.1f}" if summary.brokers else "none"
    lines = [
        f"{summary.cluster}: {number_of(summary.brokers, 'broker')}, scores {scores} %, sample {summary.counting}",
        f"  {summary.resolved.settings.strategy}: {summary.sentence}",
        f"  {number_of(summary.bundles_taken, 'bundle')} to move in {number_of(summary.waves, 'wave')}",
    ]
    if summary.bundle_skip_reasons:
        reasons = ", ".join(f"{reason} {count}" for reason, count in summary.bundle_skip_reasons.items())
        lines.append(f"  passed over: {reasons}")
    if summary.bundles_taken:
        lines.append(f"  predicted scores {summary.predicted_min:.1f} to {summary.predicted_max:.1f} percent")
    return "\n".join([*lines, f"  plan {summary.plan_id} {summary.hash[:16]} in {seconds:.1f} s"])


def _decided(spark: Future[SparkSession], root: str, folder: str) -> bool:
    """Plan a run, print the result, and return whether it succeeded. Errors do not affect other runs."""
    started = time.monotonic()
    try:
        run = RunInput.read(folder)
        print(_report(decide(spark.result, run), time.monotonic() - started), flush=True)
    except BaseException as error:  # someone else's strategy may raise anything
        why = str(error)
        if isinstance(error, AnalysisException) and error.getCondition() == "PATH_NOT_FOUND":
            # The driver has just read the run, so only Spark, which runs on other machines, does not see it.
            why = f"Spark does not see the storage root {root} [{Reason.FILE_MISSING}]"
        elif not isinstance(error, RebalancerError):
            traceback.print_exc()
            why = f"{type(error).__name__} [{Reason.SPARK_FAILED}]"
        print(f"not decided: {folder}: {why}", file=sys.stderr, flush=True)
        return False
    return True


def main(arguments: Sequence[str], begun: Future[SparkSession] | None = None) -> int:
    """Plan the runs in parallel, and return the exit code: 1 if any fails, with its reason code printed.

    `begun` is the future of the Spark session if it is already being started; None to start it here.
    """
    parser = argparse.ArgumentParser(prog="application.py", description="Decide runs of the Pulsar rebalancer.")
    parser.add_argument("--root", required=True, help="storage root, the folder of all clusters")
    parser.add_argument("--run", required=True, action="append", help="folder of a run; may be given again")
    given = parser.parse_args(arguments)
    with ThreadPoolExecutor(max_workers=1) as beside, ThreadPoolExecutor(max_workers=RUNS_AT_ONCE) as runs:
        spark = begun or beside.submit(session)
        # A run that is named twice is decided once: two threads would write the same files.
        folders = dict.fromkeys(folder.rstrip("/") for folder in given.run)
        decided = list(runs.map(lambda folder: _decided(spark, given.root, folder), folders))
        if spark.exception() is None:
            spark.result().stop()
    return 0 if all(decided) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
