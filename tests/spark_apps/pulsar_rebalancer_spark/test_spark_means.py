from itertools import cycle
from random import Random
from typing import Any

import pyarrow as pa
from pyspark.sql import functions as F

from pulsar_rebalancer.run import bundle_columns as specification
from pulsar_rebalancer.run.tables import BUNDLES, LONG_TERM_RATES, MEANS, TRAFFIC
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer_spark import bundle_means

NAMES = [f"t/n/0x{number:08x}_0x1" for number in range(31)]
KNOWN_SAMPLES = (8, 9, 10, 998, 999, 1000)
"""Of bundles that are known from the start: both means reach their greatest number of samples on the way."""


def test_three_samples_with_bundles_that_come_go_and_have_two_owners(spark, tmp_path):
    random = Random(7)
    known: dict[str, list[dict[str, object]]] = {
        cluster: [
            {
                "cluster": cluster,
                "bundle": bundle,
                "samples": samples,
                **{name: random.uniform(0, 1e6) for name in (*TRAFFIC, *LONG_TERM_RATES)},
            }
            for bundle, samples in zip(NAMES[::2], cycle(KNOWN_SAMPLES), strict=False)
        ]
        for cluster in ("c1", "c2")
    }
    seen = set()
    for _ in range(3):
        rows = [
            {"cluster": cluster, "broker": broker, "bundle": bundle, "owners": len(owners)}
            | {name: random.uniform(0, 1e6) for name in TRAFFIC}
            for cluster in known
            for bundle in random.sample(NAMES, 25)
            for owners in [random.sample(["b0", "b1", "b2", "b3"], random.choice([1, 1, 1, 2, 3]))]
            for broker in owners
        ]
        bundles, previous = StoragePath(str(tmp_path / "bundles.parquet")), StoragePath(str(tmp_path / "means.parquet"))
        bundles.write_table(pa.Table.from_pylist(rows, schema=BUNDLES))
        previous.write_table(pa.Table.from_pylist([row for each in known.values() for row in each], schema=MEANS))
        sample = bundle_means.read_frame(spark, [bundles], BUNDLES).withColumn("refused", F.lit(False)).repartition(3)
        # one of the bundles was split since: its two parts carry on with their shares until they have means
        parts: dict[str, dict[str, dict[str, float]]] = {"c1": {NAMES[0]: {NAMES[1]: 0.25, NAMES[3]: 0.75}}, "c2": {}}
        of_split: list[dict[str, Any]] = [
            {"cluster": cluster, "bundle": bundle, "part": part, "share": share}
            for cluster in parts
            for bundle, of_bundle in parts[cluster].items()
            for part, share in of_bundle.items()
        ]
        before = bundle_means.add_parts(
            bundle_means.read_frame(spark, [previous], MEANS), bundle_means.literal(spark, of_split, bundle_means.PARTS)
        )
        updated = bundle_means.update(sample, before, is_shared=True)
        answer = sorted(
            (row.asDict() for row in bundle_means.means_table(updated).collect()),
            key=lambda row: (row["cluster"], row["bundle"]),
        )
        for cluster in known:
            carried = specification.add_parts(known[cluster], parts[cluster])
            known[cluster] = specification.update_means([row for row in rows if row["cluster"] == cluster], carried)
        assert answer == [row for cluster in sorted(known) for row in known[cluster]]
        seen |= {row["samples"] for row in answer}
    assert seen == {1, 2, 3, 9, 10, 11, 12, 13, 999, 1000}
