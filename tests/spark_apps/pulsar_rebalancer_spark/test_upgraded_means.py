"""Means and samples of the previous release, as the application sees them."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F
from tests.include.pulsar_rebalancer import previous_release as previous

from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.run.tables import BUNDLES, MEANS
from pulsar_rebalancer_spark import means, spark_tables
from pulsar_rebalancer_spark.run_input import RunInput


def test_means_without_a_long_term_go_on(spark, tmp_path):
    storage = previous.unpack(tmp_path)
    file = storage.state / previous.stored("counted")["decision"]["means"]
    assert "long_term_msg_rate" not in file.read_table().column_names
    before = {row["bundle"]: row for row in spark_tables.read(spark, [file], MEANS).collect()}
    sample = spark_tables.read(spark, [previous.run_of(storage) / "input" / "bundles.parquet"], BUNDLES)

    known = spark_tables.read(spark, [file], MEANS)
    updated = means.update(sample.withColumn("refused", F.lit(False)), known, shared=False)
    after = means.table(updated).collect()

    now = {row["bundle"]: row for row in sample.collect()}
    assert set(after[0].asDict()) == set(MEANS.names)
    assert {row["bundle"] for row in after} >= set(previous.BUNDLES)
    for row in after:
        old, new = before[row["bundle"]], now[row["bundle"]]
        assert (old["samples"], row["samples"], old["long_term_msg_rate"]) == (1, 2, None)
        assert row["msg_rate_in"] == pytest.approx((old["msg_rate_in"] + new["msg_rate_in"]) / 2)
        assert row["long_term_msg_rate"] == new["msg_rate_in"] + new["msg_rate_out"]


def test_its_samples_are_refused(tmp_path):
    storage = previous.unpack(tmp_path)
    with pytest.raises(SnapshotError, match=r"table brokers is of version 1.*\[file_version\]"):
        RunInput.read(storage.root, previous.run_of(storage).uri)
