"""A sample of three healthy brokers, to be spoiled by tests."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pulsar_rebalancer.config.clusters_file import resolve
from pulsar_rebalancer.decide import validation
from pulsar_rebalancer.run import tables
from pulsar_rebalancer.run.request import Finding, RunRequest
from pulsar_rebalancer.run.snapshot import Snapshot
from pulsar_rebalancer.run.tables import RESOURCES, TRAFFIC
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer_airflow.suites import validate

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
BROKERS = tuple(f"broker-{i}.example:8080" for i in range(3))
Rows = list[dict[str, Any]]


class Sample:
    """The three tables as rows, each a healthy one until changed."""

    def __init__(self) -> None:
        self.cluster: Rows = [
            {
                "cluster": "east",
                "collected_at": NOW,
                "leader": BROKERS[0],
                "leader_read": True,
                "load_manager": "ModularLoadManagerImpl",
                "brokers_listed": 3,
                "brokers_reported": 3,
                "bundles": 6,
                "builtin_shedding": False,
                "even_distribution": False,
                "settings_in_disagreement": "",
                "policies_readable": True,
            }
        ]
        self.brokers: Rows = [
            {
                "cluster": "east",
                "broker": broker,
                "collected_at": NOW,
                "listings": 1,
                "last_update": NOW,
                "report_age_seconds": 14.5,
                "started_at": NOW,
                "host_samples": 600.0,
                **{f"{resource}_usage": 30.0 + i for resource in RESOURCES},
                **{f"{resource}_limit": 200.0 for resource in RESOURCES},
                **dict.fromkeys(TRAFFIC, 2000.0),
                "topics": 8,
                "bundles": 2,
                "producers": 4,
                "consumers": 4,
                "version": "4.2.4",
            }
            for i, broker in enumerate(BROKERS)
        ]
        self.bundles: Rows = [
            {
                "cluster": "east",
                "broker": BROKERS[i // 2],
                "bundle": f"acme/shop/0x{i:x}0000000_0x{i + 1:x}0000000",
                **dict.fromkeys(TRAFFIC, 1000.0),
                "topics": 4,
                "producers": 2,
                "consumers": 2,
                "cache_size": 0,
                "owners": 1,
            }
            for i in range(6)
        ]
        self.settings: dict[str, Any] = {}

    def write(self, folder: Path) -> StoragePath:
        run = StoragePath(str(folder / "run"))
        rows = {"cluster": self.cluster, "brokers": self.brokers, "bundles": self.bundles}
        tables.write(run, {name: tables.table(rows[name], schema) for name, schema in tables.INPUT.items()})
        request = RunRequest(
            cluster="east", airflow_run_id="manual__1", resolved=resolve(self.settings, {}), collected_at=NOW
        )
        request.write(run)
        return run


def findings_of(sample: Sample, folder: Path) -> tuple[Finding, ...]:
    """The findings of Great Expectations, which are also those of the domain's own reading of the suites."""
    found = read_alone(sample, folder)
    assert validate(StoragePath(str(folder / "run"))).findings == found
    return found


def read_alone(sample: Sample, folder: Path) -> tuple[Finding, ...]:
    """The findings of the domain's own reading: Great Expectations takes seconds, and decides none of what follows."""
    return validation.validate_run(Snapshot(sample.write(folder))).findings


def spoiled_cluster(**changes: Any) -> Sample:
    sample = Sample()
    sample.cluster[0] |= changes
    return sample


def spoiled_broker(**changes: Any) -> Sample:
    sample = Sample()
    sample.brokers[0] |= changes
    return sample


def spoiled_bundle(**changes: Any) -> Sample:
    sample = Sample()
    sample.bundles[0] |= changes
    return sample
