from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.include.pulsar_rebalancer.decide.snapshots import NOW, Snapshots, fates, name, planned

from pulsar_rebalancer.decide import plan_files
from pulsar_rebalancer.decide.planning import Plan
from pulsar_rebalancer.decide.run_input import RunBundles, RunInput
from pulsar_rebalancer.decide.run_plan import learn_from_run, plan_run
from pulsar_rebalancer.isolation import Policies
from pulsar_rebalancer.names import namespace_of
from pulsar_rebalancer.orders.manual_plans import Drain, Drains
from pulsar_rebalancer.orders.roll_document import Phase, Roll
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run import bundle_columns
from pulsar_rebalancer.run.bundle_columns import BundleSample
from pulsar_rebalancer.run.plan import Summary, read_decisions, read_plan_state, read_splits, verified_actions
from pulsar_rebalancer.run.snapshot import Candidate, SplitCandidates
from pulsar_rebalancer.run.tables import BROKERS, BUNDLES, MEANS, Measure, table
from pulsar_rebalancer.state import DecisionState, HitCount
from pulsar_rebalancer.strategies.sample import CandidateMove, Decision
from pulsar_rebalancer.strategies.shedders.registry import run_left_out_reasons


def test_a_plan_with_a_drain_is_one_plan_with_one_hash(tmp_path):
    snapshots = Snapshots(tmp_path, {"a": {name(1): 20.0, name(2): 20.0}, "b": {name(4): 10.0}, "c": {}})
    drains = Drains(brokers={"a:1": Drain(at=NOW, by="ada", reason="new disks")})
    folder = snapshots.take(drains=drains.model_dump(mode="json"))
    run = RunInput.read(folder.uri)
    assert run_left_out_reasons(run) == {"a:1": Reason.DRAINING}
    stays = BundleSample("b:1", name(4), msg_throughput=10.0)
    passed_over = CandidateMove.new(stays, pair=0, rank=0, measure=Measure.THROUGHPUT, reason=Reason.OVER_REMAINING)
    left_out = Decision("a:1", Reason.DRAINING, source_high=3, source_low=5)
    pair = Decision("b:1", Reason.BALANCED, 0, destination="c:1", source_score=30.0, destination_score=10.0)
    summary = plan_files.write_run_plan(run, planned(run, [left_out, pair], [passed_over]))

    moves = verified_actions(folder, summary)[0]
    found = fates(folder)
    assert found.pop(name(4)) == Reason.OVER_REMAINING  # what the strategy passed over stays in the plan
    assert {move.bundle: move.destination for move in moves} == found
    assert {move.bundle for move in moves} == {name(1), name(2)}
    assert {move.destination for move in moves} == {"b:1", "c:1"}
    assert summary.drains["a:1"].moving == 2
    assert summary.requested_by == {"ada"}
    # The range tells how even the others are: the drained one goes to zero on purpose.
    assert (summary.brokers, summary.score_min, summary.score_max) == (2, 10.0, 30.0)
    assert summary.predicted_min is not None
    assert "Drained brokers: a:1 (2 bundles to move)" in summary.sentence
    hits = (folder / "plan" / "state.json").read_json()["hits"]
    assert hits == {"a:1": [3, 5]}  # frozen, as those of every broker that is left out


@pytest.mark.parametrize("split_mode", ["observe", "auto"])
def test_a_bundle_that_a_run_splits_does_not_fill_a_new_broker_in_that_run(tmp_path, split_mode):
    large = "t/n/0x00000000_0x40000000"
    owned = {"a": {large: 22.0, name(0x50000000): 10.0, name(0x60000000): 18.0}, "b": {name(0x70000000): 50.0}, "c": {}}
    splits = {"split_mode": split_mode, "auto_split": False, "max_bundle_topics": 5}
    snapshots = Snapshots(tmp_path, owned, fill_new_brokers=True, **splits)
    snapshots.started, snapshots.topics = {"c:1": timedelta(minutes=5)}, {large: 9}
    folder = snapshots.take()
    SplitCandidates(bundles=(Candidate(bundle=large, bounds=(0, 0x40000000, 0xFFFFFFFF)),)).write(folder)
    run = RunInput.read(folder.uri)

    plan_files.write_run_plan(run, planned(run))

    moved, split = fates(folder), [each.bundle for each in read_splits(folder)]
    assert (large in moved, split) == ((False, [large]) if split_mode == "auto" else (True, []))
    assert moved


