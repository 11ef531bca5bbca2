"""A broker's busiest bundles, the only bundles that TransferShedder considers."""

from __future__ import annotations

import heapq
import math
from typing import TYPE_CHECKING

from pulsar_rebalancer.names import SYSTEM_NAMESPACE, namespace_of
from pulsar_rebalancer.reasons import Reason

if TYPE_CHECKING:
    from pulsar_rebalancer.config.settings import Settings
    from pulsar_rebalancer.run.bundle_columns import BundleSample
    from pulsar_rebalancer.strategies.sample import ClusterSample

THROUGHPUT_STEP = 1e5  # bytes/s
RATE_STEP = 100  # msg/s
CONNECTIONS_STEP = 500
CACHE_STEP = 100_000  # bytes


def top_bundles(sample: ClusterSample, broker: str) -> list[BundleSample]:
    """Return a broker's top bundles, smallest first.

    Brokers that use the extensible load manager report their top bundles (`top_rank`). For other brokers, the same rule
    is applied here (TopKBundles.update in 4.2.4). Quarantined bundles, bundles in system and excluded namespaces, and
    bundles without throughput are never top bundles. Bundles with policies are included only if `shed_policy_bundles`
    is set.
    """
    bundles = sample.shed_candidates(broker)
    ranks = {bundle.bundle: bundle.top_rank for bundle in bundles if bundle.top_rank is not None}
    if ranks:
        return sorted((bundle for bundle in bundles if bundle.bundle in ranks), key=lambda bundle: ranks[bundle.bundle])
    candidates = (bundle for bundle in bundles if _is_candidate(sample.settings, bundle))
    busiest = heapq.nlargest(sample.settings.top_bundles, candidates, key=size)
    return sorted(busiest, key=lambda bundle: (size(bundle), bundle.bundle))


def size(bundle: BundleSample) -> tuple[int, ...]:
    """Return a bundle's size for comparisons, rounded so that small differences do not matter.

    As in NamespaceBundleStats.compareTo since apache/pulsar #24772.
    """
    return (
        _steps(bundle.msg_throughput_in, THROUGHPUT_STEP),
        _steps(bundle.msg_throughput_out, THROUGHPUT_STEP),
        _steps(bundle.present_msg_rate, RATE_STEP),
        (bundle.topics + bundle.producers + bundle.consumers) // CONNECTIONS_STEP,
        bundle.cache_size // CACHE_STEP,
    )


def _is_candidate(settings: Settings, bundle: BundleSample) -> bool:
    namespace = namespace_of(bundle.bundle)
    return (
        namespace != SYSTEM_NAMESPACE
        and namespace not in settings.excluded_namespaces
        and (settings.shed_policy_bundles or bundle.policy is None)
        and bundle.reason is not Reason.BUNDLE_QUARANTINED
        and bundle.present_msg_throughput > 0
    )


def _steps(figure: float, step: float) -> int:
    # Java's Math.round: halves are rounded up.
    return math.floor(figure / step + 0.5)
