"""Switch Pulsar's own shedding off (`take_over`) or on (`hand_back`)."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from pulsar_rebalancer.admin import PulsarAdmin, builtin_shedding
from pulsar_rebalancer.errors import AdminError
from pulsar_rebalancer.names import BALANCER, SHEDDING
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer_airflow.control.audit import note
from pulsar_rebalancer_airflow.hooks.pulsar_admin import PulsarAdminHook

if TYPE_CHECKING:
    from pydantic import JsonValue

    from pulsar_rebalancer.admin import AdminConnection
    from pulsar_rebalancer.config.settings import Settings
    from pulsar_rebalancer.state.orders.control_document import Order
    from pulsar_rebalancer.storage.layout import ClusterStorage

_log = logging.getLogger(__name__)


def read(connection_id: str) -> dict[str, str]:
    """Return each broker's value of `loadBalancerSheddingEnabled`, or `[<reason code>]` if the broker did not answer.

    Raises:
        AdminError: the list of brokers cannot be read.
    """
    return asyncio.run(_read(PulsarAdminHook(connection_id).get_connection_settings()))


def switch(
    settings: Settings, storage: ClusterStorage, action: str, order: Order, timeout_seconds: float
) -> dict[str, str]:
    """Switch Pulsar's own shedding off (`take_over`) or on (`hand_back`) on all brokers, and check each broker's value.

    Args:
        order: the person who requested the switch, and the reason.
        timeout_seconds: maximum time for all brokers to apply the value.

    Returns:
        Each broker's value of `loadBalancerSheddingEnabled`.

    Raises:
        AdminError: `read_only`, `setting_not_taken`, a broker refused the request, or no broker answered.
    """
    connection = PulsarAdminHook(settings.connection).get_writing_settings()
    value = builtin_shedding.VALUES[action]
    record: dict[str, JsonValue] = {"setting": SHEDDING, "value": value}
    # The note is written first, so the audit trail has the order even if the task dies.
    note(storage, action, order, {**record, "outcome": "begun"})
    try:
        before, after, balancing = asyncio.run(_change(connection, value, timeout_seconds))
        record |= {"before": dict(before), "after": dict(after)}
        builtin_shedding.require(after, value)
    except AdminError as error:
        note(storage, action, order, {**record, "outcome": error.reason})
        raise
    note(storage, action, order, {**record, "outcome": Reason.TAKEN})
    _warn(settings, action, balancing)
    return after


def _warn(settings: Settings, action: str, balancing: dict[str, str]) -> None:
    off = sorted(broker for broker, said in balancing.items() if said == "false")
    if action == "hand_back" and off:
        _log.warning("%s is false on %s: Pulsar does not shed there", BALANCER, ", ".join(off))
    if action == "take_over" and not settings.mode.moves:
        _log.warning("The mode is %s: no bundles are moved until it is auto or approve", settings.mode)


async def _read(connection: AdminConnection) -> dict[str, str]:
    async with PulsarAdmin(connection) as admin:
        return await builtin_shedding.read(admin)


async def _change(
    connection: AdminConnection, value: str, timeout_seconds: float
) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    async with PulsarAdmin(connection) as admin:
        before = await builtin_shedding.read(admin)
        after = await builtin_shedding.switch(admin, value, timeout_seconds=timeout_seconds)
        return before, after, await builtin_shedding.read(admin, BALANCER)