def test_a_pair_moves_what_the_colder_broker_lacks_once_a_drain_is_served(tmp_path):
    # Four bundles of the drain bring c from 10 to 50 bytes/s: b, at 80, gives half of the difference left.
    hot, drained = {name(n): 2.5 for n in range(32)}, {name(100 + n): 10.0 for n in range(4)}
    owned = {"a": drained, "b": hot, "c": {name(200): 10.0}}
    eager = {"hit_count_high": 1, "min_unload_throughput": 0, "overloaded_threshold": 100}
    snapshots = Snapshots(tmp_path, owned, **eager)
    drains = Drains(brokers={"a:1": Drain(at=NOW, by="ada", reason="new disks")})
    folder = snapshots.take(drains=drains.model_dump(mode="json"))
    run = RunInput.read(folder.uri)
    rows = (folder / "input" / "bundles.parquet").read_table().to_pylist()
    run.new_means_file.write_table(table(bundle_columns.update_means(rows, []), MEANS))

    decided = plan_run(run, RunBundles(run, lambda: run.new_means_file))
    summary = plan_files.write_run_plan(run, decided)

    moved = dict.fromkeys(("a:1", "b:1"), 0.0)
    for move in verified_actions(folder, summary)[0]:
        assert move.destination == "c:1"
        moved[move.source] += move.traffic
    assert moved == {"a:1": 40.0, "b:1": 15.0}
    assert (summary.predicted_min, summary.predicted_max) == (65.0, 65.0)
    (pair,) = (decision for decision in decided.decisions if decision.pair == 0)
    assert (pair.source, pair.destination, pair.gap, pair.fired, pair.target) == ("b:1", "c:1", 70.0, True, 15.0)


def test_gain_shedder_moves_what_a_drain_a_group_and_a_cap_leave(tmp_path):
    # The two largest bundles of b gain most, but one of their group has to wait.
    group = {name(20, "t/x"): 12.0, name(21, "t/y"): 12.0}
    owned = {"a": {name(1): 4.0, name(2): 4.0}, "b": group | {name(n): 10.0 for n in range(30, 36)}, "c": {}, "d": {}}
    snapshots = Snapshots(tmp_path, owned, strategy="GainShedder", hit_count_high=1, max_bundles_per_run=4)
    snapshots.policies = Policies(groups={"t/x": "apart", "t/y": "apart"})
    drains = Drains(brokers={"a:1": Drain(at=NOW, by="ada", reason="new disks")})
    folder = snapshots.take(drains=drains.model_dump(mode="json"))
    run = RunInput.read(folder.uri)
    reported = run.read_table("bundles").to_pylist()
    rows = [row | {"policy": run.policies.policy_kind(namespace_of(row["bundle"]))} for row in reported]
    (folder / "input" / "bundles.parquet").write_table(table(rows, BUNDLES))
    run.new_means_file.write_table(table(bundle_columns.update_means(rows, []), MEANS))

    summary = plan_files.write_run_plan(run, learned_and_decided(run))
    moves = verified_actions(folder, summary)[0]
    assert Counter(move.source for move in moves) == {"a:1": 2, "b:1": 2}
    assert not {move.destination for move in moves} - {"c:1", "d:1"}
    found = fates(folder)
    waits, moved = sorted(found[bundle] for bundle in group)
    assert (waits, moved[1:]) == (Reason.ANTI_AFFINITY, ":1")
    assert Reason.CAP_RUN in found.values()
    (decision,) = (each for each in read_decisions(folder) if each["pair"] == 0)
    assert "; points from the mean: " in str(decision["explanation"])


def learned_and_decided(run: RunInput) -> Plan:
    learned = learn_from_run(run)
    return plan_run(run, RunBundles(run, lambda: run.new_means_file, learned.bundle_loads), learned)


def forced(root: Path, owned: dict[str, dict[str, float]], cpu: dict[str, float], **moved: Any) -> RunInput:
    """A forced run of GainShedder; `moved`: columns of bundle 1, which moved from z to a a minute ago."""
    snapshots = Snapshots(root, owned, strategy="GainShedder")
    if moved:
        snapshots.unloaded, snapshots.onto = {name(1): timedelta(minutes=1)}, "a:1"
        snapshots.ended = {"source": "z:1", "outcome": Reason.MOVED}
    folder = snapshots.take(params={"force": "hot broker", "force_threshold": 10})
    run = RunInput.read(folder.uri)
    bundles = [row | (moved if row["bundle"] == name(1) else {}) for row in run.read_table("bundles").to_pylist()]
    brokers = [row | {"cpu_usage": cpu[row["broker"][0]]} for row in run.read_table("brokers").to_pylist()]
    (folder / "input" / "bundles.parquet").write_table(table(bundles, BUNDLES))
    (folder / "input" / "brokers.parquet").write_table(table(brokers, BROKERS))
    run.new_means_file.write_table(table(bundle_columns.update_means(bundles, []), MEANS))
    return RunInput.read(folder.uri)


