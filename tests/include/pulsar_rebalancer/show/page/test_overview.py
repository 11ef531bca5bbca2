"""What the page draws: brokers, pairs, the plan, the last run that moved something, and how large that is."""

from __future__ import annotations

import json
import math
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.include.pulsar_rebalancer.show.page.test_status import EVEN, scene
from tests.overview_scene import JUST_NOW, NOW, Scene, broker, history, seen, uneven

from pulsar_rebalancer.config.clusters_file import ClusterEntry
from pulsar_rebalancer.config.enums import Strategy
from pulsar_rebalancer.policies.cluster_policies import Policies
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.harm import BundleHarm, Harm
from pulsar_rebalancer.run.manual_request import ByHand, DrainProgress, parse_form
from pulsar_rebalancer.run.plan import Summary, read_moves
from pulsar_rebalancer.run.request import Finding
from pulsar_rebalancer.run.snapshot import Snapshot
from pulsar_rebalancer.show.page import overview
from pulsar_rebalancer.show.page.brokers import short_names
from pulsar_rebalancer.show.page.bundle_search import LISTED, find_bundles
from pulsar_rebalancer.show.page.drained import LISTED as MOST_NAMED
from pulsar_rebalancer.show.page.drained import stay_views
from pulsar_rebalancer.show.page.page_plan import LISTED as LISTED_MOVES
from pulsar_rebalancer.show.page.page_plan import plan_view
from pulsar_rebalancer.show.page.recent_runs import read_run
from pulsar_rebalancer.state.manual_plans import Drain, Drains
from pulsar_rebalancer.state.roll_document import Phase, Roll
from pulsar_rebalancer.strategies.kept import ShedderState

if TYPE_CHECKING:
    from pathlib import Path


def test_brokers_stand_hottest_first_with_what_makes_their_score(tmp_path: Path) -> None:
    made = scene(tmp_path, 3)
    history(made, JUST_NOW, 2)

    found = seen(made)

    assert [each.label for each in found.brokers] == ["broker-0", "broker-1", "broker-2"]
    hot = found.brokers[0]
    assert hot.deciding == "cpu"
    assert hot.resources.keys() == {"cpu", "bandwidth_in", "bandwidth_out"}  # direct memory has no weight
    assert hot.score == hot.resources["cpu"]
    assert hot.lowest is not None
    assert hot.highest is not None
    assert hot.lowest < hot.highest
    assert (hot.partner, hot.band) == (broker(2), "high")
    assert found.brokers[2].partner == ""


def test_a_drained_broker_is_shown_and_compared_with_nobody(tmp_path: Path) -> None:
    made = scene(tmp_path, loads={broker(0): 62.0, broker(1): 60.0, broker(2): 2.0})
    made.drains = Drains(brokers={broker(2): Drain(at=NOW, by="ada", reason="new disks")})
    made.run(JUST_NOW)

    found = seen(made)

    assert found.status.score_range == pytest.approx(2, abs=3)
    assert found.middle == pytest.approx(61, abs=3)
    assert found.brokers[-1].score == pytest.approx(2, abs=1)


def test_bundles_are_found_by_a_part_of_their_names_those_with_the_most_traffic_first(tmp_path: Path) -> None:
    made = scene(tmp_path, loads={broker(0): 82.0, broker(1): 40.0})
    assert find_bundles(made.storage, "", NOW).all == 0
    run = made.run(JUST_NOW)
    rows = Snapshot(run).table("bundles").to_pylist()
    traffic = {row["bundle"]: row["msg_throughput_in"] + row["msg_throughput_out"] for row in rows}

    found = find_bundles(made.storage, "", NOW)
    assert found.all == len(traffic)
    assert [each.traffic for each in found.bundles] == sorted(traffic.values(), reverse=True)[:LISTED]
    (one,) = find_bundles(made.storage, rows[3]["bundle"], NOW).bundles
    assert (one.bundle, one.broker, one.traffic) == (rows[3]["bundle"], rows[3]["broker"], traffic[one.bundle])
    # It is text, not a pattern.
    assert find_bundles(made.storage, ".*", NOW).all == 0


