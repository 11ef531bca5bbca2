"""Find bundles in the newest sample by part of their name, so that people can pick bundles."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.compute as pc

from pulsar_rebalancer.show.page.plan_view import BundleFound, BundlesFound
from pulsar_rebalancer.show.page.recent_runs import newest

if TYPE_CHECKING:
    from datetime import datetime

    from pulsar_rebalancer.storage.layout import ClusterStorage

LISTED = 50
"""Maximum number of bundles listed."""

_COLUMNS = ["bundle", "broker", "topics", "msg_throughput_in", "msg_throughput_out"]


def find_bundles(storage: ClusterStorage, part: str, now: datetime) -> BundlesFound:
    """Return the bundles whose names contain a given text, those with the most traffic first.

    Raises:
        SnapshotError: the newest sample cannot be read.
    """
    run, _ = newest(storage, now)
    if run is None:
        return BundlesFound()
    table = run.snapshot.table("bundles", _COLUMNS)
    table = table.filter(pc.match_substring(table["bundle"], part))
    table = table.append_column("traffic", pc.add(table["msg_throughput_in"], table["msg_throughput_out"]))
    largest = table.sort_by([("traffic", "descending"), ("bundle", "ascending")]).slice(0, LISTED)
    rows = largest.select(list(BundleFound.model_fields)).to_pylist()
    return BundlesFound(bundles=tuple(BundleFound(**row) for row in rows), all=table.num_rows)
