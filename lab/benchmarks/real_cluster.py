"""Three real brokers with control groups for measurements of hours, with what their DAGs need in this process.

Topics are persistent, one in each bundle.
"""

from __future__ import annotations

import tests.airflow_home  # noqa: F401 - before anything of Airflow

# isort: split

from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import cycle
from typing import TYPE_CHECKING

from airflow.utils import db
from tests.integration.airflow_world import decided_in_one_session
from tests.pulsar.admin import Admin, topics_in_bundles
from tests.pulsar.cluster import PulsarCluster
from tests.pulsar.distribution import from_dependencies

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

VERSION = "4.2.4"
BROKERS, NAMESPACE = range(3), "tests/measured"
BROKER_SETTINGS = {"brokerShutdownTimeoutMs": "60000"}
"""Pulsar's default: a broker that is stopped unloads its bundles."""


def say(what: str) -> None:
    """Print what happens now, and the time."""
    print(f"{datetime.now(UTC):%H:%M:%S} {what}", flush=True)


@dataclass(frozen=True)
class RealCluster:
    """The brokers, the topic of each bundle, and the brokers that bundles begin on, in turns."""

    brokers: PulsarCluster
    admin: Admin
    topics: dict[str, str]
    homes: Sequence[int]

    def bring_home(self) -> None:
        """Move every bundle to the broker that it begins on."""
        for (bundle, topic), home in zip(self.topics.items(), cycle(self.homes), strict=False):
            self.admin.move(NAMESPACE, bundle.rpartition("/")[2], topic, home)


@contextmanager
def real_cluster(folder: Path, bundles: int, *, homes: Sequence[int], stats_seconds: int) -> Iterator[RealCluster]:
    """Start the brokers, make the topics, and prepare Airflow's database and a Spark session.

    Args:
        homes: brokers that bundles begin on, in turns.
        stats_seconds: how often brokers compute the rates of their topics.
    """
    with (
        PulsarCluster(
            from_dependencies(VERSION),
            folder / "cluster",
            len(BROKERS),
            cgroups=True,
            bookie=True,
            stats_seconds=stats_seconds,
            extra=BROKER_SETTINGS,
        ) as brokers,
        Admin(brokers) as admin,
    ):
        found = topics_in_bundles(NAMESPACE, admin.create_namespace(NAMESPACE, bundles), 1, "persistent")
        topics = {f"{NAMESPACE}/{one}": topic for one, (topic,) in found.items()}
        cluster = RealCluster(brokers, admin, topics, homes)
        cluster.bring_home()
        db.initdb()
        with decided_in_one_session():
            yield cluster
