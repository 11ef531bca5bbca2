"""The product under test beside a real cluster: Airflow standalone, its DAG, and what its runs left behind."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
from tests.pulsar.admin import Admin, topics_in_bundles
from tests.pulsar.cluster import PulsarCluster

from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.outcome import Outcome
from pulsar_rebalancer.run.plan import Move, Summary, read_moves
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer_airflow.embedded.airflow_home import CHECKOUT, AirflowHome
from pulsar_rebalancer_airflow.embedded.local_airflow import LocalAirflow, Processes
from pulsar_rebalancer_airflow.spark_archive import cached_archive

DAG_ID = "pulsar_rebalance__real"


class Run:
    """What a run left behind; `uri` is what collect returned, None if it failed."""

    def __init__(self, state: str, tasks: Mapping[str, str | None], uri: str | None) -> None:
        self.state, self.tasks = state, tasks
        self.folder = StoragePath(uri) if uri else None

    @property
    def summary(self) -> Summary:
        assert self.folder is not None, self.tasks
        return Summary.read(self.folder)

    @property
    def outcome(self) -> Outcome:
        assert self.folder is not None, self.tasks
        return Outcome.read(self.folder)

    def table(self, name: str) -> list[dict[str, Any]]:
        assert self.folder is not None, self.tasks
        return (self.folder / "input" / f"{name}.parquet").read_table().to_pylist()

    @property
    def cpu_usages(self) -> dict[str, float]:
        return {row["broker"]: row["cpu_usage"] for row in self.table("brokers")}

    @property
    def moves(self) -> list[Move]:
        assert self.folder is not None, self.tasks
        return read_moves(self.folder)


def connection(cluster: PulsarCluster, credentials: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The Airflow connection to a cluster; `credentials` replace the super-user's token."""
    urls = [urlsplit(cluster.web_url(number)) for number in range(len(cluster.broker_ids))]
    # Throttled brokers on a busy machine take their time.
    extra: dict[str, Any] = {"answer_timeout_seconds": 90}
    if cluster.ca_file:
        extra["ca_file"] = str(cluster.ca_file)
    return {
        "conn_type": "pulsar_admin",
        "schema": urls[0].scheme,
        "host": ",".join(url.netloc for url in urls),
        "password": "" if credentials else cluster.admin_token or "",
        "extra": extra | dict(credentials or {}),
    }


class _Paused(AirflowHome):
    """New DAGs wait until `unpause`."""

    def environment(self) -> dict[str, str]:
        return super().environment() | {"AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "True"}


@contextmanager
def rebalancer(cluster: PulsarCluster, folder: Path, settings: dict[str, Any]) -> Iterator[LocalAirflow]:
    """Airflow standalone with the DAG of the cluster, which is paused, logged in."""
    home = _Paused(
        folder=folder,
        cluster_settings={"real": settings | {"connection": "pulsar_admin_real"}},
        connections={
            "pulsar_admin_real": connection(cluster),
            "spark_default": {"conn_type": "spark", "host": "local[2]"},
        },
        spark_archive=cached_archive(CHECKOUT / ".cache"),
    )
    home.prepare(keep_data=False)
    with Processes() as processes:
        airflow = LocalAirflow(home, processes)
        airflow.start()
        airflow.wait_for_dag(DAG_ID)
        yield airflow


def unpause(airflow: LocalAirflow) -> None:
    """Let the schedule begin: the first run starts at once."""
    airflow.request("PATCH", f"/dags/{DAG_ID}", httpx.codes.NOT_FOUND, json={"is_paused": False})


def assert_carried_out(run: Run, admin: Admin) -> None:
    """Every planned bundle is where its outcome says, as the brokers themselves say; few are astray.

    Two lookups of clients in the same moment may lead a bundle astray, again and again (apache/pulsar#24884).
    """
    outcomes = run.outcome.moves
    assert {end.bundle: end.destination for end in outcomes} == {move.bundle: move.destination for move in run.moves}
    assert {end.bundle: admin.owner(end.bundle) for end in outcomes} == {end.bundle: end.owner for end in outcomes}
    arrived = [end for end in outcomes if end.owner == end.destination]
    assert [end.reason for end in arrived] == [Reason.MOVED] * len(arrived), outcomes
    assert {end.reason for end in outcomes} <= {Reason.MOVED, Reason.ASTRAY}, outcomes
    assert 2 * len(arrived) >= len(outcomes), outcomes


def assert_clients_came_back(run: Run) -> None:
    """The client gap of moves is known: a topic's one producer left, and came back some time after the new owner.

    At least one move must be measured: on a busy machine, brokers or producers may be too late for the others.
    """
    print(f"client gaps {run.outcome.client_gap}")
    gaps = [end.client_gap for end in run.outcome.moves if end.client_gap is not None]
    assert len(gaps) == len(run.outcome.moves), run.outcome.moves
    assert not [gap for gap in gaps if "the task's log" in gap.unknown], gaps
    back = [gap for gap in gaps if gap.clients_seconds is not None]
    assert back, gaps
    for gap in back:
        assert (gap.topics, gap.clients_before, gap.clients_back, gap.errors) == (1, 1, 1, 0), gap
        assert gap.owner_seconds is not None
        assert gap.clients_seconds is not None
        assert 0 < gap.owner_seconds <= gap.clients_seconds


def load_broker_zero(
    admin: Admin, namespaces: list[str], bundles: int, domain: str = "non-persistent"
) -> dict[str, str]:
    """New namespaces whose bundles are all on broker 0; a topic of each bundle by the bundle's full name."""
    found = {}
    for namespace in namespaces:
        ranges = admin.create_namespace(namespace, bundles)
        for bundle_range, (topic,) in topics_in_bundles(namespace, ranges, 1, domain).items():
            admin.move(namespace, bundle_range, topic, 0)
            found[f"{namespace}/{bundle_range}"] = topic
    return found
