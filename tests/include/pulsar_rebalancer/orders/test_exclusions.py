from typing import Any

import pytest

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.orders.in_force import new_exclusion
from pulsar_rebalancer.orders.order import Control

BUNDLE = "acme/billing/0x00000000_0x80000000"
PATTERN = {"excluded_bundles": ["acme/b*/*"]}
NAMESPACE = {"excluded_namespaces": ["acme/billing"]}
BROKER = {"excluded_brokers": ["b:1"]}


@pytest.mark.parametrize(
    ("planned", "present", "reason"),
    [
        ({}, PATTERN, "bundle_excluded"),
        ({}, NAMESPACE, "namespace_excluded"),
        ({}, BROKER, "broker_excluded"),
        ({}, {"excluded_bundles": ["acme/other/*"], "excluded_brokers": ["c:1"]}, None),
        (PATTERN, {}, None),
        # It moves although its own settings excluded it: a person overruled them.
        (PATTERN, PATTERN, None),
        (NAMESPACE, BROKER, None),
    ],
)
def test_excluded_bundles_leave_the_plan(planned: dict[str, Any], present: dict[str, Any], reason: str | None) -> None:
    before, after = Settings.model_validate(planned), Settings.model_validate(present)

    assert new_exclusion((before, Control()), (after, Control()), BUNDLE, {"a:1", "b:1"}) == reason
