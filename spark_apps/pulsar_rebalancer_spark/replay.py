"""The replay application: `spark-submit replay.py --replay FOLDER [--replay FOLDER ...] --root ROOT`.

A replay's folder contains a file `request.json`. The samples from the cluster's runs are read once, and
stored in this folder as one file per sample. The executors, on which the package must be installed, then
replay separate periods of the samples in parallel, each with several variants.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pulsar_rebalancer.errors import RebalancerError
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.replay.replay_run import PreparedReplay, Progress, parts_of, prepare, replay_part, write_results
from pulsar_rebalancer.replay.variant_outcome import outcome_by_variant
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer_spark.application import session

if TYPE_CHECKING:
    from pyspark import SparkContext


def run_replays(context: SparkContext, prepared_replays: Sequence[PreparedReplay]) -> dict[str, str]:
    """Run the replays on the executors, and write each one's answer, table and report.

    Return the error of each failed replay, by the replay's folder.
    """
    started = time.monotonic()
    # One part per core: each part reads and prepares every sample of its period.
    parts = [part for replay in prepared_replays for part in parts_of(replay, context.defaultParallelism)]
    failed: dict[str, str] = {}
    with Progress([replay.work for replay in prepared_replays], len(parts)):
        done = context.parallelize(parts, len(parts)).map(replay_part).collect()
    for replay in prepared_replays:
        answers = [answer for part, answer in zip(parts, done, strict=True) if part.work == replay.work.uri]
        wrong = next((answer for answer in answers if isinstance(answer, str)), None)
        if wrong is not None:
            failed[replay.replay_folder.uri] = wrong
        else:
            outcomes = [outcome for answer in answers if not isinstance(answer, str) for outcome in answer]
            try:
                write_results(replay, outcome_by_variant(outcomes), time.monotonic() - started)
            except RebalancerError as error:
                failed[replay.replay_folder.uri] = str(error)
        replay.work.delete()
    return failed


def main(arguments: Sequence[str]) -> int:
    """Run the replays, and return the exit code: 1 if any fails, with its reason code printed."""
    parser = argparse.ArgumentParser(prog="replay.py", description="Replay recorded load with other settings.")
    parser.add_argument("--root", required=True, help="storage root, the folder of all clusters")
    parser.add_argument("--replay", required=True, action="append", help="folder of a replay; may be repeated")
    given = parser.parse_args(arguments)
    folders = [StoragePath(folder.rstrip("/")) for folder in dict.fromkeys(given.replay)]
    ready: list[PreparedReplay] = []
    failed = False
    for folder in folders:
        try:
            ready.append(prepare(given.root, folder))
        except Exception as error:
            failed = True
            _print_failure(folder, error)
    if ready:
        spark = session()
        try:
            for folder_uri, why in run_replays(spark.sparkContext, ready).items():
                failed = True
                print(f"not replayed: {folder_uri}: {why}", file=sys.stderr, flush=True)
        finally:
            spark.stop()
            for replay in ready:
                replay.work.delete()
    return int(failed)


def _print_failure(folder: StoragePath, error: Exception) -> None:
    why = str(error)
    if not isinstance(error, RebalancerError):
        traceback.print_exc()
        why = f"{type(error).__name__} [{Reason.SPARK_FAILED}]"
    print(f"not replayed: {folder.uri}: {why}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
