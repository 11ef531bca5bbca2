"""The committed recording of real brokers, and what both strategies make of it in a replay."""

from __future__ import annotations

import shutil
import tempfile
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from benchmarks.measure import ROOT
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.maintenance.compaction import compact
from pulsar_rebalancer.maintenance.inventory import days_before
from pulsar_rebalancer.policies.cluster_policies import Policies
from pulsar_rebalancer.replay.closed_loop import replay
from pulsar_rebalancer.replay.samples import Recording
from pulsar_rebalancer.replay.snapshots import record
from pulsar_rebalancer.replay.variant_outcome import figures
from pulsar_rebalancer.replay.variants import Variant
from pulsar_rebalancer.run.compacted_tables import RUNS, RUNS_SCHEMA, Draft, table_file
from pulsar_rebalancer.storage.layout import ClusterStorage
from pulsar_rebalancer.storage.path import StoragePath

if TYPE_CHECKING:
    from pulsar_rebalancer.replay.variant_outcome import Figures

STRATEGIES = AVG, GAIN = "AvgShedder", "GainShedder"
INTERVAL_SECONDS = 60
"""Brokers measure their CPU and compute their rates at this interval: Pulsar's defaults."""

SETTINGS: dict[str, Any] = {
    "interval_seconds": INTERVAL_SECONDS,
    "host_usage_interval_minutes": INTERVAL_SECONDS / 60,
    # A bundle has a few messages a second.
    "min_unload_message": 10,
    # Loopback has no bandwidth: brokers report that of the machine's network card.
    "bandwidth_in_weight": 0,
    "bandwidth_out_weight": 0,
    "unload_timeout_seconds": 90,
}
"""Of both strategies; all others are the defaults."""

RECORDED = ClusterStorage(str(ROOT / "benchmarks" / "recorded"), "real")


def keep(storage: ClusterStorage) -> None:
    """Replace the committed recording by the runs of a cluster."""
    shutil.rmtree(RECORDED.root, ignore_errors=True)
    for day in days_before(storage, date.max):
        compact(storage, day.date, day.runs)
        for kind in ("brokers", "bundles", RUNS):
            rows = pa.concat_tables(table_file(storage, kind, day.date).read_batches())
            with Draft(table_file(RECORDED, kind, day.date), RUNS_SCHEMA if kind == RUNS else rows.schema) as draft:
                draft.add(_read_by_replays(rows) if kind == RUNS else rows)
                draft.finish()
                draft.publish()


def _read_by_replays(runs: pa.Table) -> pa.Table:
    """Return what a replay reads of the table of runs."""
    kept = runs.select(["run", "collected_at", "validation", "state", "bundles_rows"])
    policies = [[(name, text) for name, text in row["documents"] if name == Policies.FILE] for row in _rows(runs)]
    return kept.append_column("documents", pa.array(policies, RUNS_SCHEMA.field("documents").type))


def replayed() -> list[Figures]:
    """Return the figures of each strategy in a replay of the recording; none without one."""
    runs = RECORDED.base / "history" / RUNS
    times = [
        row["collected_at"] for name in runs.names() for some in (runs / name).read_batches() for row in _rows(some)
    ]
    if not times:
        return []
    variants = [Variant(name, Settings.model_validate({**SETTINGS, "strategy": name})) for name in STRATEGIES]
    judged_by = variants[0].settings
    with tempfile.TemporaryDirectory() as folder:
        samples = StoragePath(f"{folder}/samples")
        index = record(RECORDED, judged_by, min(times), max(times) + timedelta(minutes=1), samples)
        outcomes = replay(Recording.read(samples), variants, judged_by)
    return [figures(each, index.coverage.minutes) for each in outcomes if each.variant in STRATEGIES]


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    return table.to_pylist()