def test_the_bundles_that_a_drain_has_left_are_named_with_the_reason(tmp_path: Path) -> None:
    made = scene(tmp_path, loads={broker(0): 82.0, broker(1): 40.0, broker(2): 2.0}, max_bundles_per_run=2)
    made.run(JUST_NOW - timedelta(minutes=1))
    folder = made.run(JUST_NOW, astray=1)
    drain = Drain(at=NOW, by="ada", reason="new disks")
    drains = dict.fromkeys((broker(0), broker(1)), drain)
    plan = folder / "plan" / "summary.json"
    progress = DrainProgress(since=NOW, by="ada", reason="new disks", bundles=11, moving=2)
    # The broker's heartbeat bundle, which never leaves it, does not count.
    moves = folder / "plan" / "moves.parquet"
    table = moves.read_table()
    heartbeat = {"bundle": f"pulsar/{broker(0)}/0x00000000_0xffffffff", "source": broker(0)}
    row = table.to_pylist()[0] | heartbeat | {"taken": False, "reason": Reason.SYSTEM_NAMESPACE}
    moves.write_table(pa.concat_tables([table, pa.Table.from_pylist([row], table.schema)]))
    plan.write_json(plan.read_json() | {"drains": {broker(0): progress.model_dump(mode="json")}})

    drained, later = seen(made, drains=drains).drains

    assert drained.movable == 10
    assert drained.drained == "since 2026-11-22 12:00 UTC by ada: new disks"
    assert {each.broker for each in drained.left} == {broker(0)}
    reasons = [each.reason for each in drained.left]
    assert (reasons.count(Reason.UNOWNED), drained.bundles, drained.moving, drained.gone) == (1, 10, 0, 1)
    assert all(each.meaning for each in drained.left)
    assert [each for each in drained.left if each.reason != Reason.UNOWNED] == [
        each for each in stay_views(folder) if each.bundle != heartbeat["bundle"]
    ]
    # The drain of the other began after the sample.
    assert (later.bundles, later.movable, later.moving, later.left) == (None, None, 0, ())

    unknown = progress.model_copy(update={"bundles": None, "moving": 0})
    plan.write_json(plan.read_json() | {"drains": {broker(0): unknown.model_dump(mode="json")}})
    assert seen(made, drains=drains).drains[0].bundles is None, "it gave no report"


def test_what_a_drained_broker_keeps_for_ever_is_counted_beyond_what_is_listed(tmp_path: Path) -> None:
    made = scene(tmp_path, loads={broker(0): 82.0, broker(1): 40.0, broker(2): 2.0})
    made.run(JUST_NOW - timedelta(minutes=1))
    folder = made.run(JUST_NOW)
    many = MOST_NAMED + 5
    progress = DrainProgress(since=NOW, by="ada", reason="new disks", bundles=many + 1, moving=0)
    moves, plan = folder / "plan" / "moves.parquet", folder / "plan" / "summary.json"
    row = moves.read_table().to_pylist()[0] | {"source": broker(0), "taken": False, "reason": Reason.NO_TOPIC}
    rows = [row | {"bundle": f"t/n/0x{number:08x}_0x{number + 1:08x}"} for number in range(many)]
    rows += [
        rows[0] | {"reason": Reason.WOULD_OVERLOAD},
        row | {"bundle": "t/o/0x0_0x1", "reason": Reason.POLICY_FORBIDS},
    ]
    moves.write_table(pa.Table.from_pylist(rows, moves.read_table().schema))
    plan.write_json(plan.read_json() | {"drains": {broker(0): progress.model_dump(mode="json")}})

    (drained,) = seen(made, drains={broker(0): Drain(at=NOW, by="ada", reason="new disks")}).drains

    assert (len(drained.left), drained.more) == (MOST_NAMED, 6)
    assert (drained.bundles, drained.movable) == (many + 1, 1)


