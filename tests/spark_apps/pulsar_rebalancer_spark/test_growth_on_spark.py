"""What deciding on Spark costs grows no faster than reading, joining and writing the same tables there: CPU seconds."""

import gc
import time

import psutil
import pytest
from lab.benchmarks import clusters

from pulsar_rebalancer.config.field_types import Strategy
from pulsar_rebalancer.decide.run_input import RunInput
from pulsar_rebalancer.run.tables import BUNDLES, MEANS
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer_spark import bundle_means
from pulsar_rebalancer_spark.rebalance import decide_run

pytestmark = pytest.mark.system

SMALL, LARGE = (50, 25), (200, 100)
"""Brokers, and bundles of each: sixteen times as many in all."""
MOST = 4
"""How many times the growth of the yardstick: both are a half more, as most of it is Spark's own; one is twenty times
as much when something is quadratic."""


def cpu_seconds(spark, *works):
    """Of Python's driver and of Java, for each work: the best of three, taken in turns."""
    java = psutil.Process(spark.sparkContext._gateway.proc.pid)
    found: list[list[float]] = [[] for _ in works]
    for _ in range(3):
        for work, taken in zip(works, found, strict=True):
            gc.collect()
            begun = time.process_time() + sum(java.cpu_times()[:2])
            work()
            taken.append(time.process_time() + sum(java.cpu_times()[:2]) - begun)
    return [min(taken) for taken in found]


@pytest.mark.parametrize(
    "settings", [{}, {"strategy": Strategy.THRESHOLD, "average_threshold": 1, "min_unload_bundle_throughput": 0}]
)
def test_sixteen_times_the_bundles(spark, tmp_path, settings):
    works = []
    for size in (SMALL, LARGE):
        root = str(tmp_path / str(size))
        run = clusters.make(root, *size, **settings)
        means = ClusterStorage(root, clusters.NAME).state / "means-1-bench.parquet"

        def decided(root=root, run=run):
            given = RunInput.read(run.uri)
            given.new_means_file.delete()
            assert decide_run(lambda: spark, given).bundles_taken

        def yardstick(run=run, means=means):
            bundles = bundle_means.read_frame(spark, [run / "input" / "bundles.parquet"], BUNDLES)
            known = bundle_means.read_frame(spark, [means], MEANS).withColumnsRenamed(
                {name: f"known_{name}" for name in MEANS.names[2:]}
            )
            bundle_means.write_frame(
                bundles.join(known, on=["cluster", "bundle"], how="left"), run / "plan" / "yardstick.parquet"
            )

        works += [decided, yardstick]
    seconds = cpu_seconds(spark, *works)
    growth, least = (large / small for small, large in zip(seconds[:2], seconds[2:], strict=True))
    assert growth < MOST * least, seconds
