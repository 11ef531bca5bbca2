"""Brokers with a CPU quota each, so that every one of them reports a load of its own."""

import time

from tests.patience import awaited
from tests.pulsar.admin import Admin
from tests.pulsar.cluster import PulsarCluster

QUOTA_US = 40_000
"""Two fifths of a core per broker: what one client sends can be seen, and does not exhaust the broker."""


def set_quotas(cluster: PulsarCluster) -> None:
    for broker in range(3):
        cluster.set_cpu_quota(broker, QUOTA_US)


def await_quotas(admin: Admin) -> None:
    """Wait until every broker has seen its quota in a host sample of its own."""
    limit = QUOTA_US / 1000
    awaited(lambda: all(admin.load_report(broker)["cpu"]["limit"] == limit for broker in range(3)), pause=1)


def await_host_samples(admin: Admin, count: int) -> None:
    """Wait until every broker has taken further host samples: its CPU value is new once a minute."""
    seen: list[set[float]] = [set(), set(), set()]

    def enough() -> bool:
        for broker, values in enumerate(seen):
            values.add(admin.load_report(broker)["cpu"]["usage"])
        return min(map(len, seen)) > count

    awaited(enough, pause=1)


def await_two_samples(admin: Admin) -> None:
    """Wait until the brokers' own start is two minutes ago: without two host samples, a broker takes no part."""
    starts = [admin.load_report(broker)["startTimestamp"] / 1000 for broker in range(3)]
    awaited(lambda: time.time() - max(starts) > 120)