@pytest.mark.parametrize(
    ("ended", "expected"),
    [({"seconds": 0, "begun": 0}, (4, 0)), ({"seconds": 0, "begun": 1}, (3, 1)), ({}, (0, 4))],
    ids=["gate is open", "moving", "ended"],
)
def test_bundles_of_a_drain_leave_one_after_the_other(
    tmp_path: Path, ended: dict[str, Any], expected: tuple[int, int]
) -> None:
    made = scene(tmp_path, max_bundles_per_run=4)
    made.run(JUST_NOW - timedelta(minutes=1))
    folder = made.run(JUST_NOW, **ended)
    summary = folder / "plan" / "summary.json"
    progress = DrainProgress(since=NOW, by="ada", reason="new disks", bundles=4, moving=4)
    summary.write_json(summary.read_json() | {"drains": {broker(0): progress.model_dump(mode="json")}})

    opened = Snapshot(folder).request.airflow_run_id
    (drained,) = seen(made, drains={broker(0): Drain(at=NOW, by="ada", reason="new disks")}, opened=opened).drains

    assert (drained.moving, drained.gone) == expected


def test_drains_and_the_roll_are_on_the_page_before_any_run(tmp_path: Path) -> None:
    drain = Drain(at=NOW, by="ada", reason="new disks")
    roll = Roll(id="0a1b", by="bob", order=(broker(1),), phase=Phase.DRAINING)

    found = seen(scene(tmp_path), drains={broker(0): drain}, unreadable="the copy is damaged", roll=roll)

    assert found.status.state == "no data"
    assert [(each.broker, each.bundles) for each in found.drains] == [(broker(0), None)]
    assert found.roll is not None


def test_the_plan_of_a_drain_is_shown_even_if_no_bundle_leaves(tmp_path: Path) -> None:
    made = scene(tmp_path, loads=EVEN)
    folder = made.run(JUST_NOW, dry_run=True, seconds=0)
    drain = ByHand(by="ada", request=parse_form({"action": "drain", "broker": broker(3), "reason": "new disks"}))
    summary = Summary.read(folder)
    summary.model_copy(update={"by_hand": drain}).write(folder)
    entry = ClusterEntry(name="east", given={}, settings=made.settings)

    found = overview.of_one_run(made.storage, entry, folder, NOW)

    assert summary.bundles_taken + sum(summary.bundles_passed_over.values()) == 0
    assert found is not None
    assert found.plan is not None
    assert (found.plan.has_effect, found.plan.bundles) == (True, 0)


@pytest.mark.parametrize(
    ("strategy", "left_out"), [(Strategy.AVG, [broker(2)]), (Strategy.THRESHOLD, [])], ids=lambda each: str(each)
)
def test_a_broker_without_persistent_topics_is_left_out_as_decide_leaves_it_out(
    tmp_path: Path, strategy: Strategy, left_out: list[str]
) -> None:
    made = scene(tmp_path, strategy=strategy, mode="observe")
    made.policies = Policies(without_persistent=(broker(2),))
    made.run(JUST_NOW)

    found = seen(made)

    assert [each.name for each in found.brokers if each.left_out.startswith("no_persistent_topics: ")] == left_out


def test_the_half_hour_forgets_what_is_older(tmp_path: Path) -> None:
    made = scene(tmp_path, 3)
    made.owned[broker(0)] = dict.fromkeys(range(10), 9.5)
    made.run(JUST_NOW - timedelta(minutes=31))
    made.owned[broker(0)] = dict.fromkeys(range(10), 5.0)
    made.run(JUST_NOW)
    (found,) = [each for each in seen(made).brokers if each.name == broker(0)]
    assert found.highest is not None
    assert found.highest < 60


def test_a_broker_that_is_left_out_says_why(tmp_path: Path) -> None:
    made = scene(tmp_path)
    made.findings = (Finding(reason=Reason.REPORT_STALE, subject=broker(0)),)
    made.run(JUST_NOW)

    found = seen(made)

    (left,) = [each for each in found.brokers if each.left_out]
    assert left.name == broker(0)
    assert left.left_out.startswith("report_stale: ")
    others = [each.score for each in found.brokers if each.score is not None and not each.left_out]
    assert found.status.score_range == pytest.approx(max(others) - min(others), abs=0.01)


