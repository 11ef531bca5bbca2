"""Bundles go back to the brokers that had them before, those with the most traffic first, if they still fit."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.include.pulsar_rebalancer.decide.by_hand.snapshots import Snapshots, name

from pulsar_rebalancer.decide.by_hand.returning import bring_back, restore
from pulsar_rebalancer.errors import PlanError
from pulsar_rebalancer.policies.cluster_policies import Policies
from pulsar_rebalancer.policies.isolation import IsolationPolicy
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.snapshot import Snapshot
from pulsar_rebalancer.state.roll_document import Roll
from pulsar_rebalancer.state.state_documents import DecisionState, Remembered

if TYPE_CHECKING:
    from pathlib import Path

    from pulsar_rebalancer.decide.by_hand.filling import Filling

MINUTE = timedelta(minutes=1)
OWNED = {
    "a": {name(1): 10.0, name(2): 30.0},
    "b": {name(3): 20.0, name(4): 5.0, name(5): 5.0, name(6): 7.0},
    "c": {},
}
HOME = {name(1): "c:1", name(2): "c:1", name(3): "c:1", name(4): "a:1", name(5): "b:1", name(99): "c:1"}
BACK = {name(1): "c:1", name(2): "c:1", name(3): "c:1", name(4): "a:1"}
ROLL = Roll(id="f").model_dump(mode="json")


def brought_back(tmp_path: Path, **given: Any) -> tuple[Filling | None, dict[str, str]]:
    """The plan, and the destination of each bundle, or the reason why it stays."""
    snapshots = Snapshots(tmp_path, given.pop("owned", OWNED), **given.pop("settings", {}))
    home, before = given.pop("home", HOME), given.pop("before", {})
    for attribute, value in given.items():
        setattr(snapshots, attribute, value)
    plan = bring_back(Snapshot(snapshots.take(**before)), home)
    moves = plan.moves if plan else []
    return plan, {move.bundle: str(move.destination if move.taken else move.reason) for move in moves}


def test_bundles_go_home(tmp_path: Path) -> None:
    plan, found = brought_back(tmp_path)

    assert found == BACK, "neither what is at home nor what has no home or no broker"
    assert plan is not None
    assert [(move.pair, move.rank) for move in plan.moves] == [(-2, 0), (-2, 2), (-1, 1), (-1, 3)]
    assert [(each.source, each.pair, each.target) for each in plan.decisions] == [("a:1", -2, 40.0), ("b:1", -1, 25.0)]
    assert {each.reason for each in plan.decisions} == {Reason.GIVE_BACK}
    assert (plan.sentence, plan.traffic) == ("Brought back: bundles of a:1, c:1", {"a:1": 40.0, "b:1": 37.0})


def test_nothing_is_planned_if_every_bundle_is_at_home(tmp_path: Path) -> None:
    assert brought_back(tmp_path / "home", home={name(1): "a:1"}) == (None, {})
    assert brought_back(tmp_path / "partly", home=HOME | {name(2): "d:1"})[1] == BACK | {name(2): "destination_gone"}


def test_caps_keep_the_bundles_with_the_most_traffic_of_all_brokers(tmp_path: Path) -> None:
    _, found = brought_back(tmp_path, settings={"max_bundles_per_run": 2})

    assert found == BACK | dict.fromkeys((name(1), name(4)), "cap_run")


def test_two_bundles_that_change_places_are_two_moves(tmp_path: Path) -> None:
    home = {name(2): "b:1", name(3): "a:1"}
    _, found = brought_back(tmp_path, home=home, settings={"max_bundles_per_run": 1})

    assert found == {name(2): "b:1", name(3): "cap_run"}


def test_a_bundle_that_would_raise_its_home_above_the_highest_score_stays(tmp_path: Path) -> None:
    _, found = brought_back(tmp_path, settings={"overloaded_threshold": 45})

    assert found == BACK | {name(3): "would_overload"}


def test_what_moved_lately_counts_although_no_report_shows_it(tmp_path: Path) -> None:
    # The CPU of c was measured before its bundle came, which brings 2/7 of the traffic: 21 of 75 points.
    owned = {"a": {name(1): 40.0}, "b": {name(2): 30.0, name(4): 5.0}, "c": {name(3): 30.0}}
    given: Any = {"owned": owned, "home": {name(1): "c:1", name(4): "a:1"}, "looks_idle": ["c:1"], "onto": "c:1"}
    for minutes, fate in ((3, "would_overload"), (5, "c:1")):
        unloaded, settings = {name(3): minutes * MINUTE}, {"overloaded_threshold": 60}
        _, found = brought_back(tmp_path / str(minutes), **given, unloaded=unloaded, settings=settings)
        assert found.get(name(1)) == fate


@pytest.mark.parametrize(
    ("ago", "started", "fate"),
    [
        (5 * MINUTE, 3 * MINUTE, "c:1"),
        (5 * MINUTE, 6 * MINUTE, "recently_unloaded"),
        (31 * MINUTE, 60 * MINUTE, "c:1"),
    ],
)
def test_the_grace_period_does_not_count_for_what_moved_before_its_home_started(
    tmp_path: Path, ago: timedelta, started: timedelta, fate: str
) -> None:
    _, found = brought_back(tmp_path, unloaded={name(2): ago}, started={"c:1": started})

    assert found == BACK | {name(2): fate}


@pytest.mark.parametrize(
    ("ended", "fate"),
    [
        ({"outcome": "astray"}, "c:1"),
        ({"outcome": "astray", "tries": 2}, "c:1"),
        ({"outcome": "astray", "tries": 3}, "astray"),
        ({"outcome": "interrupted", "tries": 2}, "c:1"),
        ({}, "c:1"),
        ({"outcome": "moved", "owner": "c:1"}, "recently_unloaded"),
        ({"outcome": "astray", "destination": "b:1"}, "recently_unloaded"),
    ],
)
def test_a_bundle_that_missed_its_home_is_moved_again_in_two_more_runs(
    tmp_path: Path, ended: dict[str, Any], fate: str
) -> None:
    _, found = brought_back(tmp_path, unloaded={name(2): MINUTE}, onto="c:1", ended=ended)

    assert found == BACK | {name(2): fate}


@pytest.mark.parametrize(
    ("ended", "fate"),
    [({"outcome": "astray", "tries": 3}, "astray"), ({"outcome": "astray"}, "c:1"), ({"outcome": "moved"}, "c:1")],
)
def test_tries_count_beyond_the_grace_period(tmp_path: Path, ended: dict[str, Any], fate: str) -> None:
    given: Any = {"unloaded": {name(2): MINUTE}, "onto": "c:1", "ended": ended}
    _, found = brought_back(tmp_path, **given, settings={"grace_period_minutes": 0})

    assert found == BACK | {name(2): fate}


@pytest.mark.parametrize(("rolling", "fate"), [(True, "c:1"), (False, "recently_unloaded")])
def test_what_a_roll_drained_returns_although_its_home_has_not_restarted(
    tmp_path: Path, rolling: bool, fate: str
) -> None:
    given: Any = {"unloaded": {name(2): MINUTE}, "ended": {"source": "c:1", "outcome": "moved"}}
    _, found = brought_back(tmp_path, before={"roll": ROLL} if rolling else {}, **given)

    assert found == BACK | {name(2): fate}


@pytest.mark.parametrize("before", [{"roll": ROLL}, {}], ids=["in a roll", "otherwise"])
def test_a_plan_in_which_all_bundles_stay_says_why(tmp_path: Path, before: dict[str, Any]) -> None:
    plan, found = brought_back(tmp_path, before=before, home={name(1): "d:1"})

    assert found == {name(1): "destination_gone"}
    assert plan is not None
    assert (plan.decisions, plan.sentence) == ([], "Not brought back: destination_gone 1")


REMEMBERED = {name(1): ("a:1", 20.0), name(2): ("b:1", 20.0), name(3): ("c:1", 12.0), name(4): ("c:1", 8.0)}


def remembering(snapshots: Snapshots, placement: dict[str, tuple[str, float]]) -> Snapshots:
    rows = [{"bundle": bundle, "broker": at, "msg_throughput": traffic} for bundle, (at, traffic) in placement.items()]
    file = snapshots.storage.state / "placement-6-0a1b2c3d.parquet"
    file.write_table(pa.Table.from_pylist(rows))
    snapshots.state = DecisionState(placement=Remembered(file=file.name))
    return snapshots


def restored(tmp_path: Path, owned: dict[str, dict[str, float]], *started: str, **given: Any) -> dict[str, str] | None:
    """What becomes of each bundle after some brokers have started; None if nothing is restored."""
    snapshots = Snapshots(tmp_path, owned, **given.pop("settings", {}))
    snapshots = remembering(snapshots, given.pop("remembered", REMEMBERED))
    snapshots.started = dict.fromkeys(started, given.pop("ago", 5 * MINUTE))
    snapshots.state = DecisionState(placement=Remembered(file=given.pop("file", snapshots.state.placement.file)))
    plan = restore(Snapshot(snapshots.take()))
    return {move.bundle: str(move.destination if move.taken else move.reason) for move in plan.moves} if plan else None


AWAY = {"a": {name(1): 20.0, name(3): 12.0}, "b": {name(2): 20.0, name(4): 8.0}, "c": {}}
"""Broker c was away, and has come back."""


def test_a_broker_that_was_away_gets_its_bundles_back(tmp_path: Path) -> None:
    assert restored(tmp_path, AWAY, "c:1") == {name(3): "c:1", name(4): "c:1"}


def test_only_brokers_that_started_lately_do(tmp_path: Path) -> None:
    moved: Any = {"a": {name(1): 20.0, name(2): 20.0}, "b": {}, "c": {name(3): 12.0, name(4): 8.0}}
    assert restored(tmp_path / "none", moved) is None
    assert restored(tmp_path / "other", moved, "c:1") is None
    assert restored(tmp_path / "long ago", moved, "b:1", ago=31 * MINUTE) is None
    assert restored(tmp_path / "lately", moved, "b:1") == {name(2): "b:1"}


def test_after_a_cold_start_all_do(tmp_path: Path) -> None:
    mixed: Any = {"a": {name(2): 20.0, name(4): 8.0}, "b": {name(3): 12.0, name(1): 20.0}, "c": {}}
    home = {bundle: broker for bundle, (broker, _) in REMEMBERED.items()}
    assert restored(tmp_path, mixed, "a:1", "b:1", "c:1") == home


def test_a_bundle_whose_traffic_has_grown_too_much_stays(tmp_path: Path) -> None:
    # Of the remembered traffic c had a third, so it may have 25.7 of these 70: not 22 and 8.
    grown: Any = AWAY | {"a": {name(1): 20.0, name(3): 22.0}}
    assert restored(tmp_path, grown, "c:1") == {name(3): "c:1", name(4): "home_full"}
    # What leaves c makes room there, and what stays is still on b.
    changed: Any = {"a": {name(3): 12.0}, "b": {name(2): 20.0, name(4): 8.0}, "c": {name(1): 20.0}}
    found = restored(tmp_path / "room", changed, "a:1", "c:1")
    assert found == {name(1): "a:1", name(3): "c:1", name(4): "c:1"}


def test_a_bundle_that_stays_takes_no_room_at_its_home_but_where_it_is(tmp_path: Path) -> None:
    # A third of 74 and a tenth more is 27.1: the largest does not fit on a, stays on c, and fills it.
    owned: Any = {"a": {name(3): 12.0}, "b": {name(2): 20.0, name(4): 8.0}, "c": {name(1): 34.0}}
    stay = dict.fromkeys((name(1), name(3), name(4)), "home_full")
    assert restored(tmp_path / "source", owned, "a:1", "c:1") == stay
    # The excluded one would take 12 of the 18.6 bytes/s that c may have.
    owned = AWAY | {"b": {name(2): 20.0, name(4): 8.0, name(5): 1.0}}
    known: Any = {name(3): ("c:1", 12.0), name(4): ("c:1", 8.0), name(5): ("a:1", 52.0)}
    excluded = {"excluded_bundles": [name(3)]}
    found = restored(tmp_path / "home", owned, "c:1", remembered=known, settings=excluded)
    assert found == {name(3): "bundle_excluded", name(4): "c:1"}


def test_parts_of_a_bundle_go_where_it_was(tmp_path: Path) -> None:
    whole, part = "t/n/0x00000004_0x00000008", "t/n/0x00000006_0x00000008"
    known = {bundle: at for bundle, at in REMEMBERED.items() if bundle != name(4)} | {whole: ("c:1", 8.0)}
    owned: Any = AWAY | {"b": {name(2): 20.0, part: 5.0}}
    assert restored(tmp_path, owned, "c:1", remembered=known) == {name(3): "c:1", part: "c:1"}


def test_without_a_placement_nothing_is_restored(tmp_path: Path) -> None:
    assert restored(tmp_path / "none", AWAY, "c:1", file="") is None
    assert restored(tmp_path / "gone", AWAY, "c:1", file="placement-5-0a1b2c3d.parquet") is None
    assert restored(tmp_path / "joined", AWAY | {"d": {}}, "d:1") is None


def test_a_person_may_ask_for_it_for_some_brokers_or_all(tmp_path: Path) -> None:
    mixed: Any = {
        "a": {name(2): 20.0, name(4): 8.0},
        "b": {name(3): 12.0, name(9): 20.0},
        "c": {name(1): 5.0, name(5): 1.0},
    }
    gone_and_home = {name(9): ("d:1", 20.0), name(5): ("c:1", 1.0)}
    snapshots = remembering(Snapshots(tmp_path, mixed), REMEMBERED | gone_and_home)
    there = {name(3): "c:1", name(4): "c:1"}

    assert snapshots.show(action="restore", broker="c:1")[1] == there
    every = there | {name(1): "a:1", name(2): "b:1", name(9): "destination_gone"}
    assert snapshots.show(action="restore")[1] == every

    with pytest.raises(PlanError) as refused:
        snapshots.show(action="restore", broker="d:1")
    assert refused.value.reason is Reason.UNKNOWN_DESTINATION
    snapshots.state = DecisionState()
    with pytest.raises(PlanError) as refused:
        snapshots.show(action="restore")
    assert refused.value.reason is Reason.NOTHING_REMEMBERED


def test_policies_and_exclusions_apply(tmp_path: Path) -> None:
    reserved = IsolationPolicy(name="p", namespaces=("t/n",), primary=("[ab]",))
    _, found = brought_back(tmp_path / "pool", policies=Policies(isolation=(reserved,)))
    assert found == BACK | dict.fromkeys((name(1), name(2), name(3)), "policy_forbids")

    _, found = brought_back(tmp_path / "group", policies=Policies(groups={"t/n": "g"}))
    assert sorted(found.values()).count("anti_affinity") == 3

    _, found = brought_back(tmp_path / "excluded", settings={"excluded_bundles": [name(2)]})
    assert found == BACK | {name(2): "bundle_excluded"}

    _, found = brought_back(tmp_path / "left out", settings={"excluded_brokers": ["c:1"]})
    assert found == BACK | dict.fromkeys((name(1), name(2), name(3)), "no_destination")

    _, found = brought_back(tmp_path / "quarantined", quarantined=["a:1"])
    assert found == {name(3): "c:1", name(4): "no_destination"} | dict.fromkeys(
        (name(1), name(2)), "broker_quarantined"
    )
