"""Clusters other than the usual three plain brokers: TLS, another Pulsar version, and one that cannot start."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.pulsar.admin import Admin, topics_in_bundles
from tests.pulsar.load import Load
from tests.pulsar.processes import ProcessError, port_answers

if TYPE_CHECKING:
    from pathlib import Path

    from tests.pulsar.conftest import ClusterFactory
    from tests.pulsar.distribution import Distribution

NAMESPACE = "tests/variants"


def test_tls_brokers_are_named_by_their_plain_port_and_redirect_to_tls(
    pulsar_424: Distribution, clusters: ClusterFactory, tmp_path: Path
) -> None:
    cluster = clusters(pulsar_424, brokers=2, tls=True)
    with Admin(cluster) as admin:
        assert not any(cluster.web_url(i).endswith(name) for i, name in enumerate(cluster.broker_ids))
        assert [admin.load_report(i)["webServiceUrlTls"] for i in (0, 1)] == [cluster.web_url(i) for i in (0, 1)]
        ((bundle, (topic,)),) = topics_in_bundles(NAMESPACE, admin.create_namespace(NAMESPACE, 1), 1).items()
        with Load(cluster, {topic: 100.0}, tmp_path / "load.log") as load:
            load.start()
            destination = 1 - cluster.broker_ids.index(admin.look_up(topic))
            admin.move(NAMESPACE, bundle, topic, destination)
            assert admin.look_up(topic) == cluster.broker_ids[destination]
            (counts,) = load.report().values()
        assert counts.acked == counts.sent > 0


def test_without_plain_ports_the_tls_port_names_the_broker(pulsar_424: Distribution, clusters: ClusterFactory) -> None:
    cluster = clusters(pulsar_424, brokers=1, tls=True, plain=False)
    with Admin(cluster) as admin:
        assert admin.get("brokers") == cluster.broker_ids
    assert cluster.web_url(0) == f"https://{cluster.broker_ids[0]}"


def test_the_server_distribution_runs_too_and_leaves_nothing_behind(
    pulsar_408: Distribution, clusters: ClusterFactory
) -> None:
    cluster = clusters(pulsar_408, brokers=1)
    port = int(cluster.broker_ids[0].rsplit(":", 1)[1])
    with Admin(cluster) as admin:
        assert admin.load_report(0)["brokerVersionString"] == "4.0.8"
    assert port_answers(port)

    cluster.stop()

    assert not port_answers(port)


def test_a_broker_that_dies_tells_why(pulsar_424: Distribution, clusters: ClusterFactory) -> None:
    with pytest.raises(ProcessError, match=r"broker 0 ended .*before ready(.|\n)*no\.such\.Manager"):
        clusters(pulsar_424, brokers=1, extra={"loadManagerClassName": "no.such.Manager"})
