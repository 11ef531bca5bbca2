"""The DAGs of every cluster in the clusters file."""

from pulsar_rebalancer_airflow.dag_factory.factory import build_dags

__all__ = ["build_dags"]