def test_the_plan_has_its_prediction_and_whom_it_disturbs(tmp_path: Path) -> None:
    made = scene(tmp_path)
    history(made, JUST_NOW, 2)

    found = seen(made)

    plan = found.plan
    assert plan is not None
    assert (plan.bundles, plan.topics, plan.clients) == (4, 16, 32)
    assert plan.traffic == pytest.approx(sum(move.traffic for move in plan.moves), rel=1e-3)
    touched = {each.name: each.after for each in found.brokers if each.after is not None}
    assert touched.keys() == {broker(0), broker(3)}
    assert plan.predicted_range is not None
    assert plan.range_before is not None
    assert plan.predicted_range < plan.range_before
    assert max(touched.values()) < plan.range_before
    assert [(each.reason, each.count) for each in plan.stay] == [("over_remaining", 6)]
    assert {end.name: end.after for end in plan.brokers} == touched
    assert all(end.before != end.after for end in plan.brokers)
    assert {move.why for move in plan.moves} == {"68 points apart"}


def test_a_plan_says_for_how_long_clients_were_away(tmp_path: Path) -> None:
    made, other = scene(tmp_path), scene(tmp_path / "other")
    for each in (made, other):
        each.run(JUST_NOW - timedelta(minutes=1))
    folder = other.run(JUST_NOW, astray=1)
    shown = made.run(JUST_NOW, dry_run=True, seconds=0, begun=0)

    ended = seen(other).plan
    bundles = [move.bundle for move in read_moves(shown)]
    unknown = plan_view(made.storage, read_run(shown))
    missing = Harm(clients_before=5, clients_back=3, watched_seconds=15.0)
    BundleHarm().added({bundles[0]: missing}, NOW).write(made.storage.state)
    known = plan_view(made.storage, read_run(shown))

    assert ended is not None
    assert (ended.folder, ended.harm) == (
        folder.name,
        "Clients were back after 1.2 s in the median, 1.2 s at most; 1 of 4 moves could not be measured.",
    )
    assert [move.harm for move in ended.moves] == [
        "harm unknown: the bundle has no known owner",
        *["clients were away for 1.2 s"] * 3,
    ]
    assert unknown is not None
    assert known is not None
    assert unknown.harm == "The last time: not known: no move of these bundles was measured."
    assert {move.harm for move in unknown.moves} == {""}
    assert known.harm.startswith("The last time: after 1 of 1 move some clients were not back")
    assert {move.bundle: move.harm for move in known.moves if move.harm} == {
        bundles[0]: "last time, 2 of 5 clients not back after 15.0 s"
    }


@pytest.mark.parametrize("loads", [EVEN, uneven(4)], ids=["splits only", "splits and moves"])
def test_a_plan_that_splits_says_so_before_and_after(tmp_path: Path, loads: dict[str, float]) -> None:
    made = scene(tmp_path, loads=loads)
    made.run(JUST_NOW - timedelta(minutes=1))
    made.splits = (made.to_split(31), made.to_split(32, unload=False, rank=1), made.to_split(33, taken=False))
    moves = 4 if loads is not EVEN else 0
    first = "Would move 4 bundles and split 2 bundles permanently" if moves else "Would split 2 bundles permanently"

    made.run(JUST_NOW - timedelta(seconds=20), verdict=Reason.OBSERVE)
    found = seen(made)

    assert found.status.sentence.startswith(first)
    assert found.plan is not None
    unloaded, kept = found.plan.splits
    assert (unloaded.bundle, unloaded.broker) == (made.splits[0]["bundle"], broker(3))
    assert (unloaded.positions, unloaded.shares) == (("0xc666666a",), (0.61, 0.39))
    assert (unloaded.topics, unloaded.clients, unloaded.why) == (4, 8, "30,123 msg/s, more than 30,000")
    assert (kept.topics, kept.clients) == (0, 0)  # nobody reconnects without an unload
    assert (found.plan.bundles, found.plan.topics, found.plan.clients) == (moves, 4 * moves + 4, 8 * moves + 8)
    assert found.plan.about_splits == (made.splits[2]["explanation"],)

    made.hits = ShedderState(hits={})
    made.run(JUST_NOW - timedelta(seconds=10), verdict=Reason.OPEN)
    found = seen(made)
    assert found.status.sentence.startswith("Split 2 bundles permanently, as planned.")
    assert found.plan is not None
    assert [split.outcome for split in found.plan.splits] == ["split", "split"]
    assert found.plan.done == len(found.plan.moves) + 2

    made.splits = ()
    made.run(JUST_NOW)
    last = seen(made).last
    assert moves or (last is not None and len(last.splits) == 2)


