"""Runs as the DAG keeps them, for recordings: brokers with a CPU, bundles with messages."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pulsar_rebalancer.config.settings import Settings, validate
from pulsar_rebalancer.isolation import Policies
from pulsar_rebalancer.orders.manual_plans import Drain, Drains
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.replay.minute import NO_POLICIES
from pulsar_rebalancer.replay.samples import Recording
from pulsar_rebalancer.replay.snapshots import record
from pulsar_rebalancer.run import tables
from pulsar_rebalancer.run.request import Finding, Validation
from pulsar_rebalancer.run.snapshot import StateBefore
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer.storage.path import StoragePath

START = datetime(2026, 3, 20, 12, 0, tzinfo=UTC)
CLUSTER = "east"
FOUR = [f"t/n/0x{i:x}0000000_0x{i + 4:x}0000000" for i in (0, 4, 8)] + ["t/n/0xc0000000_0xffffffff"]


def settings(**values: Any) -> Settings:
    small = {"min_unload_message": 10, "min_unload_bundle_throughput": 0, "min_unload_throughput": 0}
    return validate({**small, **values}, label="test")


@dataclass
class Run:
    """One run.

    Attributes:
        cpu: percent by broker; None where there is no report.
        held: messages a second by bundle, by broker.
        left_out: brokers and bundles that validation left out.
        drained: brokers that were drained.
        blocked: whether validation found that it cannot be judged.
        policies: what policies say; None: that was not kept.
        extra: further columns of all brokers.
        started: minute after the start in which a broker's process started; empty: not known.
    """

    cpu: Mapping[str, float | None]
    held: Mapping[str, Mapping[str, float]]
    left_out: tuple[str, ...] = ()
    drained: tuple[str, ...] = ()
    blocked: bool = False
    policies: Policies | None = NO_POLICIES
    extra: Mapping[str, Any] = field(default_factory=dict)
    started: Mapping[str, float] = field(default_factory=dict)

    def write(self, storage: ClusterStorage, at: datetime) -> StoragePath:
        run = storage.new_run_folder(at)
        brokers = [self._broker(name, cpu) for name, cpu in self.cpu.items()]
        bundles = [_bundle(name, bundle, rate) for name, held in self.held.items() for bundle, rate in held.items()]
        cluster = [{"cluster": CLUSTER, "collected_at": at, "bundles": len(bundles)}]
        rows = {"cluster": cluster, "brokers": brokers, "bundles": bundles}
        tables.write(run, {name: tables.table(found, tables.INPUT[name]) for name, found in rows.items()})
        findings = [Finding(reason=Reason.LOAD_IN_DOUBT, subject=name) for name in self.left_out]
        if self.blocked:
            findings.append(Finding(reason=Reason.TOO_FEW_BROKERS))
        Validation(findings=tuple(findings)).write(run)
        drained = dict.fromkeys(self.drained, Drain(at=at, by="ann", reason="repair"))
        StateBefore(drains=Drains(brokers=drained)).write(run)
        (run / "input" / "settings.json").write_json({"airflow_run_id": "scheduled"})
        (run / "outcome.json").write_json({})
        if self.policies is not None:
            self.policies.write(run)
        return run

    def _broker(self, name: str, cpu: float | None) -> dict[str, Any]:
        row = {"cluster": CLUSTER, "broker": name, "listings": 1, **self.extra}
        if cpu is None:
            return row | {"error": "timeout"}
        if name in self.started:
            row["started_at"] = minute(self.started[name])
        rate = sum(self.held.get(name, {}).values())
        values = {"cpu_usage": cpu * 4, "cpu_limit": 400.0, "bandwidth_in_usage": rate, "bandwidth_in_limit": 1e9}
        return row | values | _traffic(rate) | {"report_age_seconds": 1.0}


def _bundle(broker: str, name: str, rate: float) -> dict[str, Any]:
    return {"cluster": CLUSTER, "broker": broker, "bundle": name, "owners": 1, "topics": 1, **_traffic(rate)}


def _traffic(rate: float) -> dict[str, float]:
    return {"msg_rate_in": rate, "msg_rate_out": 0.0, "msg_throughput_in": 100 * rate, "msg_throughput_out": 0.0}


def minute(number: float) -> datetime:
    return START + timedelta(minutes=number)


def recorded(folder: Path, runs: Mapping[float, Run], **values: Any) -> Recording:
    storage = ClusterStorage(str(folder), CLUSTER)
    for at, run in runs.items():
        run.write(storage, minute(at))
    return made(storage, folder / "recording", max(runs), **values)


def made(storage: ClusterStorage, folder: Path, last: float, **values: Any) -> Recording:
    target = StoragePath(str(folder))
    record(storage, settings(**values), START, minute(last), target)
    return Recording.read(target)