def test_a_bundle_that_two_brokers_report_after_its_move_changes_no_decision(tmp_path):
    full, cpu = {name(10 + n): 10.0 for n in range(6)}, {"z": 60.0, "m": 30.0, "a": 10.0}
    plans = {}
    for reporting in ("a", "az"):
        owned = {"z": dict(full), "m": {name(30): 30.0}, "a": {name(40): 5.0}}
        for broker in reporting:
            owned[broker] |= {name(1): 10.0}
        decided = learned_and_decided(forced(tmp_path / reporting, owned, cpu, owners=len(reporting)))
        taken = [move for move in decided.moves if move.is_taken]
        plans[reporting] = taken, [decision.explanation for decision in decided.decisions]
    assert plans["a"] == plans["az"]
    assert plans["a"][0]


EARLIER = NOW - timedelta(seconds=60)
BEFORE = DecisionState(
    seq=7, counted_at=EARLIER, hits={"a:1": HitCount(0, 4)}, means="means-7.parquet", split_hits={name(1): 2}
)


def pair(number: int, source: str, destination: str, scores: tuple[float, float], **more: Any) -> Decision:
    high, low = scores
    named: Any = {"destination": destination, "source_score": high, "destination_score": low, "gap": high - low}
    return Decision(source, Reason.HIT_COUNT, number, **named | more)


def written(tmp_path: Path, decisions: list[Decision], **params: Any) -> tuple[RunInput, Summary]:
    snapshots = Snapshots(tmp_path, {"a": {name(1): 20.0}, "b": {name(4): 10.0}})
    snapshots.state = BEFORE
    run = RunInput.read(snapshots.take(params=params).uri)
    return run, plan_files.write_run_plan(run, planned(run, decisions, sentence="two pairs"))


def test_a_summary_counts_the_pairs_and_their_hits(tmp_path):
    decisions = [
        pair(0, "g:1", "a:1", (80.0, 20.0), fired=True, low_hits=3, high_hits=2),
        pair(1, "f:1", "b:1", (50.0, 35.0), low_hits=5, high_hits=0),  # the low threshold
        pair(2, "e:1", "c:1", (45.0, 40.0)),
        pair(3, "d:1", "d:1", (42.0, 42.0)),
        Decision("h:1", Reason.BALANCED, 4),  # not compared
        Decision("i:1", Reason.BROKER_EXCLUDED),
    ]
    run, summary = written(tmp_path, decisions)
    assert (summary.base_seq, summary.forced, summary.counting) == (7, None, run.hit_rules.reason)
    assert (summary.pairs, summary.pairs_over, summary.pairs_fired, summary.hits) == (3, 2, 1, (5, 2))
    assert (summary.brokers, summary.score_min, summary.score_max, summary.score_mean) == (7, 20.0, 80.0, 312 / 7)
    assert (summary.bundles_taken, summary.waves, summary.bundles_split) == (0, 0, 0)
    assert summary.reasons == {"balanced": 1, "broker_excluded": 1, "hit_count": 4}


@pytest.mark.parametrize(
    ("params", "by"),
    [
        ({}, set()),
        ({"mode": "approve"}, set()),
        ({"force": "new disks"}, {"ada"}),
        ({"low_threshold": 5}, {"ada"}),
        ({"max_bundles_per_run": 1}, {"ada"}),
        ({"excluded_bundles": ("t/n/*",)}, {"ada"}),
    ],
)
def test_whoever_sets_a_parameter_that_changes_the_moves_requests_them(tmp_path, params, by):
    assert written(tmp_path, [], **params)[1].requested_by == by


LOADED = {"a": {name(n): 10.0 for n in range(6)}, "b": {name(10 + n): 10.0 for n in range(3)}, "c": {}}
MINUTES = timedelta(minutes=1)


