import random

import pyarrow as pa
import pytest

from pulsar_rebalancer.config.clusters_file import resolve
from pulsar_rebalancer.errors import PlanError
from pulsar_rebalancer.run.plan import Summary, plan_hash, read_moves, verified_actions
from pulsar_rebalancer.run.tables import DECISIONS, MOVES, table
from pulsar_rebalancer.state import DecisionState
from pulsar_rebalancer.storage.path import StoragePath

STATE = DecisionState(seq=1, plan_id="p").model_dump(mode="json")


def move(bundle, **changes):
    row = {"cluster": "c", "pair": 0, "source": "a", "destination": "b", "bundle": bundle, "rank": 0}
    row |= {
        "measure": "msg_rate",
        "traffic": 0.1 + 0.2,
        "msg_throughput": 0.0,
        "taken": True,
        "reason": "taken",
        "wave": 0,
    }
    return row | changes


@pytest.fixture
def run(tmp_path):
    folder = StoragePath(str(tmp_path / "run"))
    moves = [move("t/n/1", wave=1), move("t/n/2", rank=2), move("t/n/3", rank=1), move("t/n/4", taken=False, wave=None)]
    (folder / "plan" / "decisions.parquet").write_table(table([{"cluster": "c", "pair": 0, "gap": 1 / 3}], DECISIONS))
    (folder / "plan" / "moves.parquet").write_table(table(moves, MOVES))
    (folder / "plan" / "state.json").write_json(STATE)
    decisions = (folder / "plan" / "decisions.parquet").read_table().to_pylist()
    taken = [row for row in (folder / "plan" / "moves.parquet").read_table().to_pylist() if row["taken"]]
    Summary(
        plan_id="p",
        cluster="c",
        airflow_run_id="manual__x",
        base_seq=0,
        hash=plan_hash(decisions, taken, STATE),
        collected_at="2026-11-21T12:00:00Z",
        counting="counted",
        score_min=1,
        score_max=20,
        score_mean=10,
        brokers=2,
        pairs=1,
        pairs_over=1,
        pairs_fired=1,
        hits=(8, 0),
        bundles_taken=3,
        bundle_skip_reasons={"over_remaining": 1},
        waves=2,
        predicted_min=9,
        predicted_max=11,
        resolved=resolve({}, {}),
    ).write(folder)
    return folder


def test_the_hash_does_not_depend_on_order():
    rows = [move(f"t/n/{i}", rank=i, traffic=i / 7) for i in range(20)]
    shuffled = random.Random(1).sample(rows, len(rows))
    assert plan_hash([], rows, STATE) == plan_hash([], shuffled, STATE)
    assert plan_hash([], rows, STATE) != plan_hash([], rows[1:], STATE)
    assert plan_hash([], rows, STATE) != plan_hash([], rows, STATE | {"seq": 2})


def test_an_altered_plan_is_refused(run):
    altered = (run / "plan" / "moves.parquet").read_table()
    column = pa.array(["z"] * altered.num_rows)
    (run / "plan" / "moves.parquet").write_table(altered.set_column(3, MOVES.field("destination"), column))
    assert read_moves(run)[0].destination == "z"
    with pytest.raises(PlanError) as refused:
        verified_actions(run, Summary.read(run))
    assert refused.value.reason == "plan_changed"
