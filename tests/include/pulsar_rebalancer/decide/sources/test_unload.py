from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.include.pulsar_rebalancer.decide.snapshots import Snapshots, fates, name

from pulsar_rebalancer.decide.plan_files import plan_document, plan_text
from pulsar_rebalancer.decide.run_plan import replan
from pulsar_rebalancer.errors import PlanError, SnapshotError
from pulsar_rebalancer.isolation import IsolationPolicy, Policies
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.outcome import ClientGap
from pulsar_rebalancer.run.plan import Summary

OWNED = {
    "a": {name(1): 30.0, name(2): 20.0, name(3, "t/other"): 10.0},
    "b": {name(4): 10.0, name(9, "pulsar/system"): 1.0},
    "c": {name(5): 5.0},
}


@pytest.fixture
def snapshots(tmp_path: Path) -> Snapshots:
    return Snapshots(tmp_path, OWNED)


@pytest.mark.parametrize(
    ("named", "meant"),
    [
        ([name(1)], {name(1): "c:1"}),
        ([name(1), name(1), name(2)], {name(1): "c:1", name(2): "c:1"}),
        (["t/n"], {name(1): "c:1", name(2): "c:1", name(4): "c:1", name(5): "same_broker"}),
        (["t/*"], {name(1): "c:1", name(2): "c:1", name(3, "t/other"): "c:1", name(4): "c:1", name(5): "same_broker"}),
        (["t/n/0x0000000?_*"], {name(1): "c:1", name(2): "c:1", name(4): "c:1", name(5): "same_broker"}),
        ([name(2), name(77)], {name(2): "c:1", name(77): "unknown_name"}),
        ([name(2), "pulsar/system"], {name(2): "c:1", name(9, "pulsar/system"): "system_namespace"}),
        ([name(2), "t/[no]/*"], {name(2): "c:1", "t/[no]/*": "unknown_name"}),
        ([name(2), "t/m", "t/m/*"], {name(2): "c:1", "t/m": "unknown_name", "t/m/*": "unknown_name"}),
    ],
    ids=["bundle", "list", "namespace", "pattern", "range", "gone", "system", "brackets are no pattern", "nothing"],
)
def test_which_bundles_are_meant(snapshots: Snapshots, named: list[str], meant: dict[str, str]) -> None:
    summary, found = snapshots.show(action="unload", bundles=named, destination="c:1")

    assert found == meant
    gone = sorted(entry for entry, fate in meant.items() if fate == "unknown_name")
    assert summary.by_hand is not None
    assert list(summary.by_hand.unknown) == gone == list(found)[len(found) - len(gone) :]


def test_placement_says_where_to_and_sees_what_it_placed_before(tmp_path: Path) -> None:
    snapshots = Snapshots(tmp_path, {"a": {name(n): 10.0 for n in range(8)}, "b": {}, "c": {}, "d": {name(9): 80.0}})
    snapshots.settings = snapshots.settings.model_copy(update={"overloaded_threshold": 70.0})

    _, found = snapshots.show(action="unload", bundles=[name(n) for n in range(6)])

    assert sorted(found.values()) == ["b:1"] * 3 + ["c:1"] * 3


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        ({"bundles": [name(77)]}, Reason.UNKNOWN_NAME),
        ({"bundles": ["nobody/*"]}, Reason.UNKNOWN_NAME),
        ({"bundles": [name(1)], "destination": "z:1"}, Reason.UNKNOWN_NAME),
        ({"bundles": [name(1)], "destination": "b:1"}, Reason.BROKER_QUARANTINED),
        ({"bundles": ["t/*"], "destination": "c:1"}, Reason.WOULD_OVERLOAD),
    ],
)
def test_wrong_unload_is_refused(tmp_path: Path, form: dict[str, Any], reason: Reason) -> None:
    snapshots = Snapshots(tmp_path, OWNED, overloaded_threshold=50)
    snapshots.quarantined = ["b:1"]

    with pytest.raises(PlanError) as refused:
        snapshots.show(action="unload", **form)

    assert refused.value.reason is reason
    if reason is Reason.WOULD_OVERLOAD:
        _, found = snapshots.show(action="unload", **form, overrule=["overload"], reason="?")
        assert found[name(1)] == "c:1"


def _isolated(snapshots: Snapshots) -> None:
    policy = IsolationPolicy(name="p", namespaces=("t/n",), primary=("b:1",), secondary=())
    snapshots.policies = Policies(isolation=(policy,))


def _grouped(snapshots: Snapshots) -> None:
    snapshots.policies = Policies(groups={"t/n": "g", "t/other": "g"})


OVERRULED: dict[str, tuple[dict[str, Any], str]] = {
    "policies": ({}, "policy_forbids"),
    "anti_affinity": ({}, "anti_affinity"),
    "topic_ceiling": ({"max_broker_topics": 2}, "too_many_topics"),
    "exclusions": ({"excluded_namespaces": "t/n"}, "namespace_excluded"),
    "caps": ({"max_bundles_per_run": 1}, "cap_run"),
    "grace_period": ({}, "recently_unloaded"),
}


