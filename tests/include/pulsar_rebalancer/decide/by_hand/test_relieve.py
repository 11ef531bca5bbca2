"""Hot brokers are relieved: only those, with few bundles, within the rules of all manual plans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.include.pulsar_rebalancer.decide.by_hand.snapshots import NOW, Snapshots, name

from pulsar_rebalancer.errors import PlanError, SettingsError
from pulsar_rebalancer.policies.cluster_policies import Policies
from pulsar_rebalancer.policies.isolation import IsolationPolicy
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.state.manual_plans import Drain

if TYPE_CHECKING:
    from pathlib import Path

# Scores are 90, 82, 60 and 20.
OWNED = {
    "a": {name(1): 50.0, name(2): 16.0, name(3): 14.0, name(4): 10.0},
    "b": {name(5): 70.0, name(6): 12.0},
    "c": {name(7): 60.0},
    "d": {name(8): 20.0},
}


@pytest.fixture
def snapshots(tmp_path: Path) -> Snapshots:
    return Snapshots(tmp_path, OWNED)


def test_only_brokers_above_the_score_lose_bundles_and_no_other_exceeds_it(snapshots: Snapshots) -> None:
    summary, found = snapshots.show(action="relieve", above=75)

    assert found == {name(2): "d:1", name(6): "d:1"}
    assert summary.by_hand is not None
    assert summary.by_hand.scores == {
        "a:1": pytest.approx((90.0, 74.0)),
        "b:1": pytest.approx((82.0, 70.0)),
        "d:1": pytest.approx((20.0, 48.0)),
    }
    assert summary.sentence == "relieve by hand: 2 bundles to move"
    # One of 10 is too little for a, and one of 14 is the smallest that suffices.
    assert snapshots.show(action="relieve", above=78)[1] == {name(3): "d:1", name(6): "d:1"}


def test_a_broker_that_cannot_be_relieved_keeps_all_and_the_plan_says_why(snapshots: Snapshots) -> None:
    summary, found = snapshots.show(action="relieve", above=65)

    # b has to lose 17 points: 12 do not suffice, and 70 fit nowhere.
    assert found == {name(2): "d:1", name(4): "d:1", name(5): "out_of_reach"}
    assert "b:1 stays 17.0 points above 65: bundles of 82.0 points may leave it" in summary.sentence
    assert summary.bundles_passed_over == {Reason.OUT_OF_REACH: 1}


@pytest.mark.parametrize(
    ("change", "fates"),
    [
        ({"excluded_bundles": [name(2)]}, {name(1): "d:1", name(6): "c:1"}),
        ({"excluded_brokers": ["d:1"]}, {name(6): "c:1", name(1): "out_of_reach"}),
        ({"max_bundles_per_run": 1}, {name(6): "d:1", name(1): "out_of_reach"}),
        ({"max_bundles_onto_broker": 1}, {name(2): "d:1", name(6): "c:1"}),
        ({"overloaded_threshold": 40}, {name(6): "d:1", name(1): "out_of_reach"}),
    ],
)
def test_the_rules_of_manual_plans_apply(tmp_path: Path, change: dict[str, Any], fates: dict[str, str]) -> None:
    assert Snapshots(tmp_path, OWNED, **change).show(action="relieve", above=75)[1] == fates


def test_one_bundle_of_an_anti_affinity_group_moves(tmp_path: Path) -> None:
    grouped = {name(1, "g/a"): 31.0, name(2, "g/b"): 29.5}
    snapshots = Snapshots(tmp_path, {"a": grouped | {name(3): 30.0}, "b": {}, "c": {}})
    snapshots.policies = Policies(groups={"g/a": "g", "g/b": "g"})

    _, found = snapshots.show(action="relieve", above=31.5)

    assert found == {name(1, "g/a"): "b:1", name(3): "c:1"}
    overruled = {"overrule": ["anti_affinity"], "reason": "x"}
    # The smallest that suffices next to the largest.
    assert name(3) not in snapshots.show(action="relieve", above=31.5, **overruled)[1]


def test_policies_and_drains_are_respected(snapshots: Snapshots) -> None:
    drains = {"version": 1, "brokers": {"d:1": Drain(at=NOW, by="ada", reason="disks").model_dump(mode="json")}}
    assert snapshots.show(drains, action="relieve", above=75)[1] == {name(6): "c:1", name(1): "out_of_reach"}
    policy = IsolationPolicy(name="p", namespaces=("t/n",), primary=("[a-c]",), secondary=())
    snapshots.policies = Policies(isolation=(policy,))
    assert snapshots.show(action="relieve", above=75)[1] == {name(6): "c:1", name(1): "out_of_reach"}


@pytest.mark.parametrize(
    ("above", "reason", "said"),
    [
        (95, Reason.NONE_ABOVE, "the hottest, a:1, is at 90.0"),
        (15, Reason.OUT_OF_REACH, "room for 0.0"),
    ],
)
def test_a_score_that_leads_to_no_plan_is_refused(
    snapshots: Snapshots, above: float, reason: Reason, said: str
) -> None:
    with pytest.raises(PlanError, match=said) as refused:
        snapshots.show(action="relieve", above=above)

    assert refused.value.reason is reason


@pytest.mark.parametrize("above", [0, -1, 100.5, "nan", "hot", None])
def test_a_score_out_of_range_is_refused(snapshots: Snapshots, above: Any) -> None:
    with pytest.raises(SettingsError, match="above") as refused:
        snapshots.show(action="relieve", above=above)

    assert refused.value.reason in (Reason.WRONG_SETTING, Reason.CONTRADICTION)
