from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.include.pulsar_rebalancer.decide.snapshots import NOW, Snapshots, name, planned

from pulsar_rebalancer.config.field_types import Overrule
from pulsar_rebalancer.decide.planning import ArrivingTraffic, Proposal, SourceReport
from pulsar_rebalancer.decide.run_input import RunInput
from pulsar_rebalancer.decide.run_plan import plan_with_strategy
from pulsar_rebalancer.errors import RebalancerError
from pulsar_rebalancer.isolation import IsolationPolicy, Policies
from pulsar_rebalancer.orders.manual_plans import Drain
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.bundle_columns import BundleSample
from pulsar_rebalancer.run.outcome import MoveOutcome, Outcome
from pulsar_rebalancer.run.plan import SplitOutcome
from pulsar_rebalancer.run.tables import BROKERS, Measure, table
from pulsar_rebalancer.strategies.sample import CandidateMove, Decision

SYSTEM, EMPTY = name(8, "pulsar/system"), name(9)
HEARTBEAT = "pulsar/a:1/0x00000000_0xffffffff"
OWNED = {
    "a": {name(1): 20.0, name(2): 20.0, SYSTEM: 0.0, EMPTY: 0.0, HEARTBEAT: 0.0},
    "b": {name(4): 10.0},
    "c": {name(5): 10.0},
}
DRAIN = Drain(at=NOW, by="ada", reason="new disks")


@pytest.fixture
def snapshots(tmp_path: Path) -> Snapshots:
    made = Snapshots(tmp_path, OWNED)
    made.topics = {EMPTY: 0}
    return made


def test_a_drain_shows_all_that_it_would_move_and_names_what_cannot(snapshots):
    snapshots.settings = snapshots.settings.model_copy(update={"max_bundles_per_run": 1})

    summary, found = snapshots.show(action="drain", broker="a:1", reason="new disks")

    assert {found[name(1)], found[name(2)]} == {"b:1", "c:1"}
    again, _ = snapshots.show(action="drain", broker=["a:1", "a:1"], reason="new disks")
    assert again.bundles_taken == summary.bundles_taken == 2
    assert (found[SYSTEM], found[HEARTBEAT], found[EMPTY]) == ("system_namespace", "system_namespace", "no_topic")
    assert summary.by_hand is not None
    assert summary.by_hand.scores["a:1"] == pytest.approx((40.0, 0.0))


@pytest.mark.parametrize(
    ("form", "given", "reason"),
    [
        ({"action": "drain", "broker": "z:1"}, {}, Reason.UNKNOWN_NAME),
        ({"action": "drain", "broker": "a:1"}, {"quarantined": ["b:1", "c:1"]}, Reason.LAST_BROKER),
        ({"action": "fill", "broker": "b:1"}, {"quarantined": ["b:1"]}, Reason.BROKER_QUARANTINED),
        ({"action": "undo", "run": "../../etc"}, {}, Reason.FILE_MISSING),
        ({"action": "undo", "run": "20261122T120000.000000Z-00000000"}, {}, Reason.FILE_MISSING),
    ],
)
def test_wrong_drain_fill_or_undo_is_refused(snapshots, form, given, reason):
    snapshots.quarantined = given.get("quarantined", [])

    with pytest.raises(RebalancerError) as refused:
        snapshots.show(**form, reason="why")

    assert refused.value.reason is reason


def drained(snapshots: Snapshots, **drains: Drain) -> RunInput:
    marks = {f"{broker}:1": drain for broker, drain in drains.items()}
    state = {"version": 1, "brokers": {broker: drain.model_dump(mode="json") for broker, drain in marks.items()}}
    run = snapshots.take(drains=state)
    return RunInput.read(run.uri)


def served(snapshots: Snapshots, *strategy: CandidateMove, **drains: Drain) -> Any:
    fired = Decision("b:1", Reason.FIRED, pair=0, destination="c:1")
    return planned(drained(snapshots, **drains), [fired], strategy)


