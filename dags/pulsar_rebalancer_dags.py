"""One DAG per cluster of the clusters file, and one to look after its state."""

from pulsar_rebalancer_airflow.dag_factory import build_dags

globals().update(build_dags())
