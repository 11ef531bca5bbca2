"""How large a bundle is: Pulsar's NamespaceBundleStats.compareTo."""

from __future__ import annotations

from typing import Any

import pytest

from pulsar_rebalancer.run.bundle_columns import BundleSample
from pulsar_rebalancer.strategies.shedders.top_bundles import size


@pytest.mark.parametrize(
    ("figures", "steps"),
    [
        ({}, (0, 0, 0, 0, 0)),
        ({"msg_throughput_in": 49_999, "msg_throughput_out": 149_999}, (0, 1, 0, 0, 0)),
        ({"msg_throughput_in": 50_000, "msg_throughput_out": 150_000}, (1, 2, 0, 0, 0)),
        ({"msg_rate_in": 120, "msg_rate_out": 30}, (0, 0, 2, 0, 0)),
        ({"topics": 300, "producers": 400, "consumers": 299}, (0, 0, 0, 1, 0)),
        ({"topics": 300, "producers": 400, "consumers": 300}, (0, 0, 0, 2, 0)),
        ({"cache_size": 199_999}, (0, 0, 0, 0, 1)),
    ],
)
def test_figures_count_in_steps(figures: dict[str, Any], steps: tuple[int, ...]) -> None:
    assert size(BundleSample("a:1", "t/n/0x0_0x1")._replace(**figures)) == steps