def fate(moves: list[CandidateMove]) -> dict[str, str | None]:
    return {move.bundle: move.destination if move.is_taken else str(move.reason) for move in moves}


def strategy_move(bundle: str, source: str, destination: str) -> CandidateMove:
    sample = BundleSample(source, bundle, msg_throughput=10.0)
    return CandidateMove.new(
        sample, pair=0, rank=0, measure=Measure.THROUGHPUT, reason=Reason.TAKEN, destination=destination
    )


def test_every_run_serves_a_drain_first_and_within_the_caps(snapshots):
    snapshots.settings = snapshots.settings.model_copy(update={"max_bundles_per_run": 2})

    found = served(snapshots, strategy_move(name(4), "b:1", "c:1"), a=DRAIN)

    moves = fate(found.moves)
    assert {moves[name(1)], moves[name(2)]} == {"b:1", "c:1"}
    assert moves[name(4)] == "cap_run"
    progress = found.drain_progress["a:1"]
    assert (progress.bundles, progress.moving, progress.bundles_left) == (5, 2, 0)
    assert progress.stay == {"system_namespace": 2, "no_topic": 1}
    assert set(progress.named) == {SYSTEM, HEARTBEAT, EMPTY}
    assert [(each.source, each.reason) for each in found.decisions] == [("a:1", "drain"), ("b:1", "fired")]
    snapshots.settings = snapshots.settings.model_copy(update={"max_bundles_per_run": 1})
    seen: list[float] = []

    def strategy(arriving: ArrivingTraffic) -> Proposal:
        seen.extend(traffic[Measure.THROUGHPUT] for traffic in arriving.values())
        return Proposal([], lambda _: SourceReport([]))

    plan_with_strategy(drained(snapshots, a=DRAIN), strategy)
    assert seen == [20.0]


def test_no_drained_broker_is_a_destination(snapshots):
    found = served(snapshots, a=DRAIN, b=DRAIN)

    assert {bundle: end for bundle, end in fate(found.moves).items() if bundle in (name(1), name(2), name(4))} == {
        name(1): "c:1",
        name(2): "c:1",
        name(4): "c:1",
    }


def test_a_drain_waits_for_the_grace_period_unless_that_is_overruled(snapshots):
    snapshots.unloaded = {name(1): timedelta(minutes=1)}
    at_once = DRAIN.model_copy(update={"overrule": (Overrule.GRACE_PERIOD,)})

    held, leaving = served(snapshots, a=DRAIN), served(snapshots, a=at_once)

    assert (held.drain_progress["a:1"].bundles_left, held.drain_progress["a:1"].stay["recently_unloaded"]) == (1, 1)
    assert leaving.drain_progress["a:1"].moving == 2


@pytest.mark.parametrize(
    ("minutes", "owner", "bundles"),
    [(3, "a:1", 6), (5, "a:1", 5), (3, "b:1", 5)],
    ids=["just come", "reported by now", "went astray"],
)
def test_a_broker_is_not_empty_while_its_report_may_lack_what_has_just_come(snapshots, minutes, owner, bundles):
    snapshots.unloaded = dict.fromkeys((name(1), name(7)), timedelta(minutes=minutes))
    snapshots.ended = {"source": "b:1", "destination": "a:1", "outcome": "moved", "owner": owner}
    moved = served(snapshots, a=DRAIN.model_copy(update={"overrule": (Overrule.GRACE_PERIOD,)})).drain_progress["a:1"]
    assert (moved.bundles, moved.moving, moved.bundles_left) == (bundles, 2, bundles - 5)


@pytest.mark.parametrize(
    ("bundle", "source", "outcome", "bundles"),
    [
        (7, "a:1", "", 6),
        (7, "a:1", "unknown_owner", 6),
        (7, "b:1", "interrupted", 6),
        (4, "a:1", "interrupted", 5),
        (4, "b:1", "interrupted", 6),
        (7, "b:1", "stopped", 5),
    ],
    ids=["killed", "unknown", "on its way here", "arrived elsewhere", "its source may be late", "never begun"],
)
def test_a_bundle_whose_move_has_no_known_end_may_still_be_on_a_drained_broker(
    snapshots, bundle, source, outcome, bundles
):
    snapshots.unloaded = {name(bundle): timedelta(minutes=3)}
    ends = ("a:1", "b:1") if source == "a:1" else ("b:1", "a:1")
    snapshots.ended = {"source": ends[0], "destination": ends[1], "outcome": outcome}
    progress = served(snapshots, a=DRAIN).drain_progress["a:1"]
    assert progress.bundles == bundles


