from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.include.pulsar_rebalancer.decide.snapshots import NOW, Snapshots, name, planned

from pulsar_rebalancer.decide import plan_files, roll_plan
from pulsar_rebalancer.decide.roll_plan import predict_removal, removal_sample
from pulsar_rebalancer.decide.rolling import RollSample
from pulsar_rebalancer.decide.run_input import RunInput
from pulsar_rebalancer.isolation import IsolationPolicy, Policies
from pulsar_rebalancer.orders.manual_plans import Drains
from pulsar_rebalancer.orders.roll_document import BrokerRestart, Phase, Roll, ShownRestarts
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.bundle_columns import BundleSample
from pulsar_rebalancer.run.outcome import Outcome
from pulsar_rebalancer.run.plan import Summary
from pulsar_rebalancer.run.snapshot import Snapshot
from pulsar_rebalancer.run.tables import CLUSTER, Measure, table
from pulsar_rebalancer.state import DecisionState
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer.strategies.sample import CandidateMove

HELD = {name(n): 5.0 for n in range(4)}
OWNED: dict[str, Any] = {"a": HELD, "b": {name(10): 20.0}, "c": {name(20): 20.0}}


def snapshot(tmp_path: Path, owned: Any = None, leader: str = "", **settings: Any) -> tuple[Snapshots, Snapshot]:
    snapshots = Snapshots(tmp_path, owned or OWNED, **settings)
    run = snapshots.take()
    rows = [{"cluster": "east", "load_manager": "ModularLoadManagerImpl", "leader": leader}]
    (run / "input" / "cluster.parquet").write_table(table(rows, CLUSTER))
    return snapshots, Snapshot(run)


def test_all_brokers_in_the_order_of_their_names_and_the_leader_last(tmp_path):
    _, sample = snapshot(tmp_path, leader="a:1")
    assert roll_plan.roll_preview(sample, (), "ada", "patch").order == ("b:1", "c:1", "a:1")
    assert roll_plan.roll_preview(sample, ("c:1", "a:1"), "ada", "patch").order == ("c:1", "a:1")


def test_a_turn_says_what_moves_twice_and_how_long_it_takes(tmp_path):
    caps: dict[str, Any] = {"max_bundles_per_broker": 2, "interval_seconds": 60, "host_usage_interval_minutes": 1}
    _, sample = snapshot(tmp_path, **caps)
    roll = roll_plan.roll_preview(sample, ("a:1",), "ada", "patch")

    planned = roll_plan.predict_restarts(sample, roll.order)

    # Two runs that drain it and one that finds it empty, the same again for its return, two reports, two host samples.
    turn = BrokerRestart(broker="a:1", score=20.0, traffic=20.0, bundles=4, minutes=10.0, why_not="")
    assert planned == [turn]
    shown = ShownRestarts(plan=roll.id, refused="", waits="", restarts=(turn, turn))
    assert (shown.moves_twice, shown.minutes) == (8, 20.0)
    told = roll_plan.roll_text(shown.model_copy(update={"restarts": (turn,)}), roll.reason, "pulsar_roll__east")
    assert "4 bundles move twice" in told
    assert "1 a:1: score 20.0 %, 0.00 MiB/s" in told
    assert "Now" not in told
    assert "would wait" not in told

    onto: dict[str, Any] = caps | {"max_bundles_per_run": 1}
    _, sample = snapshot(tmp_path / "onto", **onto)
    (turn,) = roll_plan.predict_restarts(sample, roll.order)
    assert turn.minutes == 5 + 5 + 2 + 2

    empty, sample = snapshot(tmp_path / "empty", {"a": {}, "b": {}}, interval_seconds=60, host_usage_interval_minutes=1)
    (turn,) = roll_plan.predict_restarts(sample, ["a:1"])
    assert turn.minutes == 1 + 1 + 2 + 2
    empty.ageless = ["a:1"]
    (turn,) = roll_plan.predict_restarts(Snapshot(empty.take(after=timedelta(seconds=1))), ["a:1"])
    assert turn.why_not == "the broker does not report its start time"


def test_a_waiting_roll_looks_once_in_a_sample_for_room(tmp_path):
    full = Snapshots(tmp_path, {"a": HELD, "b": {name(10): 20.0}}, overloaded_threshold=32)
    sample = Snapshot(full.take())
    roll = Roll(id="f", order=("a:1",), listed=("a:1", "b:1"), at=NOW, turn_at=NOW)

    found = roll_plan.roll_sample(sample, roll, ())
    assert found.why_no_room.startswith("room for 2 of 4 bundles on brokers with")
    known = roll.model_copy(update={"seen": (found.sampled_at,), "waits": "as said before"})
    assert roll_plan.roll_sample(sample, known, ()).why_no_room == "as said before"
    assert roll_plan.roll_sample(sample, roll.model_copy(update={"phase": Phase.DRAINING}), ()).why_no_room == ""
    gone = roll.model_copy(update={"order": ("c:1",)})
    assert roll_plan.roll_sample(sample, gone, ()).why_no_room == ""

    roomy = Snapshots(tmp_path / "roomy", OWNED)
    assert roll_plan.roll_sample(Snapshot(roomy.take()), roll, ()).why_no_room == ""