@pytest.mark.parametrize("overruled", OVERRULED)
def test_rules_hold_unless_overruled(tmp_path: Path, overruled: str) -> None:
    settings, reason = OVERRULED[overruled]
    snapshots = Snapshots(tmp_path, OWNED | {"c": {name(5): 5.0, name(6, "t/o"): 1.0, name(7, "t/o"): 1.0}}, **settings)
    snapshots.unloaded = {name(2): timedelta(minutes=1)} if overruled == "grace_period" else {}
    {"policies": _isolated, "anti_affinity": _grouped}.get(overruled, lambda _: None)(snapshots)
    form = {"action": "unload", "bundles": [name(1), name(2)], "destination": "c:1"}

    _, stop_reason = snapshots.show(**form)
    summary, found = snapshots.show(**form, overrule=[overruled], reason="the night shift asked for it")

    assert stop_reason[name(2)] == reason
    assert found == {name(1): "c:1", name(2): "c:1"}
    assert summary.by_hand is not None
    assert (summary.by_hand.by, summary.by_hand.request.reason) == ("ada", "the night shift asked for it")


def test_a_plan_without_effect_says_why_until_when_and_what_may_be_overruled(snapshots: Snapshots) -> None:
    snapshots.unloaded = {name(1): timedelta(minutes=1)}
    snapshots.settings = snapshots.settings.model_copy(update={"grace_period_minutes": 30})

    summary, _ = snapshots.show(action="unload", bundles=[name(1)], destination="c:1")

    run = snapshots.storage.run_folder(summary.plan_id)
    assert run is not None
    again = summary.collected_at + timedelta(minutes=29)
    why = f"all bundles stay (1 moved recently); bundles moved recently may move again at {again:%H:%M} UTC."
    why += " To move bundles anyway, overrule grace_period."
    assert plan_document(summary, run, {})["no_effect"] == why


@pytest.mark.parametrize("reason", ["system_namespace", "bundle_quarantined", "no_topic"])
def test_some_rules_cannot_be_overruled(snapshots: Snapshots, reason: str) -> None:
    snapshots.quarantined = [name(1)] if reason == "bundle_quarantined" else []
    snapshots.topics = {name(1): 0} if reason == "no_topic" else {}
    bundle = name(9, "pulsar/system") if reason == "system_namespace" else name(1)
    everything = ["policies", "anti_affinity", "topic_ceiling", "exclusions", "caps", "grace_period", "overload"]

    _, found = snapshots.show(action="unload", bundles=[bundle], destination="c:1", overrule=everything, reason="?")

    assert found == {bundle: reason}


def test_a_plan_says_what_goes_what_stays_and_how_brokers_would_be_loaded(tmp_path: Path) -> None:
    snapshots = Snapshots(tmp_path, {"a": {name(n): 1.006 for n in range(21)}, "b": {name(30): 1.006}})

    summary, _ = snapshots.show(action="unload", bundles=["t/n", name(77)], destination="b:1")

    run = snapshots.storage.run_folder(summary.plan_id)
    assert run is not None
    stay = {reason: f"  1 bundle stays ({reason}): {reason.meaning}" for reason in summary.bundle_skip_reasons}
    assert set(stay) == {Reason.UNKNOWN_NAME, Reason.SAME_BROKER}
    last = {
        name(2): ClientGap(clients_before=4, clients_seconds=3.12),
        name(20): ClientGap(clients_before=4, clients_back=3, watched_seconds=15.2, topics=9, topics_measured=2),
    }
    assert plan_text(summary, run, "the_dag", last).splitlines() == [
        "unload by hand: 21 bundles to move (this is only a plan: nothing was moved)",
        *(f"  {name(n)}: a:1 -> b:1" for n in range(2)),
        f"  {name(2)}: a:1 -> b:1; last time, clients were away for 3.1 s",
        *(f"  {name(n)}: a:1 -> b:1" for n in range(3, 20)),
        f"  and 1 more: {run.uri}/plan/moves.parquet",
        *stay.values(),
        f"  no broker reports a bundle matching {name(77)}",
        "  score of b:1: 1.0 -> 22.1",
        "  score of a:1: 21.1 -> 0.0",
        "  disturbed: 42 topics, 63 producers, 84 consumers",
        "  last time: clients were away for a median of 3.1 s and at most 3.1 s; after 1 of 2 moves, some clients had "
        "not reconnected (known for 2 of 21 bundles)",
        "To carry out this plan before 2026-11-22T13:00:00+00:00: "
        f'airflow dags trigger the_dag --conf \'{{"plan": "{summary.hash}"}}\'',
    ]
    assert plan_document(summary, run, last) == {
        "plan": summary.hash,
        "no_effect": "",
        "until": "2026-11-22T13:00:00+00:00",
        "bundles": 21,
        "moves": [{"bundle": name(n), "from": "a:1", "to": "b:1"} for n in range(20)],
        "splits": [],
        "stay": dict.fromkeys(stay, 1),
        "unknown": [name(77)],
        "scores": {"b:1": [1.01, 22.13], "a:1": [21.13, 0.0]},
        "disturbed": {"topics": 42, "producers": 63, "consumers": 84},
        "last_seconds": {name(2): 3.12},
        "folder": run.uri,
    }
    assert "  last time: no move of these bundles was measured" in plan_text(summary, run, "the_dag", {})
    assert (summary.base_seq, summary.counting, summary.bundles_taken, summary.waves) == (7, "by_hand", 21, 1)
    assert (summary.pairs, summary.pairs_over, summary.pairs_fired, summary.hits) == (0, 0, 0, (0, 0))


