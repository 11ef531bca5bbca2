"""One broker with nearly all bundles takes the time of its bytes: nothing is looked at once for each of the others."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from lab.benchmarks import clusters
from tests.spark_apps.pulsar_rebalancer_spark.test_growth_on_spark import cpu_seconds

from pulsar_rebalancer.decide.run_input import RunInput
from pulsar_rebalancer_spark.rebalance import decide

BROKERS, EACH = 200, 100
HOTTEST = "broker-00197.pulsar:8080"
LONGEST = 3
"""How many times the CPU time of the same bundles on all brokers; it is more than ten when something is quadratic."""


def test_twenty_thousand_bundles_on_one_broker_take_no_longer_than_on_all(spark, tmp_path):
    works = []
    for skewed in (False, True):
        root = str(tmp_path / str(skewed))
        run = clusters.make(root, BROKERS, EACH)
        if skewed:
            file = run / "input" / "bundles.parquet"
            held = file.read_table()
            moved = pc.and_(pc.is_null(held["policy"]), pc.starts_with(held["broker"], "broker"))
            brokers = pc.if_else(moved, pa.scalar(HOTTEST), held["broker"])
            file.write_table(held.set_column(held.schema.get_field_index("broker"), "broker", brokers))
        works.append(lambda run=run: decide(lambda: spark, RunInput.read(run.uri)))
    even, all_on_one = cpu_seconds(spark, *works)
    moves = (run / "plan" / "moves.parquet").read_table()
    assert moves["source"].to_pylist().count(HOTTEST) > 0.9 * BROKERS * EACH
    assert all_on_one < LONGEST * even, (even, all_on_one)
