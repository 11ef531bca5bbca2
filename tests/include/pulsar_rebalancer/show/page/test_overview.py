from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.include.pulsar_rebalancer.show.page.test_status import scene
from tests.overview_scene import JUST_NOW, NOW, broker, history, seen

from pulsar_rebalancer.orders.manual_plans import Drain, Drains
from pulsar_rebalancer.orders.roll_document import Phase, Roll
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.outcome import BundleClientGaps, ClientGap
from pulsar_rebalancer.run.plan import read_moves
from pulsar_rebalancer.run.request import DrainProgress
from pulsar_rebalancer.show.page.bundles import stay_views
from pulsar_rebalancer.show.page.page_plan import make_plan_view
from pulsar_rebalancer.show.page.recent_runs import read_run


def test_brokers_stand_hottest_first_with_what_makes_their_score(tmp_path):
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
    assert [each.band for each in found.brokers] == ["high", "calm", "high"]


def test_a_drained_broker_is_shown_and_compared_with_nobody(tmp_path):
    made = scene(tmp_path, loads={broker(0): 62.0, broker(1): 60.0, broker(2): 2.0})
    made.drains = Drains(brokers={broker(2): Drain(at=NOW, by="ada", reason="new disks")})
    made.run(JUST_NOW)

    found = seen(made)

    assert found.status.score_range == pytest.approx(2, abs=3)
    assert found.middle == pytest.approx(61, abs=3)
    assert found.brokers[-1].score == pytest.approx(2, abs=1)
    # Also right after the order, before any run knows it.
    assert len(found.pairs) == 1
    assert seen(made, drains=made.drains).pairs == ()


def test_a_drain_is_no_pair_and_a_waiting_pair_needs_no_sentence_beside_its_hits(tmp_path):
    made = scene(tmp_path)
    folder = made.run(JUST_NOW)
    waits = seen(made).pairs[0]
    file = folder / "plan" / "decisions.parquet"
    table = file.read_table()
    drain = dict.fromkeys(table.column_names) | {"pair": 9, "source": broker(1), "reason": Reason.DRAIN, "fired": True}
    row = next(row for row in table.to_pylist() if row["source"] == waits.source)
    stuck = Reason.NO_FITTING_BUNDLE
    rows = [drain, row | {"reason": stuck, "explanation": f"the gap and the hits. {stuck.meaning}"}]
    file.write_table(pa.Table.from_pylist(rows, table.schema))

    (pair,) = seen(made).pairs

    assert (waits.hits["high"].have, waits.explanation) == (1, "")
    assert (pair.reason, pair.explanation) == (stuck, stuck.meaning)
    made.run(JUST_NOW + timedelta(seconds=1))
    fired = seen(made).pairs[0]
    assert (fired.fired, fired.explanation) == (True, "")


def test_the_bundles_that_a_drain_has_left_are_named_with_the_reason(tmp_path):
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

    drained, later = seen(made, drains=Drains(brokers=drains)).drains

    assert drained.movable == 10
    assert drained.drained == "since 2026-11-22 12:00 UTC by ada: new disks"
    assert {each.broker for each in drained.left} == {broker(0)}
    reasons = [each.reason for each in drained.left]
    assert (reasons.count(Reason.UNKNOWN_OWNER), drained.bundles, drained.moving, drained.gone) == (1, 10, 0, 1)
    assert all(each.meaning for each in drained.left)
    assert [each for each in drained.left if each.reason != Reason.UNKNOWN_OWNER] == [
        each for each in stay_views(folder) if each.bundle != heartbeat["bundle"]
    ]
    # The drain of the other began after the sample.
    assert (later.bundles, later.movable, later.moving, later.left) == (None, None, 0, ())

    again = {broker(0): drains[broker(0)].model_copy(update={"at": NOW + timedelta(seconds=1)})}
    assert seen(made, drains=Drains(brokers=again)).drains[0].movable is None, "the progress of an earlier drain"

    unknown = progress.model_copy(update={"bundles": None, "moving": 0})
    plan.write_json(plan.read_json() | {"drains": {broker(0): unknown.model_dump(mode="json")}})
    assert seen(made, drains=Drains(brokers=drains)).drains[0].bundles is None, "it gave no report"


def test_the_plan_has_its_prediction_and_whom_it_disturbs(tmp_path):
    made = scene(tmp_path)
    history(made, JUST_NOW, 2)

    found = seen(made)

    plan = found.plan
    assert plan is not None
    assert (plan.bundles, plan.topics, plan.clients) == (4, 16, 32)
    assert plan.traffic == pytest.approx(sum(move.planned.traffic for move in plan.moves), rel=1e-3)
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


