"""The application that makes a plan, and the Spark session: `spark-submit application.py --root ROOT --run RUN`.

In a source tree, PYTHONPATH must contain the folders include/ and spark_apps/. The module imports only Spark, so that
the session can be started early. Spark is started for this process, unless SPARK_REMOTE is set to the address of a
running Spark Connect server.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from concurrent.futures import Future, ThreadPoolExecutor

from pyspark.sql import SparkSession

USES_SPARK_CONNECT = "SPARK_REMOTE" in os.environ


def session() -> SparkSession:
    """Return the Spark session. spark-submit or the Spark Connect server determines its master and memory."""
    # Python workers take the driver's interpreter unless the connection names another (`spark.pyspark.python`).
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("pulsar-rebalancer").config("spark.sql.session.timeZone", "UTC")
    if not USES_SPARK_CONNECT:
        # Spark would look up the Python call site of every column expression, which takes seconds in total.
        builder = builder.config("spark.python.sql.dataFrameDebugging.enabled", "false")
        # Replays load custom shedders on executors.
        listed = os.environ.get("PULSAR_REBALANCER_STRATEGIES", "")
        builder = builder.config("spark.executorEnv.PULSAR_REBALANCER_STRATEGIES", listed)
        # Only the owner may read what executors write, as with everything under the storage root.
        builder = builder.config("spark.hadoop.fs.permissions.umask-mode", "077")
    started = builder.getOrCreate()
    if USES_SPARK_CONNECT:
        # A server that has ended has lost the session, and each call would go on trying to reach it for ten minutes.
        for policy in started.client.get_retry_policies():
            policy.max_retries = 4  # within about four seconds
    return started


def _stop_and_exit(signal_number: int, future: Future[SparkSession]) -> None:
    """Stop this process's work on the Spark Connect server, and end the process."""
    # A process group may get the signal twice; the second one must not interrupt the handling of the first.
    signal.signal(signal_number, signal.SIG_IGN)
    if future.done() and future.exception() is None:
        future.result().stop()
    os._exit(128 + signal_number)


_SWITCH_INTERVAL_S = 0.0005
"""Python's thread switch interval, in seconds."""

_GC_THRESHOLD = 1_000_000
"""Number of new objects after which Python's garbage collector runs."""


def main() -> int:
    # Otherwise each call that starts the session would wait until the other thread's turn ends.
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    # Otherwise Python would scan all rows in the driver repeatedly, although none of them is garbage.
    gc.set_threshold(_GC_THRESHOLD)
    with ThreadPoolExecutor(max_workers=1) as beside:
        begun = beside.submit(session)
        if USES_SPARK_CONNECT:
            signal.signal(signal.SIGTERM, lambda number, _: _stop_and_exit(number, begun))
        try:
            # Imported while Java starts the session, because the import takes half a second.
            from pulsar_rebalancer_spark import rebalance

            return rebalance.main(sys.argv[1:], begun)
        finally:
            # An open session could block the end of the process, and a Spark Connect server would keep it for an hour.
            if begun.exception() is None:
                begun.result().stop()


if __name__ == "__main__":
    sys.exit(main())
