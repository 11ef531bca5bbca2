"""The settings that a cluster is balanced by now, as its runs found them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsar_rebalancer.config.resolution import RunParams
from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.run.request import RunRequest
from pulsar_rebalancer.storage.layout import day_of

if TYPE_CHECKING:
    from pulsar_rebalancer.config.settings import Settings
    from pulsar_rebalancer.storage.layout import ClusterStorage

_LOOKED_AT = 50


def current_settings(storage: ClusterStorage, of_file: Settings) -> tuple[Settings, str]:
    """Return the effective settings of the newest run without parameters of its own, and where they are from.

    They hold what the live brokers say as well.

    Args:
        storage: of the cluster.
        of_file: those of the clusters file, for a cluster without such a run.
    """
    days = sorted((name for name in storage.runs.names() if day_of(name)), reverse=True)
    names = ((storage.runs / day / name) for day in days for name in reversed((storage.runs / day).names()))
    for _, folder in zip(range(_LOOKED_AT), names, strict=False):
        try:
            request = RunRequest.read(folder)
        except SnapshotError:
            continue
        if request.params == RunParams():
            return request.resolved.settings, f"those of run {folder.name}"
    return of_file, "those of the clusters file, without what the brokers say: no run was found that has theirs"
