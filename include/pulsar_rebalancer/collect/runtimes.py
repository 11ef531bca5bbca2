"""Brokers' runtime configuration."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pulsar_rebalancer.admin.builtin_shedding import shedding_is_on, splitting_is_on
from pulsar_rebalancer.config.resolution import disagreements, from_brokers
from pulsar_rebalancer.errors import AdminError
from pulsar_rebalancer.reasons import Reason, Trait

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pulsar_rebalancer.admin import PulsarAdmin

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Runtimes:
    """The runtime configuration of a cluster's brokers.

    Attributes:
        leader: brokerId of the leader; empty if there is none.
        by_broker: configuration by broker, for brokers whose configuration could be read.
        failed: reason code by broker, for brokers whose configuration could not be read.
    """

    leader: str
    by_broker: Mapping[str, Mapping[str, str]]
    failed: Mapping[str, Reason]

    @property
    def of_leader(self) -> Mapping[str, str]:
        """Return the leader's configuration, or another broker's if the leader's could not be read."""
        return self.by_broker.get(self.leader) or next(iter(self.by_broker.values()), {})

    def settings(self) -> dict[str, str]:
        """Return the leader's load-balancer settings; `auto_split` is on if at least one broker splits bundles."""
        splits = any(map(splitting_is_on, self.by_broker.values()))
        return from_brokers(self.of_leader) | ({"auto_split": "true"} if splits else {})

    def to_ask(self) -> dict[str, Mapping[str, str]]:
        """Return each broker that responded, even with an error, and its configuration (the leader's if unknown)."""
        others = {broker for broker, reason in self.failed.items() if not reason.has(Trait.NO_ANSWER)}
        return {broker: self.by_broker.get(broker, self.of_leader) for broker in sorted(others | self.by_broker.keys())}

    def switches(self) -> dict[str, bool | str]:
        """Return the columns of the table `cluster` that describe brokers' settings.

        A flag is true if a switch is on for at least one broker. One column lists the settings that differ between
        brokers.
        """
        runtimes = self.by_broker.values()
        even = (runtime.get("loadBalancerDistributeBundlesEvenlyEnabled", "") for runtime in runtimes)
        return {
            "builtin_shedding": any(map(shedding_is_on, runtimes)),
            "even_distribution": any(value.strip().lower() == "true" for value in even),
            "settings_in_disagreement": ",".join(disagreements(runtimes)),
        }


async def read_runtimes(admin: PulsarAdmin, brokers: Sequence[str]) -> Runtimes:
    """Read the leader and every broker's configuration.

    Raises:
        AdminError: the leader cannot be read, or no configuration can be read.
    """
    leader, (by_broker, failed) = await asyncio.gather(admin.leader(), _configurations(admin, brokers))
    return Runtimes(leader, by_broker, failed)


async def _configurations(
    admin: PulsarAdmin, brokers: Sequence[str]
) -> tuple[dict[str, dict[str, str]], dict[str, Reason]]:
    async def ask(broker: str) -> dict[str, str] | AdminError:
        try:
            return await admin.runtime_configuration(broker)
        except AdminError as error:
            _log.warning("%s", error)
            return error

    answers = dict(zip(brokers, await asyncio.gather(*map(ask, brokers)), strict=True))
    errors = {broker: answer for broker, answer in answers.items() if isinstance(answer, AdminError)}
    if errors and len(errors) == len(brokers):
        raise next(iter(errors.values()))
    by_broker = {broker: answer for broker, answer in answers.items() if not isinstance(answer, AdminError)}
    return by_broker, {broker: error.reason for broker, error in errors.items()}