def test_only_what_ever_moves_needs_room_where_policies_allow_it(tmp_path):
    held = {"a": {name(0): 20.0, name(1): 10.0, name(2): 0.0, SYSTEM: 5.0}, "b": {name(10): 20.0}, "c": {}}
    snapshots = Snapshots(tmp_path, held, overloaded_threshold=32)
    snapshots.unloaded, snapshots.topics = {name(0): timedelta(minutes=1)}, {name(2): 0}
    (turn,) = roll_plan.predict_restarts(Snapshot(snapshots.take()), ["a:1"])
    assert (turn.bundles, turn.why_not) == (2, ""), "the grace period ends"

    only_b = IsolationPolicy(name="p", namespaces=("t/n",), primary=("[ab]",))
    snapshots.policies = Policies(isolation=(only_b,))
    (turn,) = roll_plan.predict_restarts(Snapshot(snapshots.take(after=timedelta(seconds=1))), ["a:1"])
    assert turn.why_not.endswith("brokers with scores below 32 % (reasons: 1 would overload a broker)")

    snapshots.policies = Policies(isolation=(only_b.model_copy(update={"primary": ("a",)}),))
    (turn,) = roll_plan.predict_restarts(Snapshot(snapshots.take(after=timedelta(seconds=2))), ["a:1"])
    assert turn.why_not.endswith("(reasons: 2 kept by isolation policies)")


def test_roll_plan_shows_what_brokers_would_wait_for(tmp_path):
    _, sample = snapshot(tmp_path)
    assert roll_plan.why_no_turn(sample) == ""
    roll = roll_plan.roll_preview(sample, ("a:1",), "ada", "patch")
    shown = ShownRestarts(plan=roll.id, refused="draining: c:1", waits="b:1 to recover", restarts=())
    told = roll_plan.roll_text(shown, roll.reason, "pulsar_roll__east").splitlines()
    assert "The rolling restart would be refused now: draining: c:1." in told
    assert "First, the rolling restart would wait for b:1 to recover." in told

    snapshots = Snapshots(tmp_path / "unwell", OWNED)
    snapshots.quarantined = ["b:1", "gone:1"]
    assert roll_plan.why_no_turn(Snapshot(snapshots.take())) == "b:1 to recover: report_missing"


@pytest.mark.parametrize(
    ("ended", "kept"),
    [
        ({"source": "a:1", "destination": "c:1", "outcome": "moved", "owner": "c:1"}, False),
        ({"source": "a:1", "destination": "c:1", "outcome": "astray", "owner": "b:1"}, False),
        ({"source": "a:1", "destination": "c:1", "outcome": "interrupted"}, True),
        ({"source": "b:1", "destination": "a:1", "outcome": "moved", "owner": "a:1"}, True),
    ],
    ids=["left", "left astray", "unknown", "came"],
)
def test_bundle_that_just_left_does_not_come_back(tmp_path, ended, kept):
    snapshots = Snapshots(tmp_path, OWNED)
    snapshots.unloaded, snapshots.ended = {name(0): timedelta(minutes=3)}, ended
    roll = Roll(id="f", order=("a:1",), at=NOW, turn_at=NOW)

    home = roll_plan.roll_sample(Snapshot(snapshots.take()), roll, ()).home_bundles

    assert home == tuple(HELD)[0 if kept else 1 :]


AWAY: dict[str, Any] = {"a": {name(0): 5.0, name(1): 5.0}, "b": {name(10): 20.0}, "c": {name(20): 20.0}}
"""Two bundles whose home is c."""
BACK: dict[str, Any] = AWAY | {"a": {}, "c": AWAY["a"] | AWAY["c"]}
FULL = {"overloaded_threshold": 22}
SYSTEM = "pulsar/system/0x00000000_0xffffffff"
ASTRAY: dict[str, Any] = {"destination": "c:1", "outcome": "astray"}


