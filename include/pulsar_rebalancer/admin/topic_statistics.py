"""Read topics and their clients from brokers' topic statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pulsar_rebalancer.names import namespace_of, range_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import JsonValue


class Clients(NamedTuple):
    """The numbers of producers and consumers connected to a topic."""

    producers: int
    consumers: int


def topics_in(stats: Mapping[str, JsonValue], bundle: str) -> dict[str, JsonValue]:
    """Return statistics for a bundle's loaded topics, by topic; empty if the broker has no such bundle.

    Args:
        stats: a broker's response to `broker-stats/topics`, nested by namespace, hash range, domain and topic.
    """
    branch: JsonValue = dict(stats)
    for key in (namespace_of(bundle), range_of(bundle)):
        branch = branch.get(key) if isinstance(branch, dict) else None
    domains = branch.values() if isinstance(branch, dict) else ()
    return {topic: load for domain in domains if isinstance(domain, dict) for topic, load in domain.items()}


def has_clients(topic: JsonValue) -> bool | None:
    """Return whether the statistics of one topic show connected clients; None if they do not say so.

    Brokers with `exposePublisherStats=false` do not list producers in `broker-stats/topics`, but count them
    (PersistentTopic.updateRates).
    """
    producers = topic.get("producerCount") if isinstance(topic, dict) else None
    if isinstance(producers, int) and producers > 0:
        return True
    clients = clients_in(topic)
    return None if clients is None else any(clients)


def clients_in(topic: JsonValue) -> Clients | None:
    """Return the clients in the statistics of one topic; None if the statistics do not list the connected clients."""
    producers = topic.get("publishers") if isinstance(topic, dict) else None
    subscriptions = topic.get("subscriptions") if isinstance(topic, dict) else None
    if not isinstance(producers, list) or not isinstance(subscriptions, dict):
        return None
    consumers = [entry.get("consumers") if isinstance(entry, dict) else None for entry in subscriptions.values()]
    if not all(isinstance(connected, list) for connected in consumers):
        return None
    return Clients(len(producers), sum(len(connected) for connected in consumers if isinstance(connected, list)))