def test_scores_that_follow_traffic_are_as_predicted(tmp_path: Path) -> None:
    made = scene(tmp_path)
    history(made, JUST_NOW - timedelta(minutes=6), 2)
    history(made, JUST_NOW, 5)

    found = seen(made)

    assert found.plan is None
    last = found.last
    assert last is not None
    assert last.verdict == "open"
    scores = {each.name: each.score for each in found.brokers}
    assert {each.name: scores[each.name] for each in last.brokers} == {
        each.name: pytest.approx(each.after, abs=3) for each in last.brokers
    }
    assert found.status.score_range == pytest.approx(last.predicted_range, abs=3)


@pytest.mark.parametrize("figure", [math.nan, math.inf, 1e9])
def test_figures_that_are_none_are_left_out(tmp_path: Path, figure: float) -> None:
    made = scene(tmp_path)
    made.findings = (Finding(reason=Reason.REPORT_STALE, subject=broker(0)),)
    made.owned[broker(0)] = dict.fromkeys(range(10), figure)
    made.run(JUST_NOW)

    (odd,) = [each for each in seen(made).brokers if each.name == broker(0)]

    assert (odd.score, odd.resources, odd.lowest) == (None, {}, None)
    assert json.loads(seen(made).model_dump_json())["status"]["score_range"] is not None


def test_other_strategies_show_what_they_keep(tmp_path: Path) -> None:
    threshold = scene(tmp_path / "threshold", loads=EVEN, strategy="ThresholdShedder")
    threshold.run(JUST_NOW)
    averages = {each.name: each.average for each in seen(threshold).brokers}
    assert averages[broker(3)] == pytest.approx(43, abs=2)
    assert seen(threshold).hits is None

    assert seen(threshold).status.sentence.startswith("0 of 4 brokers are 10 points or more above")

    transfer = scene(tmp_path / "transfer", loads=uneven(4, hottest=98, coldest=2), strategy="TransferShedder")
    transfer.run(JUST_NOW)
    found = seen(transfer)
    assert found.hits is not None
    assert (found.hits.have, found.hits.need) == (1, transfer.settings.hit_count_transfer + 1)


def test_two_hundred_brokers_fit(tmp_path: Path) -> None:
    made = scene(tmp_path, 200)
    history(made, JUST_NOW, 3)
    found = seen(made)
    assert len(found.brokers) == 200
    assert len(found.model_dump_json()) < 150_000


def test_a_plan_of_a_thousand_bundles_fits(tmp_path: Path) -> None:
    made = Scene(str(tmp_path), {broker(0): 90.0, broker(1): 5.0}, each=2500)
    history(made, JUST_NOW, 2)
    found = seen(made)
    assert found.plan is not None
    assert found.plan.bundles > 1000
    assert (len(found.plan.moves), found.plan.more) == (LISTED_MOVES, found.plan.bundles - LISTED_MOVES)
    assert found.plan.topics == 4 * found.plan.bundles
    assert len(found.model_dump_json()) < 60_000


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        (["b-0.east.example:8080", "b-1.east.example:8080"], ["b-0", "b-1"]),
        (["b-0:8080", "b-1:8080"], ["b-0", "b-1"]),
        (["127.0.0.1:4001", "127.0.0.1:4002"], [":4001", ":4002"]),
        (["10.0.0.1:8080", "10.0.0.2:8080"], ["10.0.0.1", "10.0.0.2"]),
        (["10.0.0.1:8080", "11.0.0.1:8080"], ["10.0.0.1", "11.0.0.1"]),
        (["b.east:8080", "b.west:8080"], ["b.east", "b.west"]),
        (["b:8080", "c:8081"], ["b:8080", "c:8081"]),
        (["b.east:8080"], ["b"]),
    ],
)
def test_names_are_as_short_as_they_may_be(names: list[str], labels: list[str]) -> None:
    assert short_names(names) == dict(zip(names, labels, strict=True))


def test_a_small_cluster_of_two_pairs_names_the_one_that_counts(tmp_path: Path) -> None:
    made = scene(tmp_path, loads=EVEN | {broker(0): 62.0})
    made.run(NOW - timedelta(seconds=5))
    found = seen(made)
    assert len(found.pairs) == 1
    assert found.close_pairs == 1
    assert (found.pairs[0].band, found.pairs[0].hits["low"].have) == ("low", 1)