def in_phase(phase: Phase, tmp_path: Path, owned: dict[str, Any], **given: Any) -> RollSample:
    """What a roll sees of the turn of c, whose three bundles are two of `AWAY`, and one that no broker reports."""
    snapshots = Snapshots(tmp_path, owned, **given.pop("settings", {}))
    before = snapshots.take(after=timedelta(minutes=-1))
    snapshots.state = DecisionState(seq=7, plan_id=before.name)
    for attribute, value in given.items():
        setattr(snapshots, attribute, value)
    home = given.pop("home", (name(0), name(1), name(2), SYSTEM))
    verdicts = [given.pop("verdict", None), given.pop("verdict_before", None)]
    listed = given.pop("listed", ())
    roll = Roll(id="f", order=("c:1",), listed=listed, at=NOW, turn_at=NOW, phase=phase, home=home)
    drains = Drains(brokers=roll.roll_drains())
    run = snapshots.take(roll=roll.model_dump(mode="json"), drains=drains.model_dump(mode="json"))
    bundle = BundleSample("a:1", name(1), msg_throughput=5.0)
    its = CandidateMove.new(bundle, pair=0, rank=0, measure=Measure.THROUGHPUT, reason=Reason.TAKEN, destination="b:1")
    read = RunInput.read(run.uri)
    plan_files.write_run_plan(read, planned(read, [], [its]))
    for folder, verdict in zip((run, before), verdicts, strict=True):
        if verdict is not None:
            ended = Outcome(plan_id=run.name, cluster="east", airflow_run_id="r", ended_at=NOW, verdict=verdict)
            ended.write(folder)
    return roll_plan.roll_sample(Snapshot(run), roll, ())


def returning(tmp_path: Path, owned: dict[str, Any] = AWAY, **given: Any) -> RollSample:
    return in_phase(Phase.RETURNING, tmp_path, owned, **given)


@pytest.mark.parametrize(("silent", "left"), [([], 1), (["c:1"], None), (["a:1"], 1)])
def test_a_drained_broker_without_a_report_is_not_empty(tmp_path, silent, left):
    assert in_phase(Phase.DRAINING, tmp_path, AWAY, silent=silent).bundles_left == left


def test_a_drained_broker_that_is_not_listed_is_not_empty(tmp_path):
    assert in_phase(Phase.DRAINING, tmp_path, {broker: AWAY[broker] for broker in "ab"}).bundles_left is None


def test_a_drain_of_another_turn_says_nothing_of_this_one(tmp_path):
    storage = ClusterStorage(str(tmp_path), "east")
    run = storage.run_folder(in_phase(Phase.DRAINING, tmp_path, AWAY).run)
    assert run is not None
    later = Roll(id="f", order=("c:1",), at=NOW, turn_at=NOW + timedelta(minutes=1), phase=Phase.DRAINING)
    assert roll_plan.roll_sample(Snapshot(run), later, ()).bundles_left is None
    other = later.model_copy(update={"order": ("b:1",), "turn_at": NOW})
    assert roll_plan.roll_sample(Snapshot(run), other, ()).bundles_left is None


@pytest.mark.parametrize("lost", [{"quarantined": ["b:1"]}, {"owned": {broker: AWAY[broker] for broker in "ac"}}])
def test_drain_waits_while_another_broker_is_lost(tmp_path, lost):
    given = {"owned": AWAY, "listed": ("a:1", "b:1", "c:1")} | lost
    found = in_phase(Phase.DRAINING, tmp_path, **given)
    assert (found.bundles_left, found.stay_counts) == (1, {"rolling": 1})


def test_bundles_of_a_lost_broker_do_not_return_to_the_drained_one(tmp_path):
    snapshots = Snapshots(tmp_path, OWNED)
    begun = snapshots.take(after=timedelta(minutes=-9))
    snapshots.unloaded = dict.fromkeys((name(0), name(9), name(20)), timedelta(minutes=3))
    snapshots.ended = {"source": "a:1", "destination": "b:1", "outcome": "moved", "owner": "b:1"}
    snapshots.ended["plan_id"] = snapshots.take(after=timedelta(minutes=-4)).name
    roll = Roll(id="f", order=("a:1",), at=NOW, turn_at=NOW, sample=begun.name, phase=Phase.DRAINING)
    home = roll_plan.roll_sample(Snapshot(snapshots.take()), roll, ()).home_bundles
    assert sorted(home) == [name(0), name(9)], "c reported the other one when the turn began"

    snapshots.ended["plan_id"] = begun.name
    run = Snapshot(snapshots.take(after=timedelta(seconds=1)))
    assert roll_plan.roll_sample(run, roll, ()).home_bundles == (), "these moved before the turn"


@pytest.mark.parametrize(("settings", "moving"), [({"overloaded_threshold": 29}, 0), ({}, 1)], ids=["no room", "room"])
def test_a_drain_obeys_the_limit_that_the_roll_was_permitted_by(tmp_path, settings, moving):
    assert drained(tmp_path, settings=settings) == (moving, bool(moving))


