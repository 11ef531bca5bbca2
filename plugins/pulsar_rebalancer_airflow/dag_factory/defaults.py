"""What all DAGs of this package have in common."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

COMMON: dict[str, Any] = {
    "start_date": datetime(2026, 1, 1, tzinfo=UTC),
    "catchup": False,
    "max_active_runs": 1,
    # No backfill: a live cluster has no past that could be balanced.
    "allowed_run_types": ("scheduled", "manual"),
}
