from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.include.pulsar_rebalancer.decide.snapshots import Snapshots, name

from pulsar_rebalancer.decide.planning import Plan, ProposalSources, plan
from pulsar_rebalancer.decide.sources.returns import return_proposal
from pulsar_rebalancer.isolation import IsolationPolicy, Policies
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.snapshot import Snapshot

MINUTE = timedelta(minutes=1)
OWNED = {
    "a": {name(1): 10.0, name(2): 30.0},
    "b": {name(3): 20.0, name(4): 5.0, name(5): 5.0, name(6): 7.0},
    "c": {name(7): 1.0},
}
HOME = "c:1"
MINE = (name(1), name(2), name(3), name(7), name(99))
BACK = {name(1): HOME, name(2): HOME, name(3): HOME}


def brought_back(tmp_path: Path, **given: Any) -> tuple[Plan | None, dict[str, str]]:
    snapshots = Snapshots(tmp_path, given.pop("owned", OWNED), **given.pop("settings", {}))
    bundles, home = given.pop("bundles", MINE), given.pop("home", HOME)
    for attribute, value in given.items():
        setattr(snapshots, attribute, value)
    snapshot = Snapshot(snapshots.take())
    wanted = return_proposal(snapshot, bundles, home, "o")
    if wanted is None:
        return None, {}
    brokers = snapshot.read_broker_samples({})
    made = plan(ProposalSources(fallback=lambda: wanted), snapshot.settings, snapshot.policies, brokers)
    return made, {move.bundle: str(move.destination if move.is_taken else move.reason) for move in made.moves}


def test_bundles_go_home(tmp_path):
    made, found = brought_back(tmp_path)

    assert found == BACK, "neither what is at home nor what has no broker"
    assert made is not None
    assert [(move.pair, move.rank) for move in made.moves] == [(-2, 0), (-2, 2), (-1, 1)]
    assert [(each.source, each.pair, each.target) for each in made.decisions] == [("a:1", -2, 40.0), ("b:1", -1, 20.0)]
    assert {each.reason for each in made.decisions} == {Reason.GIVE_BACK}
    assert (made.sentence, made.source_traffic) == ("Bundles return to c:1", {"a:1": 40.0, "b:1": 37.0})


def test_the_parts_of_a_bundle_go_where_it_was(tmp_path):
    def part(lower: int, upper: int, namespace: str = "t/n") -> str:
        return f"{namespace}/0x{lower:08x}_0x{upper:08x}"

    mine = (part(4, 8), part(16, 24))
    parts = {part(4, 6): 5.0, part(6, 8): 3.0, part(20, 24): 2.0}
    others = {part(0, 4): 1.0, part(8, 16): 1.0, part(24, 32): 1.0, part(4, 6, "t/other"): 1.0}
    _, found = brought_back(tmp_path, owned={"a": parts | others, "c": {}}, bundles=mine)

    assert found == dict.fromkeys(parts, HOME)


def test_a_bundle_that_would_raise_its_home_above_the_highest_score_stays(tmp_path):
    _, found = brought_back(tmp_path, settings={"overloaded_threshold": 45})

    assert found == BACK | {name(3): "would_overload"}


@pytest.mark.parametrize(
    ("ago", "plan", "fate"),
    [(5 * MINUTE, "n", "c:1"), (5 * MINUTE, "p", "recently_unloaded"), (31 * MINUTE, "p", "c:1")],
)
def test_the_grace_period_does_not_count_for_what_moved_before_its_home_was_back(tmp_path, ago, plan, fate):
    a_wrong_clock = {"c:1": timedelta(days=-1)}
    _, found = brought_back(tmp_path, unloaded={name(2): ago}, ended={"plan_id": plan}, started=a_wrong_clock)

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
def test_a_bundle_that_missed_its_home_is_moved_again_in_two_more_runs(tmp_path, ended, fate):
    _, found = brought_back(tmp_path, unloaded={name(2): MINUTE}, onto="c:1", ended=ended)

    assert found == BACK | {name(2): fate}


def test_policies_and_exclusions_apply(tmp_path):
    reserved = IsolationPolicy(name="p", namespaces=("t/n",), primary=("[ab]",))
    _, found = brought_back(tmp_path / "pool", policies=Policies(isolation=(reserved,)))
    assert found == dict.fromkeys(BACK, "policy_forbids")

    _, found = brought_back(tmp_path / "group", policies=Policies(groups={"t/n": "g"}), owned=OWNED | {"c": {}})
    assert sorted(found.values()).count("anti_affinity") == 2

    _, found = brought_back(tmp_path / "excluded", settings={"excluded_bundles": [name(2)]})
    assert found == BACK | {name(2): "bundle_excluded"}

    _, found = brought_back(tmp_path / "left out", settings={"excluded_brokers": ["c:1"]})
    assert found == dict.fromkeys(BACK, "no_destination")

    _, found = brought_back(tmp_path / "quarantined", quarantined=["a:1"])
    assert found == BACK | dict.fromkeys((name(1), name(2)), "broker_quarantined")
