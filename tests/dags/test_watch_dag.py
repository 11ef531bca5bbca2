from pathlib import Path

import pytest
from airflow.sdk import DAG

from pulsar_rebalancer_airflow.dag_factory import build_dags

CLUSTERS = """
clusters:
  east: {alert_connection: pager, interval_seconds: 120}
  north: {alert_connection: pager, interval_seconds: 5, alert_after_intervals: 4}
  west: {}
  south: {alert_connection: pager, interval_seconds: 0}
"""


@pytest.fixture
def dags(tmp_path: Path) -> dict[str, DAG]:
    file = tmp_path / "clusters.yaml"
    file.write_text(CLUSTERS)
    return build_dags(file)


def test_only_a_cluster_with_alerts_is_watched(dags: dict[str, DAG]) -> None:
    assert {name for name in dags if name.startswith("pulsar_watch__")} == {"pulsar_watch__east", "pulsar_watch__north"}