@pytest.mark.parametrize(
    ("limit", "overrule", "fates"),
    [
        (30.0, (), {"b:1", "c:1"}),
        (29.0, (), {"would_overload"}),
        (9.0, (), {"would_overload"}),
        (29.0, (Overrule.OVERLOAD,), {"b:1", "c:1"}),
    ],
)
def test_a_run_that_serves_a_drain_overloads_no_broker(snapshots, limit, overrule, fates):
    snapshots.owned["a:1"][name(3)] = 0.0
    snapshots.settings = snapshots.settings.model_copy(update={"overloaded_threshold": limit})

    found = served(snapshots, a=DRAIN.model_copy(update={"overrule": overrule}))

    moves = fate(found.moves)
    assert {moves[name(1)], moves[name(2)]} == fates
    assert moves[name(3)] in {"b:1", "c:1"}  # it has no traffic
    assert found.drain_progress["a:1"].bundles_left == (2 if fates == {"would_overload"} else 0)


class WithBusyIdler(Snapshots):
    """Its broker `d` has no bundles, and a CPU at 80 %: the first choice of placement, which goes by message rates."""

    def _brokers(self) -> Any:
        rows = super()._brokers().to_pylist()
        return table([row | {"cpu_usage": 80.0} if row["broker"] == "d:1" else row for row in rows], BROKERS)


@pytest.mark.parametrize(
    ("limit", "overrule", "goes_to"),
    [(101.0, (), "d:1"), (85.0, (), "c:1"), (25.0, (), "would_overload"), (85.0, (Overrule.OVERLOAD,), "d:1")],
)
def test_a_bundle_goes_to_the_coldest_with_room_if_the_broker_of_placement_has_none_as_the_plan_showed(
    tmp_path, limit, overrule, goes_to
):
    snapshots = WithBusyIdler(tmp_path, {"a": {name(1): 20.0}, "b": {name(4): 60.0}, "c": {name(5): 10.0}, "d": {}})
    snapshots.settings = snapshots.settings.model_copy(update={"overloaded_threshold": limit})

    _, shown = snapshots.show(action="drain", broker="a:1", reason="new disks", overrule=overrule)

    assert shown == {name(1): goes_to}
    drain = DRAIN.model_copy(update={"overrule": overrule})
    assert fate(served(snapshots, a=drain).moves)[name(1)] == goes_to


@pytest.mark.parametrize(("limit", "fates"), [(59.0, {"would_overload"}), (61.0, {"c:1"})])
def test_strategy_beside_a_drain_overloads_no_broker(tmp_path, limit, fates):
    # The drain brings c from 10 to 30; the strategy would bring another 30, in two halves.
    hot = {name(4): 60.0, name(5): 15.0, name(6): 15.0}
    snapshots = Snapshots(tmp_path, {"a": {name(1): 20.0}, "b": hot, "c": {name(7): 10.0}})
    snapshots.settings = snapshots.settings.model_copy(update={"overloaded_threshold": limit})
    wanted = [strategy_move(name(number), "b:1", "c:1")._replace(rank=number) for number in (5, 6)]

    moves = fate(served(snapshots, *wanted, a=DRAIN).moves)

    assert moves[name(1)] == "c:1"
    assert moves[name(5)] == "c:1"
    assert {moves[name(6)]} == fates


