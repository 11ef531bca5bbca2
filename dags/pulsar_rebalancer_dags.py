"""The DAGs of every cluster in the clusters file: rebalance, state, hand-over, maintenance and watch."""

from pulsar_rebalancer_airflow.dag_factory import build_dags

globals().update(build_dags())
