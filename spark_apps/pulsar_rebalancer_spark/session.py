"""The Spark session. This module imports only Spark, so that the session can be started early.

Spark is started for this process, unless SPARK_REMOTE is set to the address of a running Spark Connect server.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

from pyspark.sql import SparkSession

CONNECTED = "SPARK_REMOTE" in os.environ
_open: list[SparkSession] = []


def session() -> SparkSession:
    """Return the Spark session. spark-submit or the Spark Connect server determines its master and memory."""
    # Python workers take the driver's interpreter unless the connection names another (`spark.pyspark.python`).
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = _builder()
    if not CONNECTED:
        # Spark would look up the Python call site of every column expression, which takes seconds in total.
        builder = builder.config("spark.python.sql.dataFrameDebugging.enabled", "false")
        # Replays load custom shedders on executors.
        listed = os.environ.get("PULSAR_REBALANCER_STRATEGIES", "")
        builder = builder.config("spark.executorEnv.PULSAR_REBALANCER_STRATEGIES", listed)
        # Only the owner may read what executors write, as with everything under the storage root.
        builder = builder.config("spark.hadoop.fs.permissions.umask-mode", "077")
    return builder.getOrCreate()


def _builder() -> SparkSession.Builder:
    return SparkSession.builder.appName("pulsar-rebalancer").config("spark.sql.session.timeZone", "UTC")


def own_session(spark: SparkSession) -> SparkSession:
    """Return a session with separate settings. The caller must release it with `release`."""
    if not CONNECTED:
        return spark.newSession()
    own: SparkSession = _builder().create()
    _open.append(own)
    return own


def release(own: SparkSession) -> None:
    """Release a session from `own_session`. Otherwise a Spark Connect server would keep it for an hour."""
    if own in _open:
        _open.remove(own)
        own.stop()


def release_all() -> None:
    """Release all open sessions, because garbage-collecting an open session can deadlock."""
    for own in list(_open):
        release(own)


def end_with_process() -> None:
    """Stop this process's work on the Spark Connect server when the process is terminated."""
    if CONNECTED:
        signal.signal(signal.SIGTERM, _leave)


def _leave(number: int, _: FrameType | None) -> None:
    # A process group may get the signal twice; the second one must not interrupt the handling of the first.
    signal.signal(number, signal.SIG_IGN)
    release_all()
    os._exit(128 + number)
