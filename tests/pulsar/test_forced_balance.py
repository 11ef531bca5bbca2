"""A balance that somebody forces on real brokers, by a run of the DAG."""

import tests.airflow_home  # noqa: F401 - before anything of Airflow

# isort: split

from pathlib import Path
from typing import Any

import pytest
from tests.integration.airflow_world import World, dags
from tests.integration.conftest import _database, one_session  # noqa: F401 - fixtures
from tests.pulsar.admin import Admin
from tests.pulsar.conftest import ClusterFactory
from tests.pulsar.distribution import Distribution
from tests.pulsar.load import Load
from tests.pulsar.rebalancing import Run, assert_carried_out, assert_clients_came_back, connection, load_broker_zero
from tests.pulsar.throttling import await_host_samples, await_quotas, await_two_samples, set_quotas

FORCE_THRESHOLD = 4  # half of the smallest gap that was seen, and above the noise between idle brokers


@pytest.mark.usefixtures("one_session")
def test_equal_ranges_of_two_namespaces_reach_their_own_destinations(
    pulsar_408: Distribution, clusters: ClusterFactory, tmp_path: Path
) -> None:
    """4.0.8 keeps a planned destination by hash range alone, and once: a forced balance moves range by range."""
    # On a busy machine, a producer may send nothing for a second.
    cluster = clusters(pulsar_408, cgroups=True, stats_seconds=5)
    settings: dict[str, Any] = {
        "mode": "auto",
        "interval_seconds": 86400,
        "host_usage_interval_minutes": 1,
        "min_unload_message": 100,
        "max_unload_percentage": 0.5,
    }
    with Admin(cluster) as admin, dags("forced", tmp_path, connection(cluster), **settings) as root:
        topics = load_broker_zero(admin, ["tests/one", "tests/two"], 8)
        # Two ranges are busy in both namespaces: of these four bundles at least three fit into half the difference.
        busy = sorted({bundle.rpartition("/")[2] for bundle in topics})[:2]
        rates = {topic: 450.0 if bundle.endswith(tuple(busy)) else 150.0 for bundle, topic in topics.items()}
        with Load(cluster, rates, tmp_path / "load.log", batching=False) as load:
            load.start()
            set_quotas(cluster)
            await_quotas(admin)
            await_host_samples(admin, 1)
            await_two_samples(admin)
            reason = "new brokers shall be filled"
            ended = World("forced", root).run(force=reason, force_threshold=FORCE_THRESHOLD)
            run = Run(ended.state, ended.states, ended.xcom("collect"))
            assert run.state == "success", run.tasks
            summary = run.summary
            assert_carried_out(run, admin)
            assert_clients_came_back(run)
            report = load.report()
    assert summary.forced is not None
    assert (summary.forced.by, summary.forced.reason) == ("tester", reason)
    assert summary.waves > 1, (summary.sentence, summary.reasons, summary.bundle_skip_reasons)
    for counts in report.values():
        assert counts.errors == 0
        assert counts.acked == counts.sent > 0