def filled(
    tmp_path: Path, *strategy: CandidateMove, unloaded: tuple[str, timedelta] | None = None, **given: Any
) -> tuple[Summary, dict[str, str], DecisionState]:
    snapshots = Snapshots(tmp_path, given.pop("owned", LOADED), fill_new_brokers=given.pop("on", True))
    snapshots.started = {"c:1": given.pop("age", 5 * MINUTES)}
    snapshots.quarantined = given.pop("quarantined", [])
    if unloaded:
        snapshots.onto, snapshots.unloaded = unloaded[0], {name(99): unloaded[1]}
    folder = snapshots.take(**given)
    run = RunInput.read(folder.uri)
    hits: Any = {"source_high": 1, "source_low": 4, "destination_high": 1, "destination_low": 4}
    decisions = [pair(0, "a:1", "c:1", (60.0, 0.0), **hits), Decision("b:1", Reason.NO_PARTNER, 1, source_high=1)]
    summary = plan_files.write_run_plan(run, planned(run, decisions, strategy, "one pair"))
    return summary, fates(folder), read_plan_state(folder)


def test_a_new_broker_is_filled_without_being_asked(tmp_path):
    summary, found, state = filled(tmp_path)

    assert found == {name(5): "c:1", name(4): "c:1", name(3): "c:1"}  # of the hottest, up to the mean
    assert (summary.predicted_min, summary.predicted_max) == pytest.approx((30.0, 30.0))
    assert summary.sentence == "one pair. New brokers get bundles: c:1"
    assert summary.reasons[Reason.FILL] == 1
    assert state.hits == {"b:1": HitCount(1, 0)}, "the brokers of the moves collect hits again"


@pytest.mark.parametrize(
    "given",
    [
        {"on": False},
        {"age": 31 * MINUTES},
        {"quarantined": ["c:1"]},
        {"unloaded": ("c:1", 3 * MINUTES)},
        {"params": {"force": "two brokers were added"}},
        {"owned": LOADED | {"a": LOADED["a"] | {name(30): 3.0}, "c": {name(20): 39.5}}},
        {"drains": Drains(brokers={"b:1": Drain(at=NOW, by="ada", reason="disks")}).model_dump(mode="json")},
        {
            "drains": Drains(brokers=dict.fromkeys(("a:1", "b:1"), Drain(at=NOW, by="ada", reason="disks"))).model_dump(
                mode="json"
            ),
            "quarantined": ["c:1"],
        },
    ],
    ids=[
        "off",
        "old",
        "not healthy",
        "its report lacks what it got",
        "forced",
        "nearly full",
        "a drain",
        "all drained",
    ],
)
def test_a_broker_is_not_filled(tmp_path, given):
    summary, found, state = filled(tmp_path, **given)

    assert Reason.FILL not in summary.reasons
    assert not {bundle for bundle, end in found.items() if end == "c:1"} & set(map(name, range(6)))
    assert state.hits["a:1"] == HitCount(1, 4)


def test_the_strategys_own_moves_come_first(tmp_path):
    sample = BundleSample("a:1", name(0), msg_throughput=10.0)
    own = CandidateMove.new(sample, pair=0, rank=0, measure=Measure.THROUGHPUT, reason=Reason.TAKEN, destination="b:1")

    summary, found, _ = filled(tmp_path, own._replace(wave=0))

    assert (found, Reason.FILL in summary.reasons) == ({name(0): "b:1"}, False)


HOME = {name(0): "c:1", name(1): "c:1"}


def roll(phase: Phase) -> dict[str, Any]:
    document = Roll(id="f", by="eve", order=("c:1",), turn_at=NOW, phase=phase, home=tuple(HOME))
    return document.model_dump(mode="json")


@pytest.mark.parametrize("phase", list(Phase))
def test_in_a_rolling_restart_only_its_own_bundles_move(tmp_path, phase):
    sample = BundleSample("a:1", name(5), msg_throughput=10.0)
    own = CandidateMove.new(sample, pair=0, rank=0, measure=Measure.THROUGHPUT, reason=Reason.TAKEN, destination="b:1")

    summary, found, _ = filled(tmp_path, own._replace(wave=0), roll=roll(phase))

    assert found == {name(5): "rolling"} | (HOME if phase is Phase.RETURNING else {})
    assert summary.bundles_taken == (2 if phase is Phase.RETURNING else 0)
    assert f"Rolling restart by eve: c:1 {phase}" in summary.sentence
    assert summary.requested_by == ({"eve"} if phase is Phase.RETURNING else set())
