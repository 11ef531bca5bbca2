"""Airflow connections of type `pulsar_admin`, for a cluster's admin REST API."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from airflow.sdk import BaseHook
from airflow.sdk.log import mask_secret

from pulsar_rebalancer.errors import AdminError, RebalancerError, SettingsError
from pulsar_rebalancer.pulsar import AdminConnection, PulsarAdmin
from pulsar_rebalancer.pulsar.connection import EXTRAS, connection_of
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.texts import number_of
from pulsar_rebalancer_airflow.options import read_extra

if TYPE_CHECKING:
    from airflow.sdk import Connection


class PulsarAdminHook(BaseHook):
    """The admin REST API of one Pulsar cluster.

    The connection's host lists one or more brokers, separated by commas. A broker can have its own port; otherwise the
    connection's port is used. The schema is `http` or `https`, and the password is the token. The extra can name a
    token file or a token issuer instead.
    """

    conn_name_attr = "pulsar_admin_conn_id"
    default_conn_name = "pulsar_admin_default"
    conn_type = "pulsar_admin"
    hook_name = "Apache Pulsar admin"

    def __init__(self, pulsar_admin_conn_id: str = default_conn_name) -> None:
        super().__init__()
        self.pulsar_admin_conn_id = pulsar_admin_conn_id

    def get_connection_settings(self) -> AdminConnection:
        """Return the validated connection.

        Raises:
            SettingsError: `wrong_setting` or `contradiction`, with the names of the connection and the field.
            AirflowNotFoundException: the connection does not exist.
        """
        connection = self.get_connection(self.pulsar_admin_conn_id)
        try:
            return _admin_connection(connection)
        except SettingsError as error:
            raise SettingsError(error.reason, f"connection {self.pulsar_admin_conn_id}: {error.message}") from None

    def get_writable_connection(self) -> AdminConnection:
        """Return the connection for a task that changes the cluster. Raises AdminError `read_only`."""
        connection = self.get_connection_settings()
        if connection.read_only:
            name = self.pulsar_admin_conn_id
            raise AdminError(Reason.READ_ONLY, f"connection {name} is read-only; nothing was changed")
        return connection

    def get_conn(self) -> PulsarAdmin:
        """Return a client for the cluster, as an async context manager."""
        return PulsarAdmin(self.get_connection_settings())

    def test_connection(self) -> tuple[bool, str]:
        """Request the load report of every broker, which requires a superuser's token.

        Return True if all brokers answered, and a text with the number of answers and the causes of failures.
        """
        try:
            return asyncio.run(self._ask_every_broker())
        except RebalancerError as error:
            return False, str(error)

    async def _ask_every_broker(self) -> tuple[bool, str]:
        async with self.get_conn() as admin:
            reports = await admin.load_reports(await admin.brokers(), lambda _broker, _report: True)
            for broker, report in reports.items():
                # The extensible load manager publishes its values as metrics, and only for superusers too.
                if isinstance(report, AdminError) and report.reason == Reason.NO_LOAD_REPORT:
                    reports[broker] = await _check_metrics(admin, broker)
        failed = {
            broker: "this broker's load manager has no load report" if report is None else report
            for broker, report in reports.items()
            if report is None or isinstance(report, AdminError)
        }
        answered = f"{len(reports) - len(failed)} of {number_of(len(reports), 'broker')} answered"
        if not failed:
            return bool(reports), f"{answered}: {', '.join(sorted(reports))}"
        return False, f"{answered}. " + " ".join(f"{broker}: {error}" for broker, error in sorted(failed.items()))


async def _check_metrics(admin: PulsarAdmin, broker: str) -> bool | AdminError:
    try:
        await admin.metrics(broker)
    except AdminError as error:
        return error
    return True


def _admin_connection(connection: Connection) -> AdminConnection:
    extra = read_extra(connection, EXTRAS)
    if connection.password:
        mask_secret(connection.password)
    return connection_of(_seed_urls(connection), connection.password or "", extra)


def _seed_urls(connection: Connection) -> tuple[str, ...]:
    scheme = (connection.schema or "http").strip().lower()
    if scheme not in ("http", "https"):
        raise SettingsError(Reason.WRONG_SETTING, f"schema: {scheme!r} is neither http nor https")
    port = connection.port or (8443 if scheme == "https" else 8080)
    hosts = [_bracketed_host(host.strip()) for host in (connection.host or "").split(",") if host.strip()]
    if not hosts:
        raise SettingsError(Reason.WRONG_SETTING, "host: give the address of at least one broker")
    return tuple(f"{scheme}://{host}" if _has_port(host) else f"{scheme}://{host}:{port}" for host in hosts)


def _bracketed_host(host: str) -> str:
    """Restore the brackets that Airflow drops from an IPv6 address when it parses a URI."""
    return f"[{host}]" if host.count(":") > 1 and "[" not in host else host


def _has_port(host: str) -> bool:
    return ":" in host.rpartition("]")[2]
