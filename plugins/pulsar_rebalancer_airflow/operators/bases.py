"""Base classes for tasks that use a cluster's stored state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from pulsar_rebalancer.storage.layout import ClusterStorage
from pulsar_rebalancer_airflow.state_store import StateStore, state_asset

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

    from pulsar_rebalancer.config.clusters_file import ClusterEntry


def is_retry(context: Context, task: BaseOperator) -> bool:
    """Return whether the task has been attempted since it was last cleared."""
    ti = context["ti"]
    return ti.try_number > ti.max_tries - (task.retries or 0) + 1


class ClusterOperator(BaseOperator):
    """A task that belongs to a cluster but not to a rebalancing run.

    Args:
        entry: the cluster's entry in the clusters file.
        root: storage root.
    """

    def __init__(self, *, entry: ClusterEntry, root: str, **kwargs: Any) -> None:
        super().__init__(**kwargs, inlets=[state_asset(entry.name)])
        self.entry = entry
        self.storage = ClusterStorage(root, entry.name)

    def _store(self, context: Context) -> StateStore:
        return StateStore.of(context, self.entry.name)


class RunOperator(BaseOperator):
    """A task of a rebalancing run.

    Args:
        cluster: name in the clusters file.
        run: address of the run's folder.
    """

    template_fields: Sequence[str] = ("run",)

    def __init__(self, *, cluster: str, run: str, **kwargs: Any) -> None:
        # A mapped task is only built when it runs, so the DAG names its inlet for the scheduler.
        super().__init__(**{"inlets": [state_asset(cluster)]} | kwargs)
        self.cluster = cluster
        self.run = run

    def _store(self, context: Context) -> StateStore:
        return StateStore.of(context, self.cluster)