def test_overruling_of_one_drain_spares_the_others(snapshots):
    snapshots.unloaded = {name(1): timedelta(minutes=1), name(4): timedelta(minutes=1)}
    at_once = DRAIN.model_copy(update={"overrule": (Overrule.GRACE_PERIOD,)})

    found = served(snapshots, a=at_once, b=DRAIN).drain_progress

    assert (found["a:1"].moving, found["a:1"].overrule) == (2, ("grace_period",))
    assert (found["b:1"].moving, found["b:1"].stay, found["b:1"].overrule) == (0, {"recently_unloaded": 1}, ())


def test_a_new_broker_is_filled_to_the_mean_from_the_hottest_with_few_bundles(tmp_path):
    hot, warm = {name(n): 10.0 for n in range(6)}, {name(10 + n): 4.0 for n in range(10)}
    snapshots = Snapshots(tmp_path, {"a": hot | {name(30): 1.0, name(31): 0.0, name(32): 0.4}, "b": warm, "c": {}})
    snapshots.quarantined = [name(5)]

    summary, found = snapshots.show(action="fill", broker="c:1")

    # The mean is 33.8: three of 10 and a small one from the broker at 61; the broker at 40 has none that still fits.
    assert found == {name(4): "c:1", name(3): "c:1", name(2): "c:1", name(32): "c:1"}
    assert summary.by_hand is not None
    assert summary.by_hand.scores == {"a:1": pytest.approx((61.4, 31.0)), "c:1": pytest.approx((0.0, 30.4))}
    snapshots.settings = snapshots.settings.model_copy(update={"max_bundles_per_run": 2, "max_bundles_per_broker": 3})
    assert snapshots.show(action="fill", broker="c:1")[1] == {name(4): "c:1", name(3): "c:1"}
    policy = IsolationPolicy(name="p", namespaces=("t/n",), primary=("b:1",), secondary=())
    snapshots.policies = Policies(isolation=(policy,))
    assert snapshots.show(action="fill", broker="c:1")[1] == {}


def test_the_mean_to_which_a_broker_is_filled_is_of_brokers_that_are_not_drained(tmp_path):
    # The mean of a and c is 30. With b, which is empty, it would be 20.
    snapshots = Snapshots(tmp_path, {"a": {name(n): 15.0 for n in range(4)}, "b": {}, "c": {}})
    drains = {"version": 1, "brokers": {"b:1": DRAIN.model_dump(mode="json")}}

    _, found = snapshots.show(drains, action="fill", broker="c:1")

    assert found == {name(3): "c:1", name(2): "c:1"}


def undone(snapshots: Snapshots, *moves: MoveOutcome) -> str:
    run = snapshots.take()
    Outcome(
        plan_id=run.name,
        cluster="east",
        airflow_run_id="r",
        ended_at=NOW,
        verdict=Reason.OPEN,
        moves=moves,
        splits=tuple(
            SplitOutcome(bundle=name(n), positions=(n,), reason=reason)
            for n, reason in ((40, Reason.SPLIT), (41, Reason.NOT_SPLIT))
        ),
    ).write(run)
    return run.name


def moved(bundle: str, source: str, owner: str, reason: Reason = Reason.MOVED) -> MoveOutcome:
    return MoveOutcome(bundle=bundle, source=source, destination="a:1", owner=owner, reason=reason, attempts=1)


def test_a_run_is_undone_as_far_as_nothing_moved_since(snapshots):
    run = undone(
        snapshots,
        moved(name(1), "b:1", "a:1"),
        moved(name(2), "gone:1", "a:1"),
        moved(name(4), "c:1", "a:1"),
        moved(name(5), "b:1", "c:1", Reason.ASTRAY),
        moved(name(6), "b:1", "a:1"),
        moved(name(7), "b:1", "", Reason.UNREACHABLE),
    )
    snapshots.unloaded = {name(1): timedelta(minutes=1)}

    summary, found = snapshots.show(action="undo", run=run)

    assert summary.by_hand is not None
    assert summary.by_hand.unknown == (name(6),)
    assert found == {
        name(1): "b:1",
        name(2): "destination_gone",
        name(4): "owner_changed",
        name(5): "b:1",
        name(6): "unknown_name",
        name(40): "range_gone",
    }
