"""The harness keeps what it promises, on real brokers."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
from tests.pulsar.admin import Admin, topics_in_bundles
from tests.pulsar.events import await_that
from tests.pulsar.java import CLUSTER_NAME, SHORT_SESSION
from tests.pulsar.load import Load, LoadError
from tests.pulsar.processes import ProcessError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.pulsar.cluster import PulsarCluster
    from tests.pulsar.conftest import ClusterFactory
    from tests.pulsar.distribution import Distribution

NAMESPACE = "tests/load"
BUNDLES = 8


@pytest.fixture(scope="module")
def cluster(pulsar_424: Distribution, module_clusters: ClusterFactory) -> PulsarCluster:
    """Three brokers with everything switched on: tokens, and a control group each."""
    return module_clusters(pulsar_424, auth=True, cgroups=True, extra=SHORT_SESSION)


@pytest.fixture(scope="module")
def admin(cluster: PulsarCluster) -> Iterator[Admin]:
    with Admin(cluster) as opened:
        yield opened


@pytest.fixture(scope="module")
def topics(admin: Admin) -> dict[str, list[str]]:
    """Two topics in each bundle of a new namespace."""
    return topics_in_bundles(NAMESPACE, admin.create_namespace(NAMESPACE, BUNDLES), 2)


@pytest.mark.parametrize("broker", [0, 1, 2])
def test_every_broker_lists_all_brokers(cluster: PulsarCluster, admin: Admin, broker: int) -> None:
    assert sorted(admin.get("brokers", broker=broker)) == sorted(cluster.broker_ids)
    assert admin.load_report(broker)["brokerVersionString"] == "4.2.4"
    assert admin.load_report(broker)["webServiceUrl"] == cluster.web_url(broker)


def test_only_the_super_user_may_administer(cluster: PulsarCluster) -> None:
    url = f"{cluster.web_url(0)}/admin/v2/brokers/{CLUSTER_NAME}"
    answers = []
    for token in (None, "no-token", cluster.app_token, cluster.admin_token):
        with cluster.http(token) as client:
            answers.append(client.get(url).status_code)
    assert answers == [401, 401, 401, 200]


def test_topics_land_in_the_bundles_computed_beforehand(admin: Admin, topics: dict[str, list[str]]) -> None:
    assert len(topics) == BUNDLES
    assert {admin.bundle_of(topic): bundle for bundle, names in topics.items() for topic in names} == {
        bundle: bundle for bundle in topics
    }


def test_a_moved_bundle_carries_its_load_and_loses_no_message(
    cluster: PulsarCluster, admin: Admin, topics: dict[str, list[str]], tmp_path: Path
) -> None:
    bundle, (first, second) = next(iter(topics.items()))
    rates = {topic: 50.0 for names in topics.values() for topic in names}
    with Load(cluster, rates, tmp_path / "load.log") as load:
        load.start()
        source = cluster.broker_ids.index(admin.look_up(first))
        destination = (source + 1) % 3
        full_name = f"{NAMESPACE}/{bundle}"

        def rate_on(broker: int) -> float:
            return _rate_on(admin, broker, bundle)

        await_that(lambda: rate_on(source) > 50)

        admin.move(NAMESPACE, bundle, first, destination)

        assert admin.look_up(second) == cluster.broker_ids[destination]
        assert admin.owner(full_name) == cluster.broker_ids[destination]
        await_that(lambda: rate_on(destination) > 50 and rate_on(source) == 0)

        load.change({first: 200.0})
        await_that(lambda: rate_on(destination) > 150)
        report = load.report()
    assert report.keys() == rates.keys()
    for counts in report.values():
        assert counts.errors == 0
        assert counts.acked == counts.sent > 0
        assert max(counts.ack_gaps) > 0


def test_each_broker_reports_its_own_limit(cluster: PulsarCluster, admin: Admin) -> None:
    for broker, quota in enumerate((30_000, 40_000, 50_000)):
        cluster.set_cpu_quota(broker, quota)

    def limits() -> list[float]:
        return [admin.load_report(broker)["cpu"]["limit"] for broker in range(3)]

    # A broker looks at its host once a minute.
    await_that(lambda: limits() == [30.0, 40.0, 50.0])


def test_a_killed_broker_comes_back_under_its_id_and_with_its_quota(cluster: PulsarCluster, admin: Admin) -> None:
    lost = cluster.broker_ids[2]
    cluster.set_cpu_quota(2, 60_000)
    cluster.kill_broker(2)
    await_that(lambda: lost not in admin.get("brokers"))

    cluster.start_broker(2)

    await_that(lambda: sorted(admin.get("brokers")) == sorted(cluster.broker_ids))
    await_that(lambda: admin.load_report(2)["cpu"]["limit"] == 60.0)


def test_a_running_broker_is_not_started_twice(cluster: PulsarCluster) -> None:
    with pytest.raises(ProcessError, match=rf"runs already \(process {cluster.pid(0)}\)"):
        cluster.start_broker(0)


def test_a_load_that_cannot_connect_says_so(cluster: PulsarCluster, tmp_path: Path) -> None:
    with (
        Load(cluster, {"non-persistent://no/such/topic": 1.0}, tmp_path / "load.log") as load,
        pytest.raises(LoadError, match="did not connect"),
    ):
        load.start()


def test_a_dead_load_does_not_report(cluster: PulsarCluster, topics: dict[str, list[str]], tmp_path: Path) -> None:
    (topic, _), *_ = topics.values()
    with Load(cluster, {topic: 10.0}, tmp_path / "load.log") as load:
        load.start()
        load.signal(signal.SIGKILL)
        with pytest.raises(LoadError, match="died"):
            load.report()


def test_a_load_asked_to_end_by_signal_still_reports(
    cluster: PulsarCluster, admin: Admin, topics: dict[str, list[str]], tmp_path: Path
) -> None:
    bundle, (topic, _) = next(iter(topics.items()))
    with Load(cluster, {topic: 1000.0}, tmp_path / "load.log", subscribed=True) as load:
        load.start()
        owner = cluster.broker_ids.index(admin.look_up(topic))
        await_that(lambda: _rate_on(admin, owner, bundle) > 500)
        load.signal(signal.SIGTERM)
        counts = load.report()[topic]
    assert counts.errors == 0
    assert counts.received == counts.acked == counts.sent > 0


def _rate_on(admin: Admin, broker: int, bundle: str) -> float:
    return float(admin.load_report(broker)["lastStats"].get(f"{NAMESPACE}/{bundle}", {}).get("msgRateIn", 0))
