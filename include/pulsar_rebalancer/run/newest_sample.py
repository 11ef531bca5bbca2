"""Find the newest sample that validation has judged."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.reasons import Effect, Reason
from pulsar_rebalancer.run.request import Validation
from pulsar_rebalancer.run.snapshot import Snapshot
from pulsar_rebalancer.storage.layout import SKEW

if TYPE_CHECKING:
    from datetime import datetime

    from pulsar_rebalancer.storage.layout import ClusterStorage

_LOOKED_AT = 20
"""Maximum number of recent runs to search for one that was validated."""


def newest_sample(storage: ClusterStorage, now: datetime, max_age_seconds: float) -> Snapshot:
    """Return the sample of the newest run that was validated.

    Raises:
        SnapshotError: `file_missing` if there is none, `report_stale` if it is too old, `blocked` if validation stopped
            the run; or a file cannot be read.
    """
    for folder in islice(storage.newest_runs(now + SKEW), _LOOKED_AT):
        if (folder / Validation.FILE).exists():
            break
    else:
        raise SnapshotError(Reason.FILE_MISSING, "no run has validated a sample")
    snapshot = Snapshot(folder)
    age = (now - snapshot.request.collected_at).total_seconds()
    if age > max_age_seconds:
        raise SnapshotError(Reason.REPORT_STALE, f"the newest sample is {age:.0f} s old, limit {max_age_seconds:g} s")
    blocking = snapshot.validation.reasons(Effect.BLOCK)
    if blocking:
        raise SnapshotError(Reason.BLOCKED, f"validation stopped the newest run: {', '.join(blocking)}")
    return snapshot
