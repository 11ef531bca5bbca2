"""The addresses of a cluster. Requests and credentials are never sent to any other address."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pulsar_rebalancer.admin.connection import address_in
from pulsar_rebalancer.names import is_broker_id

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pulsar_rebalancer.admin.connection import AdminConnection


class KnownAddresses:
    """The addresses in a connection's settings, and the addresses of the brokers that the cluster lists."""

    def __init__(self, connection: AdminConnection) -> None:
        self._connection = connection
        self.know(())

    def know(self, brokers: Iterable[str]) -> None:
        """Replace the known brokerIds."""
        self._brokers = frozenset(broker.lower() for broker in brokers if is_broker_id(broker))
        connection = self._connection
        self._bases: dict[str, set[str]] = {}
        own = (*connection.seeds, *connection.address_map.values(), *map(connection.base_url, self._brokers))
        for base in own:
            if address := address_in(base):
                self._bases.setdefault(address, set()).add(base)

    def knows_host(self, address: str) -> bool:
        """Return whether an address's host belongs to a broker or proxy of the cluster; the port is ignored."""
        known = (*self._brokers, *self._bases, *self._connection.address_map)
        return address.rpartition(":")[0] in {other.rpartition(":")[0] for other in known}

    def find(self, address: str, path: str) -> tuple[str, str] | None:
        """Return an address's base URL, and the path below that URL; None if the address is not a broker's."""
        mapped = self._connection.address_map.get(address)
        if mapped is not None:
            return mapped, path
        if address in self._brokers:
            return self._connection.base_url(address), path
        for base in sorted(self._bases.get(address, ()), key=len, reverse=True):
            prefix = urlsplit(base).path
            if path.startswith(f"{prefix}/"):
                return base, path[len(prefix) :]
        return None