def test_a_plan_says_for_how_long_clients_were_away(tmp_path):
    made, other = scene(tmp_path), scene(tmp_path / "other")
    for each in (made, other):
        each.run(JUST_NOW - timedelta(minutes=1))
    folder = other.run(JUST_NOW, astray=1)
    shown = made.run(JUST_NOW, dry_run=True, seconds=0, begun=0)

    ended = seen(other).plan
    bundles = [move.bundle for move in read_moves(shown)]
    unknown = make_plan_view(made.storage, read_run(shown))
    missing = ClientGap(clients_before=5, clients_back=3, watched_seconds=15.0)
    BundleClientGaps().with_gaps({bundles[0]: missing}, NOW).write(made.storage.state)
    known = make_plan_view(made.storage, read_run(shown))

    assert ended is not None
    assert (ended.folder, ended.client_gap) == (
        folder.name,
        "Clients were away for a median of 1.2 s and at most 1.2 s; for 1 of 4 moves, clients could not be counted.",
    )
    assert [move.client_gap for move in ended.moves] == [
        "client gap unknown: the bundle has no known owner",
        *["clients were away for 1.2 s"] * 3,
    ]
    assert unknown is not None
    assert known is not None
    assert unknown.client_gap == "Last moves: no move of these bundles was measured."
    assert {move.client_gap for move in unknown.moves} == {""}
    assert known.client_gap.startswith("Last moves: after 1 of 1 move, some clients had not reconnected")
    assert {move.planned.bundle: move.client_gap for move in known.moves if move.client_gap} == {
        bundles[0]: "last time, 2 of 5 clients had not reconnected after 15.0 s"
    }


def test_scores_that_follow_traffic_are_as_predicted(tmp_path):
    made = scene(tmp_path)
    history(made, JUST_NOW - timedelta(minutes=6), 2)
    history(made, JUST_NOW, 5)

    found = seen(made)

    assert found.plan is None
    last = found.last
    assert last is not None
    assert last.verdict is not None
    assert last.verdict.reason is Reason.OPEN
    scores = {each.name: each.score for each in found.brokers}
    assert {each.name: scores[each.name] for each in last.brokers} == {
        each.name: pytest.approx(each.after, abs=3) for each in last.brokers
    }
    assert found.status.score_range == pytest.approx(last.predicted_range, abs=3)


@pytest.mark.parametrize(
    ("phase", "more", "state", "stop"),
    [
        (Phase.WAITING, {"waits": "its turn"}, ("waiting", "waits for its turn"), "its turn has not begun"),
        (Phase.DRAINING, {"left": 3}, ("draining", "3 bundles to move"), "is released. Bundles that have left"),
        (Phase.RESTARTING, {}, ("restarting", ""), "otherwise it stays drained"),
        (Phase.RESTARTING, {"may_restart": True}, ("restart now", ""), "otherwise it stays drained"),
        (Phase.RETURNING, {"left": 1}, ("returning", "1 bundle to move"), "is up. Bundles that have not returned"),
    ],
)
def test_a_rolling_restart_has_a_row_for_each_broker_and_says_what_a_stop_does(
    tmp_path: Path, phase: Phase, more: dict[str, Any], state: tuple[str, str], stop: str
) -> None:
    made = scene(tmp_path)
    made.run(JUST_NOW)
    roll = Roll(id="0a1b", order=("a:1", "b:1", "c:1"), done={"a:1": Reason.ROLLED}, phase=phase, **more)
    found = seen(made, roll=roll).roll
    assert found is not None
    turns = [(turn.broker, turn.state, turn.detail) for turn in found.turns]
    assert turns == [("a:1", "done", ""), ("b:1", *state), ("c:1", "waiting", "")]
    assert found.stop.startswith("b:1 ")
    assert stop in found.stop

    ended = roll.stopped_roll(Reason.ROLL_STOPPED, "by ada", NOW, is_stranded=True)
    drained = Drains(brokers={"b:1": Drain(by="ada", reason="", at=NOW)})
    over, released = seen(made, roll=ended, drains=drained).roll, seen(made, roll=ended).roll
    assert over is not None
    assert [turn.state for turn in over.turns] == ["done", "still drained", "not restarted"]
    assert "drained" not in str(released)
    assert over.stop == ""
