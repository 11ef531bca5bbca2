"""Tasks are forks of the scheduler: what it has loaded, they need not load again."""

import sys

if len(sys.argv) > 1 and sys.argv[1] == "scheduler":
    import great_expectations  # noqa: F401

    import pulsar_rebalancer_airflow.dag_factory  # noqa: F401
