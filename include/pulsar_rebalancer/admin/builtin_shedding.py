"""Switch Pulsar's own shedding off before the rebalancer moves bundles, and back on when the rebalancer is retired."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from pulsar_rebalancer.errors import AdminError
from pulsar_rebalancer.names import BALANCER, SHEDDING, SPLITTING
from pulsar_rebalancer.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pulsar_rebalancer.admin.client import PulsarAdmin

VALUES = {"take_over": "false", "hand_back": "true"}
"""The value of `loadBalancerSheddingEnabled` set by each action."""

_SECONDS_BETWEEN_READS = 0.5


def shedding_is_on(runtime: Mapping[str, str]) -> bool:
    """Return whether a broker with this runtime configuration would shed bundles if it were the leader."""
    return all(runtime[name].strip().lower() == "true" for name in (BALANCER, SHEDDING))


def splitting_is_on(runtime: Mapping[str, str]) -> bool:
    """Return whether a broker with this runtime configuration splits bundles automatically."""
    return runtime.get(SPLITTING, "").strip().lower() == "true"


async def read(admin: PulsarAdmin, name: str = SHEDDING) -> dict[str, str]:
    """Return a switch's value on each broker, or `[<reason code>]` if it cannot be read.

    Raises:
        AdminError: the list of brokers cannot be read.
    """

    async def ask(broker: str) -> str:
        try:
            return (await admin.runtime_configuration(broker))[name].strip().lower()
        except AdminError as error:
            return f"[{error.reason}]"

    brokers = sorted(set(await admin.brokers()))
    return dict(zip(brokers, await asyncio.gather(*map(ask, brokers)), strict=True))


async def switch(admin: PulsarAdmin, value: str, *, timeout_seconds: float) -> dict[str, str]:
    """Set the shedding switch, wait until all brokers have applied it, and return each broker's value.

    Repeated calls are safe.

    Args:
        value: `true` or `false`.
        timeout_seconds: maximum time for all brokers to apply the value.

    Returns:
        The value on each broker, after all have applied it or the timeout has expired. Check the values with `require`.

    Raises:
        AdminError: a broker refused the request, or the list of brokers cannot be read.
    """
    await admin.set_dynamic(SHEDDING, value)
    limit = time.monotonic() + timeout_seconds
    values = await read(admin)
    while not _all(values, value) and time.monotonic() < limit:
        await asyncio.sleep(_SECONDS_BETWEEN_READS)
        values = await read(admin)
    return values


def require(values: Mapping[str, str], value: str) -> None:
    """Check that every broker has applied the value.

    Raises:
        AdminError: `setting_not_taken`; the message names the brokers that have not applied the value.
    """
    if not _all(values, value):
        others = ", ".join(f"{broker} says {said}" for broker, said in values.items() if said != value)
        raise AdminError(
            Reason.SETTING_NOT_TAKEN, f"{SHEDDING} was set to {value}, but {others or 'no broker is listed'}."
        )


def _all(values: Mapping[str, str], value: str) -> bool:
    return bool(values) and set(values.values()) == {value}
