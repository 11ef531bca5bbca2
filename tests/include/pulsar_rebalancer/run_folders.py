from datetime import UTC, datetime, timedelta
from typing import Any

from pulsar_rebalancer.run import tables
from pulsar_rebalancer.run.plan import write_splits
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer.storage.path import StoragePath

CLUSTER = "east"
NOW = datetime(2026, 3, 20, 2, 0, tzinfo=UTC)
YESTERDAY = NOW.date() - timedelta(days=1)


def rows(run_number: int, count: int) -> list[dict[str, Any]]:
    return [
        {
            "cluster": CLUSTER,
            "broker": f"b:{n}",
            "bundle": f"t/n/0x{n:08x}_0x{n + 1:08x}",
            "msg_rate_in": run_number + n,
        }
        for n in range(count)
    ]


def stored_run(
    storage: ClusterStorage, at: datetime, *, number: int = 1, bundles: int = 3, ended: bool = True
) -> StoragePath:
    run = storage.new_run_folder(at)
    made = rows(number, bundles)
    tables.write(
        run,
        {
            "cluster": tables.table([{"cluster": CLUSTER, "collected_at": at, "bundles": bundles}], tables.CLUSTER),
            "brokers": tables.table(
                [{"cluster": CLUSTER, "broker": f"b:{n}", "collected_at": at} for n in range(2)], tables.BROKERS
            ),
            "bundles": tables.table(made, tables.BUNDLES),
        },
    )
    (run / "input" / "settings.json").write_json({"airflow_run_id": f"scheduled__{number}"})
    (run / "input" / "state.json").write_json({"decision": {"seq": number - 1}})
    (run / "validation.json").write_json({"findings": []})
    (run / "validation" / "index.html").write_bytes(b"<!DOCTYPE html>")
    (run / "plan" / "decisions.parquet").write_table(
        tables.table([{"cluster": CLUSTER, "pair": 0, "source": "b:0", "reason": "fired"}], tables.DECISIONS)
    )
    # As Spark writes it: a folder of parts.
    moved = [{"cluster": CLUSTER, "bundle": row["bundle"], "taken": True, "reason": "taken"} for row in made[:2]]
    for part, row in enumerate(moved):
        (run / "plan" / "moves.parquet" / f"part-0000{part}-c000.zstd.parquet").write_table(
            tables.table([row], tables.MOVES)
        )
    (run / "plan" / "moves.parquet" / "_SUCCESS").write_bytes(b"")
    (run / "plan" / "moves.parquet" / "._SUCCESS.crc").write_bytes(b"crc")
    write_splits(run, [{"cluster": storage.cluster, "bundle": "t/n/0x00000000_0x00000001", "rank": 0, "taken": False}])
    (run / "plan" / "state.json").write_json({"seq": number})
    (run / "plan" / "summary.json").write_json({"plan_id": run.name})
    (run / "unload" / "wave-00.json").write_json([{"bundle": "t/n/0x00000000_0x00000001", "reason": "moved"}])
    if ended:
        (run / "outcome.json").write_json({"plan_id": run.name, "verdict": "open"})
    return run
