"""The DAGs of every cluster in the clusters file."""

from pulsar_rebalancer_airflow.dag_factory import build_dags

globals().update(build_dags())
