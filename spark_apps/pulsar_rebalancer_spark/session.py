"""The Spark session, begun before anything else: nothing but Spark is imported here."""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession


def session() -> SparkSession:
    """Return the Spark session; master and memory come from spark-submit."""
    # Python workers take the driver's interpreter unless the connection names another (`spark.pyspark.python`).
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("pulsar-rebalancer")
    return (
        builder.config("spark.sql.session.timeZone", "UTC")
        # Spark would look up the Python call site of every column expression: seconds in all.
        .config("spark.python.sql.dataFrameDebugging.enabled", "false")
        # What executors write is for its owner alone, as everything below the storage root.
        .config("spark.hadoop.fs.permissions.umask-mode", "077")
        .getOrCreate()
    )