def test_a_plan_without_any_effect_is_not_carried_out(snapshots: Snapshots) -> None:
    summary, _ = snapshots.show(action="unload", bundles=[name(5)], destination="c:1")

    run = snapshots.storage.run_folder(summary.plan_id)
    assert run is not None
    assert plan_document(summary, run, {})["plan"] == ""
    assert "To carry out this plan" not in plan_text(summary, run, "the_dag", {})


def test_a_run_carries_out_what_was_shown_as_far_as_it_still_holds(snapshots: Snapshots) -> None:
    shown, _ = snapshots.show(action="unload", bundles=[name(n) for n in (1, 2, 3)] + ["t/other"], destination="c:1")
    snapshots.owned["b:1"][name(2)] = snapshots.owned["a:1"].pop(name(2))
    del snapshots.owned["a:1"][name(3, "t/other")]

    run = snapshots.take(params={"plan": shown.hash}, handed_over=snapshots.handed_over(shown).model_dump(mode="json"))
    summary = replan(snapshots.storage, run)

    assert fates(run) == {name(1): "c:1", name(2): "owner_changed", name(3, "t/other"): "unknown_name"}
    assert summary.by_hand is not None
    assert (summary.by_hand.by, summary.by_hand.carries_out) == ("bob", shown.hash)
    assert replan(snapshots.storage, run) == summary == Summary.read(run)  # a retry


def test_a_run_that_does_not_know_its_plan_is_refused(snapshots: Snapshots) -> None:
    with pytest.raises(SnapshotError, match=r"has no plan to carry out.*file_damaged"):
        replan(snapshots.storage, snapshots.take())
    handed = snapshots.handed_over(snapshots.show(action="unload", bundles=[name(1)])[0])
    elsewhere = handed.model_copy(update={"plan": handed.plan.model_copy(update={"plan_id": "../etc"})})
    with pytest.raises(PlanError, match=r"did not make the plan.*other_plan"):
        replan(snapshots.storage, snapshots.take(handed_over=elsewhere.model_dump(mode="json")))


@pytest.mark.parametrize("reason", ["other_plan", "plan_changed", "plan_expired"])
def test_no_other_plan_is_carried_out(snapshots: Snapshots, reason: str) -> None:
    shown, _ = snapshots.show(action="unload", bundles=[name(1)], destination="c:1")
    other, _ = snapshots.show(action="unload", bundles=[name(2)], destination="c:1")
    folder = snapshots.storage.run_folder(shown.plan_id)
    assert folder is not None
    if reason == "plan_changed":
        state = (folder / "plan" / "state.json").read_json()
        (folder / "plan" / "state.json").write_json(state | {"hits": {}})
    late = timedelta(seconds=3601 if reason == "plan_expired" else 0)
    wanted = other if reason == "other_plan" else shown
    entry = snapshots.handed_over(shown).model_dump(mode="json")
    run = snapshots.take(after=late, params={"plan": wanted.hash}, handed_over=entry)

    with pytest.raises(PlanError) as refused:
        replan(snapshots.storage, run)

    assert refused.value.reason == reason


def test_plan_names_requester_and_approver(snapshots: Snapshots) -> None:
    shown, _ = snapshots.show(action="unload", bundles=[name(1)], destination="c:1", reason="disk")
    approved = snapshots.handed_over(shown).model_copy(update={"approved": True, "reason": "until five"})
    run = snapshots.take(params={"plan": shown.hash}, handed_over=approved.model_dump(mode="json"))

    summary = replan(snapshots.storage, run)

    assert summary.sentence.startswith("unload by hand, approved by bob (until five): ")
    assert summary.by_hand is not None
    assert (summary.by_hand.by, summary.by_hand.approved_by) == ("ada", "bob")
    (decision,) = (run / "plan" / "decisions.parquet").read_table().to_pylist()
    assert decision["explanation"].startswith("ada asked to unload (reason: disk); approved by bob (until five)")
    assert decision["fired"]
