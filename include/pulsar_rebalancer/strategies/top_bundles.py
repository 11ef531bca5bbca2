"""The busiest bundles of a broker, the only ones that TransferShedder looks at."""

from __future__ import annotations

import heapq
import math
from typing import TYPE_CHECKING, Any

from pulsar_rebalancer.snapshot import namespace_of
from pulsar_rebalancer.strategies.candidates import SYSTEM_NAMESPACE
from pulsar_rebalancer.strategies.scoring import traffic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pulsar_rebalancer.strategies.view import Row, View

THROUGHPUT_STEP = 1e5  # bytes/s
RATE_STEP = 100  # msg/s
CONNECTIONS_STEP = 500
CACHE_STEP = 100_000  # bytes


def top_bundles(view: View, broker: str) -> list[Row]:
    """The top bundles of a broker, the smallest first, with `msg_rate` and `msg_throughput` as reported now.

    Brokers under the extensible load manager name them (`top_rank`). Elsewhere they are found as those brokers find
    them (TopKBundles.update of 4.2.4): bundles of system and excluded namespaces, under policies and without throughput
    are no candidates.
    """
    found = view.bundles_of(broker)
    named = [row for row in found if row.get("top_rank") is not None]
    if named:
        ordered = sorted(named, key=lambda row: row["top_rank"])
    else:
        candidates = (row for row in found if _is_candidate(view, row))
        busiest = heapq.nlargest(view.settings.top_bundles, candidates, key=size)
        ordered = sorted(busiest, key=lambda row: (size(row), row["bundle"]))
    return [{**row, **{name: traffic(row, name) for name in ("msg_rate", "msg_throughput")}} for row in ordered]


def size(bundle: Mapping[str, Any]) -> tuple[int, ...]:
    """How large a bundle is, in steps within which sizes are equal (NamespaceBundleStats.compareTo since #24772)."""
    connections = sum(bundle[name] or 0 for name in ("topics", "producers", "consumers"))
    return (
        _steps(bundle["msg_throughput_in"] or 0.0, THROUGHPUT_STEP),
        _steps(bundle["msg_throughput_out"] or 0.0, THROUGHPUT_STEP),
        _steps(traffic(bundle, "msg_rate"), RATE_STEP),
        connections // CONNECTIONS_STEP,
        (bundle["cache_size"] or 0) // CACHE_STEP,
    )


def _is_candidate(view: View, bundle: Mapping[str, Any]) -> bool:
    namespace = namespace_of(bundle["bundle"])
    return (
        namespace != SYSTEM_NAMESPACE
        and namespace not in view.settings.excluded_namespaces
        and (view.settings.shed_policy_bundles or bundle.get("policy") is None)
        and bundle["reason"] != "bundle_quarantined"
        and traffic(bundle, "msg_throughput") > 0
    )


def _steps(figure: float, step: float) -> int:
    # Math.round of Java: halves go up.
    return math.floor(figure / step + 0.5)
