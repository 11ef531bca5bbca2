"""Take the balancing over from Pulsar's own shedding, or hand it back."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from pulsar_rebalancer.admin import PulsarAdmin, builtin_shedding
from pulsar_rebalancer.config.enums import Mode
from pulsar_rebalancer.errors import AdminError
from pulsar_rebalancer.names import BALANCER, SHEDDING
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.storage.layout import ClusterStorage
from pulsar_rebalancer_airflow.failures import final_unless_passing
from pulsar_rebalancer_airflow.hooks.pulsar_admin import PulsarAdminHook

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.sdk import Context

    from pulsar_rebalancer.admin import AdminConnection
    from pulsar_rebalancer.config.clusters_file import ClusterEntry
    from pulsar_rebalancer.storage.path import StoragePath

ACTIONS = ("show", *builtin_shedding.VALUES)


class HandoverOperator(BaseOperator):
    """Do with Pulsar's own shedding what the run's parameters ask for; every broker's value is the XCom of the task.

    `take_over` switches it off on all brokers, `hand_back` on; both read the value back from every broker, and leave
    who did it, why and what came of it in `state/change-<time>-<action>.json`. While Pulsar's shedding is on, the gate
    of every run stays closed. A retry sets the same value again, which changes nothing.

    Args:
        entry: the cluster's entry in the clusters file.
        root: storage root.
        timeout_seconds: how long brokers have to take the value.
    """

    def __init__(self, *, entry: ClusterEntry, root: str, timeout_seconds: float = 30, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.entry = entry
        self.root = root
        self.timeout_seconds = timeout_seconds

    def execute(self, context: Context) -> dict[str, str]:
        """Carry out the action.

        Returns:
            The value of `loadBalancerSheddingEnabled` by broker.

        Raises:
            AirflowFailException: no reason was given, the connection is read-only (`read_only`), the brokers refuse
                the credentials, or not every broker took the value (`setting_not_taken`).
            AdminError: no broker answered; tried again if the task has retries.
        """
        params = context["params"]
        action, reason = params["action"], str(params["reason"] or "").strip()
        if action not in ACTIONS:
            raise AirflowFailException(f"action: {action!r} is none of {', '.join(ACTIONS)}")
        value = builtin_shedding.VALUES.get(action, "")
        if value and not reason:
            raise AirflowFailException(f"reason: say why; {action} did nothing")
        with final_unless_passing():
            connection = PulsarAdminHook(self.entry.settings.connection).get_connection_settings()
            if not value:
                found = asyncio.run(_read(connection))
            else:
                if connection.read_only:
                    raise AdminError(
                        Reason.READ_ONLY,
                        f"connection {self.entry.settings.connection} is read-only; nothing was changed",
                    )
                found = self._switch(connection, action, reason, context["dag_run"].triggering_user_name or "")
        self.log.info("%s of cluster %s:", SHEDDING, self.entry.name)
        for broker, said in found.items():
            self.log.info("  %s: %s", broker, said)
        return found

    def _switch(self, connection: AdminConnection, action: str, reason: str, by: str) -> dict[str, str]:
        now, value = datetime.now(UTC), builtin_shedding.VALUES[action]
        file = ClusterStorage(self.root, self.entry.name).state / f"change-{now:%Y%m%dT%H%M%S.%fZ}-{action}.json"
        record: dict[str, str | dict[str, str]] = {"at": now.isoformat(), "action": action, "by": by, "reason": reason}
        record |= {"setting": SHEDDING, "value": value, "outcome": "begun"}
        # Written first: whatever happens to the task, it is known who asked for what.
        file.write_json(record)
        try:
            before, after, balancing = asyncio.run(_change(connection, value, self.timeout_seconds))
            record |= {"before": before, "after": after}
            builtin_shedding.require(after, value)
        except AdminError as error:
            self._end(file, record, error.reason)
            raise
        self._end(file, record, Reason.TAKEN)
        self._warn(action, balancing)
        return after

    def _end(self, file: StoragePath, record: Mapping[str, str | dict[str, str]], outcome: str) -> None:
        file.write_json({**record, "outcome": outcome})
        self.log.warning("%s of cluster %s: %s; see %s", record["action"], self.entry.name, outcome, file.uri)

    def _warn(self, action: str, balancing: dict[str, str]) -> None:
        off = sorted(broker for broker, said in balancing.items() if said == "false")
        if action == "hand_back" and off:
            self.log.warning("%s is false on %s: Pulsar does not shed there", BALANCER, ", ".join(off))
        if action == "take_over" and self.entry.settings.mode is not Mode.AUTO:
            self.log.warning("The mode is %s: nobody moves bundles until it is auto", self.entry.settings.mode)


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
