"""What a rolling restart shows before it begins, and what runs say about one in force."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.include.pulsar_rebalancer.decide.by_hand.snapshots import NOW, Snapshots, name

from pulsar_rebalancer.decide.by_hand import roll_plan
from pulsar_rebalancer.run.snapshot import Snapshot
from pulsar_rebalancer.run.tables import CLUSTER, table
from pulsar_rebalancer.state.roll_document import Phase, Roll

if TYPE_CHECKING:
    from pathlib import Path

HELD = {name(n): 5.0 for n in range(4)}
OWNED: dict[str, Any] = {"a": HELD, "b": {name(10): 20.0}, "c": {name(20): 20.0}}


def snapshot(tmp_path: Path, owned: Any = None, leader: str = "", **settings: Any) -> tuple[Snapshots, Snapshot]:
    snapshots = Snapshots(tmp_path, owned or OWNED, **settings)
    run = snapshots.take()
    rows = [{"cluster": "east", "load_manager": "ModularLoadManagerImpl", "leader": leader}]
    (run / "input" / "cluster.parquet").write_table(table(rows, CLUSTER))
    return snapshots, Snapshot(run)


def test_all_brokers_in_the_order_of_their_names_and_the_leader_last(tmp_path: Path) -> None:
    _, sample = snapshot(tmp_path, leader="a:1")
    assert roll_plan.shown(sample, (), "ada", "patch").order == ("b:1", "c:1", "a:1")
    assert roll_plan.shown(sample, ("c:1", "a:1"), "ada", "patch").order == ("c:1", "a:1")


def test_a_turn_says_what_moves_twice_and_how_long_it_takes(tmp_path: Path) -> None:
    caps: dict[str, Any] = {"max_bundles_per_broker": 2, "interval_seconds": 60, "host_usage_interval_minutes": 1}
    snapshots, sample = snapshot(tmp_path, **caps)
    roll = roll_plan.shown(sample, ("a:1",), "ada", "patch")

    planned = roll_plan.turns(sample, snapshots.storage.state, roll.order)

    # Two runs that drain it and one that finds it empty, the same again for its return, two reports, two host samples.
    assert planned == [roll_plan.Turn("a:1", 20.0, 20.0, 4, 10.0, "")]
    assert roll_plan.document(roll, planned)["moves_twice"] == 4
    assert "4 bundles move twice" in roll_plan.text(roll, planned, "pulsar_roll__east")


def test_a_broker_whose_load_fits_nowhere_is_shown_with_the_reason(tmp_path: Path) -> None:
    snapshots, sample = snapshot(tmp_path, roll_max_score=22)
    (turn,) = roll_plan.turns(sample, snapshots.storage.state, ["a:1"])
    assert turn.why_not == "room for 4 of 4 bundles on the others, below a score of 22: would_overload x4"


@pytest.mark.parametrize(("limit", "no_room"), [(22, True), (90, False)])
def test_a_roll_sees_whether_the_others_have_room(tmp_path: Path, limit: float, no_room: bool) -> None:
    snapshots, sample = snapshot(tmp_path, roll_max_score=limit)
    roll = Roll(id="f", order=("a:1",), at=NOW, turn_at=NOW)

    found = roll_plan.seen(sample, snapshots.storage.state, roll, ["c:1"])

    assert bool(found.no_room) is no_room
    assert (found.home, found.drained, found.left) == (tuple(HELD), ("c:1",), None)
    waiting = roll.model_copy(update={"phase": Phase.DRAINING})
    assert roll_plan.seen(sample, snapshots.storage.state, waiting, ()).home == ()