def drained(tmp_path: Path, **given: Any) -> tuple[int, bool]:
    """How many bundles leave c, which a roll drains; whether the roll was permitted to begin that."""
    storage = ClusterStorage(str(tmp_path), "east")
    run = storage.run_folder(in_phase(Phase.DRAINING, tmp_path, AWAY, **given).run)
    assert run is not None
    return Summary.read(run).drains["c:1"].moving, not predict_removal(removal_sample(Snapshot(run)), "c:1").stay_counts


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ({}, 2),
        ({"silent": ["a:1"]}, 4),
        ({"listed": ("a:1", "b:1", "c:1", "d:1")}, 4),
        ({"silent": ["c:1"], "owned": BACK}, 4),
        ({"settings": {"max_bundles_per_run": 1}}, 2),
        ({"quarantined": ["c:1"]}, 2),
        ({"quarantined": ["a:1"]}, 2),
        ({"owned": {broker: AWAY[broker] for broker in "ab"}}, 2),
        ({"unloaded": {name(2): timedelta(minutes=3)}, "ended": ASTRAY}, 3),
        ({"unloaded": {name(2): timedelta(minutes=3)}, "ended": ASTRAY, "owned": BACK}, 1),
        ({"unloaded": {name(2): timedelta(minutes=3)}, "ended": {"outcome": "moved"}}, 3),
        ({"unloaded": {name(2): timedelta(minutes=3)}, "ended": ASTRAY | {"outcome": "moved"}}, 2),
        ({"unloaded": {name(2): timedelta(minutes=5)}, "ended": ASTRAY}, 2),
        ({"unloaded": {name(99): timedelta(minutes=3)}, "ended": ASTRAY}, 2),
        ({"unloaded": {name(20): timedelta(minutes=3)}, "ended": ASTRAY | {"outcome": "moved"}, "settings": FULL}, 2),
    ],
    ids=[
        "moving",
        "source silent",
        "a broker lost",
        "home silent",
        "capped",
        "home unwell",
        "source unwell",
        "home gone",
        "astray",
        "last",
        "drained",
        "back",
        "gone",
        "other",
        "full",
    ],
)
def test_bundles_that_may_still_return_are_awaited(tmp_path, given, left):
    found = returning(tmp_path, **given)
    assert (found.bundles_left, found.stay_counts) == (left, {})


def test_once_no_bundle_can_return_the_roll_knows_why(tmp_path):
    ended = {"unloaded": {name(0): timedelta(minutes=1)}, "ended": ASTRAY | {"tries": 3}}
    excluded = {"settings": {"excluded_bundles": [name(1)]}}
    found = returning(tmp_path / "away", **ended, **excluded)
    gone = {"unknown_name": 1}
    assert (found.bundles_left, found.stay_counts) == (0, {"astray": 1, "bundle_excluded": 1} | gone)

    found = returning(tmp_path / "full", settings=FULL)
    assert (found.bundles_left, found.stay_counts) == (0, {"would_overload": 2} | gone)

    found = returning(tmp_path / "back", BACK)
    assert (found.bundles_left, found.stay_counts) == (0, gone)

    found = returning(tmp_path / "system", BACK | {"a": {SYSTEM: 5.0}})
    assert (found.bundles_left, found.stay_counts) == (0, gone), "a system bundle never moves"

    just_back = {name(number): timedelta(minutes=3) for number in (0, 1)}
    found = returning(tmp_path / "just back", unloaded=just_back, ended=ASTRAY | {"outcome": "moved"})
    assert (found.bundles_left, found.stay_counts) == (0, gone), "the last owner still reports them"


def test_bundles_without_topics_do_not_leave_and_are_not_missed(tmp_path):
    found = in_phase(Phase.DRAINING, tmp_path, AWAY, topics={name(20): 0})
    assert (found.bundles_left, found.fixed_bundles) == (0, (name(20),))


@pytest.mark.parametrize(
    ("given", "outcome"),
    [
        ({}, ""),
        ({"verdict": Reason.AWAITING_APPROVAL}, "The plan waits for a person's approval"),
        ({"verdict": Reason.OPEN, "verdict_before": Reason.READ_ONLY}, ""),
        ({"verdict_before": Reason.READ_ONLY}, "The connection is read-only; the request was not sent"),
        ({"verdict_before": Reason.NOTHING_TO_DO}, ""),
    ],
)
def test_a_roll_sees_why_bundles_do_not_leave(tmp_path, given, outcome):
    found = in_phase(Phase.DRAINING, tmp_path, AWAY, settings={"overloaded_threshold": 29}, **given)
    assert (found.bundles_left, found.stay_counts, found.outcome_text) == (1, {"would_overload": 1}, outcome)
