"""Where this Airflow keeps the clusters file and the runs, and what the DAG of a cluster is called."""

from __future__ import annotations

import os
from pathlib import Path

CLUSTERS_VARIABLE = "PULSAR_REBALANCER_CLUSTERS"
"""Environment variable with the path of the clusters file."""

STORAGE_VARIABLE = "PULSAR_REBALANCER_STORAGE"
"""Environment variable with the storage root, a path or an object-store URI."""

REBALANCE_DAG = "pulsar_rebalance__"
"""Prefix of the id of the DAG that rebalances a cluster; the cluster's name follows."""


def clusters_file() -> Path:
    """Path of the clusters file: from the environment, else `config/pulsar_clusters.yaml` in AIRFLOW_HOME."""
    return Path(os.environ.get(CLUSTERS_VARIABLE) or _airflow_home() / "config" / "pulsar_clusters.yaml")


def storage_root() -> str:
    """The storage root: from the environment, else `pulsar_rebalancer` in AIRFLOW_HOME."""
    return os.environ.get(STORAGE_VARIABLE) or str(_airflow_home() / "pulsar_rebalancer")


def _airflow_home() -> Path:
    return Path(os.environ.get("AIRFLOW_HOME", "~/airflow")).expanduser()
