"""The means on Spark are those of the specification, digit for digit."""

from __future__ import annotations

from random import Random

import pyarrow as pa

from pulsar_rebalancer.snapshot import BUNDLES, MEANS, TRAFFIC
from pulsar_rebalancer.storage import Folder
from pulsar_rebalancer.strategies import means as specification
from pulsar_rebalancer_spark import means, tables


def test_three_samples_with_bundles_that_come_go_and_have_two_owners(spark, tmp_path):
    random = Random(7)
    known: dict[str, list[dict[str, object]]] = {"c1": [], "c2": []}
    for _ in range(3):
        rows = [
            {
                "cluster": cluster,
                "broker": f"b{random.randint(0, 3)}",
                "bundle": f"t/n/0x{random.randint(0, 30):08x}_0x1",
                **{name: random.uniform(0, 1e6) for name in TRAFFIC},
            }
            for cluster in known
            for _ in range(40)
        ]
        bundles, previous = Folder(str(tmp_path / "bundles.parquet")), Folder(str(tmp_path / "means.parquet"))
        bundles.write_table(pa.Table.from_pylist(rows, schema=BUNDLES))
        previous.write_table(pa.Table.from_pylist([row for each in known.values() for row in each], schema=MEANS))
        updated = means.update(
            tables.read(spark, [bundles], BUNDLES).repartition(3), tables.read(spark, [previous], MEANS)
        )
        answer = sorted((row.asDict() for row in updated.collect()), key=lambda row: (row["cluster"], row["bundle"]))
        for cluster in known:
            known[cluster] = specification.update([row for row in rows if row["cluster"] == cluster], known[cluster])
        assert answer == [row for cluster in sorted(known) for row in known[cluster]]
    assert {row["samples"] for row in answer} == {1, 2, 3}
