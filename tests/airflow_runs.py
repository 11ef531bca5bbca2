"""Runs as collect and decide leave them, for the tasks that follow."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from pulsar_rebalancer.config.clusters_file import RunSettings
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.run.plan import Summary, plan_hash, write_splits
from pulsar_rebalancer.run.request import RunRequest, Validation
from pulsar_rebalancer.run.snapshot import StateBefore
from pulsar_rebalancer.run.tables import DECISIONS, MOVES, table
from pulsar_rebalancer.state import DecisionState, HitCount
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer.storage.path import StoragePath

CLUSTER = "east"


def bundle(number: int) -> str:
    return f"load/test/0x{number * 0x10000000:08x}_0x{(number + 1) * 0x10000000:08x}"


def move_row(number: int, source: str, destination: str, wave: int = 0) -> dict[str, Any]:
    return {
        "cluster": CLUSTER,
        "pair": 0,
        "source": source,
        "destination": destination,
        "bundle": bundle(number),
        "rank": number,
        "measure": "msg_throughput",
        "traffic": 1000.0 - number,
        "msg_rate": 1.0,
        "msg_throughput": 1000.0 - number,
        "taken": True,
        "reason": "taken",
        "wave": wave,
    }


def make_run(
    storage: ClusterStorage,
    moves: Sequence[Mapping[str, Any]] = (),
    *,
    base_seq: int = 0,
    hits: Mapping[str, tuple[int, int]] | None = None,
    means: str = "",
    age: timedelta = timedelta(0),
    validation: Validation | None = None,
    cluster: str = CLUSTER,
    airflow_run_id: str = "manual__1",
    splits: Sequence[Mapping[str, Any]] = (),
    before: StateBefore | None = None,
    **settings: Any,
) -> StoragePath:
    now = datetime.now(UTC) - age
    run = storage.new_run_folder(now)
    effective = Settings.model_validate({"mode": "auto", "connection": "pulsar_test"} | settings)
    resolved = RunSettings(settings=effective, origins={})
    RunRequest(cluster=cluster, airflow_run_id=airflow_run_id, resolved=resolved, collected_at=now).write(run)
    (validation or Validation()).write(run)
    (before or StateBefore()).write(run)
    state = DecisionState(
        seq=base_seq + 1,
        plan_id=run.name,
        counted_at=now,
        strategy="AvgShedder",
        hits={broker: HitCount(*count) for broker, count in (hits or {}).items()},
        means=means,
    )
    (run / "plan" / "decisions.parquet").write_table(table([], DECISIONS))
    (run / "plan" / "moves.parquet").write_table(table(moves, MOVES))
    document = state.model_dump(mode="json")
    (run / "plan" / "state.json").write_json(document)
    Summary(
        plan_id=run.name,
        cluster=cluster,
        airflow_run_id=airflow_run_id,
        base_seq=base_seq,
        hash=plan_hash([], table(moves, MOVES).to_pylist(), document, write_splits(run, list(map(dict, splits)))),
        collected_at=now,
        counting="counted",
        score_min=10.0,
        score_max=70.0,
        score_mean=40.0,
        brokers=3,
        pairs=1,
        pairs_over=1,
        pairs_fired=int(bool(moves)),
        hits=(8, 0),
        bundles_taken=len(moves),
        bundle_skip_reasons={},
        waves=len({row["wave"] for row in moves}),
        predicted_min=None,
        predicted_max=None,
        resolved=resolved,
    ).write(run)
    return run
