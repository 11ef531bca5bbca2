"""Whether brokers shed and split bundles by themselves."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pulsar_rebalancer.errors import AdminError
from pulsar_rebalancer.names import BALANCER, SHEDDING, SPLITTING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pulsar_rebalancer.admin.client import PulsarAdmin


def shedding_is_on(runtime: Mapping[str, str]) -> bool:
    """Return whether a broker with this runtime configuration would shed bundles if it were the leader."""
    return all(runtime[name].strip().lower() == "true" for name in (BALANCER, SHEDDING))


def splitting_is_on(runtime: Mapping[str, str]) -> bool:
    """Return whether a broker with this runtime configuration splits bundles automatically."""
    return runtime.get(SPLITTING, "").strip().lower() == "true"


async def splitting_brokers(admin: PulsarAdmin) -> list[str]:
    """Return the brokers that split bundles automatically, without those whose configuration cannot be read.

    Raises:
        AdminError: the list of brokers cannot be read.
    """

    async def splits(broker: str) -> bool:
        try:
            return splitting_is_on(await admin.runtime_configuration(broker))
        except AdminError:
            return False

    brokers = sorted(set(await admin.brokers()))
    found = await asyncio.gather(*map(splits, brokers))
    return [broker for broker, is_on in zip(brokers, found, strict=True) if is_on]
