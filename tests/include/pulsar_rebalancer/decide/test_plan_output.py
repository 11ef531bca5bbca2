"""The plan of a run that serves a drain: the strategy leaves the broker out, and its bundles leave first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.include.pulsar_rebalancer.decide.by_hand.snapshots import NOW, Snapshots, fates, name

from pulsar_rebalancer.decide import plan_output
from pulsar_rebalancer.decide.pipeline import RunDecision
from pulsar_rebalancer.decide.run_input import RunInput
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.bundle_columns import BundleSample
from pulsar_rebalancer.run.plan import verify
from pulsar_rebalancer.run.tables import Measure
from pulsar_rebalancer.state.manual_plans import Drain, Drains
from pulsar_rebalancer.strategies.kept import KeptState
from pulsar_rebalancer.strategies.left_out import left_out_of
from pulsar_rebalancer.strategies.sample import CandidateMove, Decision

if TYPE_CHECKING:
    from pathlib import Path


def test_a_plan_with_a_drain_is_one_plan_with_one_hash(tmp_path: Path) -> None:
    snapshots = Snapshots(tmp_path, {"a": {name(1): 20.0, name(2): 20.0}, "b": {name(4): 10.0}, "c": {}})
    drains = Drains(brokers={"a:1": Drain(at=NOW, by="ada", reason="new disks")})
    folder = snapshots.take(drains=drains.model_dump(mode="json"))
    run = RunInput.read(snapshots.storage.root, folder.uri)
    assert left_out_of(run.snapshot) == {"a:1": Reason.DRAINING}
    stays = BundleSample("b:1", name(4), msg_throughput=10.0)
    passed_over = CandidateMove.of(stays, pair=0, rank=0, measure=Measure.THROUGHPUT, reason=Reason.OVER_REMAINING)
    left_out = Decision("a:1", Reason.DRAINING, source_high=3, source_low=5)
    pair = Decision("b:1", Reason.BELOW_LOW, 0, destination="c:1", source_score=30.0, destination_score=10.0)
    summary = plan_output.write(run, RunDecision([left_out, pair], [passed_over], KeptState(), "nothing fired", {}))

    moves = verify(folder, summary)[0]
    found = fates(folder)
    assert found.pop(name(4)) == Reason.OVER_REMAINING  # what the strategy passed over stays in the plan
    assert {move.bundle: move.destination for move in moves} == found
    assert {move.bundle for move in moves} == {name(1), name(2)}
    assert {move.destination for move in moves} == {"b:1", "c:1"}
    assert summary.drains["a:1"].moving == 2
    # The range tells how even the others are: the drained one goes to zero on purpose.
    assert (summary.brokers, summary.score_min, summary.score_max) == (2, 10.0, 30.0)
    assert summary.predicted_min is not None
    assert "Drained: a:1, 2 bundles to move" in summary.sentence
    hits = (folder / "plan" / "state.json").read_json()["hits"]
    assert hits == {"a:1": [3, 5]}  # frozen, as those of every broker that is left out
