"""A day of recorded load as daily upkeep leaves it: seeded, written hour by hour."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pulsar_rebalancer.isolation import Policies
from pulsar_rebalancer.run.compacted_tables import RUNS, RUNS_SCHEMA, TableDraft, table_file, with_run_column
from pulsar_rebalancer.run.request import Validation
from pulsar_rebalancer.run.snapshot import StateBefore
from pulsar_rebalancer.run.tables import BROKERS, BUNDLES, TRAFFIC

if TYPE_CHECKING:
    import numpy.typing as npt

    from pulsar_rebalancer.storage.documents import ClusterStorage

START = datetime(2026, 11, 20, tzinfo=UTC)
_NAMESPACES = 40
_CORES = 800.0


def write(storage: ClusterStorage, brokers: int, bundles_each: int, minutes: int, *, seed: int = 1) -> None:
    """Write the history tables of runs at every minute.

    Bundles differ in size, their namespaces have daily cycles of different phase, each value has 5 percent of noise;
    bundles are on random brokers.

    Args:
        brokers: number of brokers.
        bundles_each: average number of bundles per broker.
        minutes: number of runs, one per minute from `START` on; at most a day.
        seed: seed for all random values.
    """
    load = _Load(np.random.default_rng(seed), brokers, brokers * bundles_each)
    day = START.date()
    files = {name: table_file(storage, name, day) for name in ("brokers", "bundles", RUNS)}
    with (
        TableDraft(files["brokers"], with_run_column(BROKERS)) as of_brokers,
        TableDraft(files["bundles"], with_run_column(BUNDLES)) as of_bundles,
        TableDraft(files[RUNS], RUNS_SCHEMA) as of_runs,
    ):
        for minute in range(minutes):
            at = START + timedelta(minutes=minute)
            run = f"{at:%Y%m%dT%H%M%S.%fZ}-{minute:08x}"
            rows, held = load.tables(minute)
            of_brokers.add_rows(rows, run)
            of_bundles.add_rows(held, run)
            of_runs.add_rows(_listed(run, at, held.num_rows))
        for draft in (of_brokers, of_bundles, of_runs):
            draft.close_file()
            draft.publish()


def _listed(run: str, at: datetime, bundles: int) -> pa.Table:
    documents = pa.array([[(Policies.FILE, Policies().model_dump_json())]], RUNS_SCHEMA.field("documents").type)
    read = {"validation": [Validation().model_dump_json()], "state": [StateBefore().model_dump_json()]}
    return pa.table({"run": [run], "collected_at": [at], **read, "documents": documents, "bundles_rows": [bundles]})


class _Load:
    def __init__(self, random: np.random.Generator, brokers: int, bundles: int) -> None:
        self._random = random
        self._brokers = [f"broker-{n:04}:8080" for n in range(brokers)]
        self._owner = random.integers(0, brokers, bundles)
        self._size = random.lognormal(5.0, 0.8, bundles)
        self._phase = (np.arange(bundles) % _NAMESPACES) / _NAMESPACES * 2 * np.pi
        names = [f"tenant/ns-{n % _NAMESPACES}/0x{n:08x}_0x{n + 1:08x}" for n in range(bundles)]
        held = {
            "cluster": pa.array(["bench"] * bundles),
            "broker": pa.array([self._brokers[n] for n in self._owner]),
            "bundle": pa.array(names),
        }
        self._held: dict[str, Any] = held
        # Brokers are half loaded on the average.
        self._per_message = _CORES / 2 * brokers / self._size.sum() / 2

    def tables(self, minute: int) -> tuple[pa.Table, pa.Table]:
        cycle = 1 + 0.5 * np.sin(2 * np.pi * minute / 1440 + self._phase)
        rate = self._size * cycle * self._random.normal(1, 0.05, len(self._size))
        carried = dict(zip(TRAFFIC, (rate, rate, rate * 1024, rate * 1024), strict=True))
        held = pa.table(self._held | carried)
        of_broker = {name: self._summed(values) for name, values in carried.items()}
        cpu = of_broker["msg_rate_in"] * 2 * self._per_message
        kilobits = of_broker["msg_throughput_in"] * 8 / 1000
        rows = {
            "cluster": ["bench"] * len(self._brokers),
            "broker": self._brokers,
            "report_age_seconds": np.full(len(self._brokers), 5.0),
            "cpu_usage": np.minimum(cpu, _CORES),
            "cpu_limit": np.full(len(self._brokers), _CORES),
            **{f"bandwidth_{way}_usage": kilobits for way in ("in", "out")},
            **{f"bandwidth_{way}_limit": np.full(len(self._brokers), 1e7) for way in ("in", "out")},
        }
        return pa.table(rows | of_broker), held

    def _summed(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return np.bincount(self._owner, weights=values, minlength=len(self._brokers)).astype(np.float64)
