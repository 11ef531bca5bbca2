"""A balance that somebody forces on real brokers, through Airflow."""

from pathlib import Path
from typing import Any

from tests.pulsar.admin import Admin
from tests.pulsar.conftest import ClusterFactory
from tests.pulsar.distribution import Distribution
from tests.pulsar.load import Load
from tests.pulsar.rebalancing import (
    DAG_ID,
    Run,
    assert_carried_out,
    assert_clients_came_back,
    load_broker_zero,
    rebalancer,
)
from tests.pulsar.throttling import await_host_samples, throttle

FORCE_THRESHOLD = 4
"""Half of the smallest gap that was seen, and above the noise between idle brokers."""


def test_equal_ranges_of_two_namespaces_reach_their_own_destinations(
    pulsar_408: Distribution, clusters: ClusterFactory, tmp_path: Path
) -> None:
    """4.0.8 keeps a planned destination by hash range alone, and once: a forced balance moves range by range."""
    # On a busy machine, a producer may send nothing for a second.
    cluster = clusters(pulsar_408, cgroups=True, stats_seconds=5)
    settings = {"mode": "auto", "interval_seconds": 86400, "min_unload_message": 100, "max_unload_percentage": 0.5}
    with Admin(cluster) as admin:
        topics = load_broker_zero(admin, ["tests/one", "tests/two"], 8)
        # Two ranges are busy in both namespaces: of these four bundles at least three fit into half the difference.
        busy = sorted({bundle.rpartition("/")[2] for bundle in topics})[:2]
        rates = {topic: 450.0 if bundle.endswith(tuple(busy)) else 150.0 for bundle, topic in topics.items()}
        with Load(cluster, rates, tmp_path / "load.log", batching=False) as load:
            load.start()
            throttle(cluster, admin)
            await_host_samples(admin, 1)
            with rebalancer(cluster, tmp_path / "airflow", settings) as airflow:
                conf: dict[str, Any] = {"force": "new brokers shall be filled", "force_threshold": FORCE_THRESHOLD}
                run = Run(airflow, airflow.wait(DAG_ID, airflow.trigger(DAG_ID, conf)))
                assert run.state == "success", run.tasks
                summary = run.summary
                assert_carried_out(run, admin)
                assert_clients_came_back(run)
            report = load.report()
    assert summary.forced is not None
    assert (summary.forced.by, summary.forced.reason) == ("admin", "new brokers shall be filled")
    assert summary.waves > 1, (summary.sentence, summary.reasons, summary.bundle_skip_reasons)
    for counts in report.values():
        assert counts.errors == 0
        assert counts.acked == counts.sent > 0
