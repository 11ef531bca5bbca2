from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pulsar_rebalancer.decide.rolling import RollFacts, RollSample, advance, why_turn_unsafe
from pulsar_rebalancer.orders.order import Control, GivenOrder, Order
from pulsar_rebalancer.orders.roll_document import Phase, Roll, ShownRoll

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
LONG_AGO = NOW - timedelta(days=9)
A, B, C = "a:1", "b:1", "c:1"
LISTED = (A, B, C)


def at(minutes: float) -> datetime:
    return NOW + timedelta(minutes=minutes)


def new_roll(*order: str) -> Roll:
    shown = ShownRoll(id="f" * 64, order=order or (A, B), at=NOW, by="ada", reason="patch")
    return Roll().started_roll(shown, "manual__1", LISTED, NOW, "bob", run_at(0))


def run_at(minute: float) -> str:
    return f"run-{minute:06.1f}"


def seen(minute: float, **given: Any) -> RollSample:
    return RollSample(run_at(minute), at(minute), **{"start_times": dict.fromkeys(LISTED, LONG_AGO)} | given)


def step(roll: Roll, minute: float, what: RollSample | None = None, **given: Any) -> Roll:
    up = roll.model_copy(update={"looked_at": at(minute)})  # Airflow, all the time
    return advance(up, RollFacts(now=at(minute), max_wait_minutes=30, sample=what or seen(minute), **given))


def restarted(minute: float, broker: str = A, **given: Any) -> RollSample:
    return seen(minute, start_times=dict.fromkeys(LISTED, LONG_AGO) | {broker: at(3)}, **given)


def drained(*order: str) -> Roll:
    """A roll whose first broker is empty and waits for its restart."""
    return emptied(step(new_roll(*order), 1, seen(1, home_bundles=("t/n/1", "t/n/2"))))


def emptied(roll: Roll, minute: float = 2, **given: Any) -> Roll:
    for later in (minute, minute + 0.5):
        roll = step(roll, later, seen(later, bundles_left=0, **given))
    return roll


def test_a_broker_is_drained_restarts_and_gets_its_bundles_back_before_the_next_one() -> None:
    roll = step(new_roll(), 1, seen(1, home_bundles=("t/n/1", "t/n/2")))
    assert (roll.broker, roll.phase, list(roll.roll_drains())) == (A, Phase.DRAINING, [A])
    assert roll.home == ("t/n/1", "t/n/2")

    roll = step(roll, 2, seen(2, bundles_left=1))
    assert (roll.phase, roll.left, roll.waits) == (Phase.DRAINING, 1, "1 bundle to leave a:1")
    roll = step(roll, 3, seen(3, home_bundles=("t/n/2", "t/n/3"), bundles_left=0))
    assert (roll.phase, roll.waits) == (Phase.DRAINING, "a second run that finds a:1 empty")
    assert step(roll, 3.2, seen(3, bundles_left=0)).phase is Phase.DRAINING, "the same sample, read twice"
    roll = step(roll, 3.5, seen(3.5, bundles_left=0))
    assert (roll.phase, roll.waits) == (Phase.RESTARTING, "a person: restart a:1 now")
    assert roll.home == ("t/n/1", "t/n/2", "t/n/3"), "what left it only showed in the drain"
    assert list(roll.roll_drains()) == [A]

    assert step(roll, 4).phase is Phase.RESTARTING, "it still runs in its old process"
    roll = step(roll, 5, restarted(5))
    assert step(roll, 5.5, restarted(5)).phase is Phase.RESTARTING, "the same report, read twice"
    roll = step(roll, 6, restarted(6))
    assert (roll.phase, roll.roll_drains()) == (Phase.RETURNING, {})

    roll = step(roll, 7, restarted(7, bundles_left=2))
    assert (roll.phase, roll.waits) == (Phase.RETURNING, "2 bundles to return")
    roll = step(roll, 8, restarted(8, bundles_left=0))
    assert (roll.broker, roll.phase, roll.done) == (B, Phase.WAITING, {A: "rolled"})
    assert roll.home == ()
    assert roll.is_active


@pytest.mark.parametrize(
    ("what", "why"),
    [
        (seen(1, start_times={A: LONG_AGO, B: LONG_AGO}), "c:1 to return to the list of active brokers"),
        (seen(1, problems={C: "bad_report_time"}), "c:1 to recover: bad_report_time"),
        (seen(1, drained_brokers=(C,)), "an operator to release c:1"),
        (seen(1, why_no_room="room for 3 of 9 bundles"), "room for 3 of 9 bundles"),
        (seen(1, start_times={A: None, B: LONG_AGO, C: LONG_AGO}), "a:1 to report its start time"),
        (seen(0), "the next run's sample"),
    ],
    ids=["missing", "unwell", "drained", "no room", "no start time", "old sample"],
)
def test_no_broker_goes_while_it_may_not(what: RollSample, why: str) -> None:
    roll = step(new_roll(), 1, what)

    assert (roll.phase, roll.waits, roll.roll_drains()) == (Phase.WAITING, why, {})
    stuck = step(roll, 31, what)
    assert (stuck.ended, stuck.stranded) == ("roll_stuck", "")
    assert why in stuck.waits


def test_orders_hold_it_without_a_limit_and_start_no_broker() -> None:
    for roll in (new_roll(), step(new_roll(), 1)):
        held = step(roll, 500, seen(500, bundles_left=0), why_held="paused until noon")
        assert (held.phase, held.waits, held.is_active) == (roll.phase, "paused until noon", True)
        assert step(held, 501, seen(501, why_no_room="no room")).is_active


def test_a_step_without_a_sample_waits_for_one() -> None:
    draining = step(new_roll(), 1, seen(1, home_bundles=("t/n/1",)))
    skip = Order(at=at(4), by="eve", reason="later")
    for roll, given in ((draining, None), (drained(), skip)):
        fact = RollFacts(now=at(4), max_wait_minutes=30, sample=None, why_no_sample="a usable sample", skip_order=given)
        after = advance(roll, fact)
        assert (after.phase, after.waits) == (roll.phase, "a usable sample")


def test_a_step_is_stored_after_a_minute() -> None:
    roll = new_roll().model_copy(update={"looked_at": at(3)})
    facts = RollFacts(now=at(4), max_wait_minutes=30, sample=None)
    assert advance(roll, facts).looked_at == at(4)


def test_no_progress_counts_from_more_than_its_minutes() -> None:
    waiting = seen(30, why_no_room="no room")
    assert step(new_roll(), 30, waiting).is_active
    assert not step(new_roll(), 30.1, waiting).is_active


def test_once_a_window_has_closed_it_finishes_its_broker_and_begins_no_other() -> None:
    assert not new_roll().is_under_way
    roll = drained()
    assert roll.is_under_way  # so that the window holds it no longer (`in_force.all_holds`)
    for minute in (4, 5):
        roll = step(roll, minute, restarted(minute))
    roll = step(roll, 6, restarted(6, bundles_left=0))
    assert not roll.is_under_way
    assert step(roll, 7, restarted(7), why_held="outside_window until 22:00").waits == "outside_window until 22:00"


def test_a_broker_that_was_asked_for_before_a_pause_may_restart() -> None:
    roll = step(drained(), 4, restarted(4), why_held="paused")
    assert step(roll, 5, restarted(5), why_held="paused").phase is Phase.RETURNING


@pytest.mark.parametrize(
    ("what", "stranded"),
    [
        (seen(33), A),
        (seen(33, start_times={B: LONG_AGO, C: LONG_AGO}), A),
        (restarted(33, problems={A: "bad_report_time"}), A),
    ],
    ids=["nobody answers", "does not come back", "never ready"],
)
def test_a_broker_that_does_not_come_back_stops_the_roll(what: RollSample, stranded: str) -> None:
    roll = step(step(drained(), 3, what), 34, what)

    assert (roll.ended, roll.stranded) == ("broker_not_back", stranded)
    assert list(roll.roll_drains()) == [stranded]
    assert "a:1 stays drained until a person releases it" in roll.progress


def test_only_the_first_of_many_restarts_is_progress() -> None:
    unwell: dict[str, Any] = {"problems": {A: "just_started"}}
    roll = step(drained(), 20, restarted(20, **unwell))
    again = seen(45, start_times=dict.fromkeys(LISTED, LONG_AGO) | {A: at(44)}, **unwell)
    roll = step(roll, 45, again)
    assert roll.is_active, "25 minutes after the first"
    assert step(roll, 51, again).ended == "broker_not_back"


def test_another_name_or_port_stops_the_roll() -> None:
    started = {"a:2": at(3), B: LONG_AGO, C: LONG_AGO}
    roll = step(drained(), 4, seen(4, start_times=started))
    assert step(roll, 5, restarted(5)).is_active, "another broker was added on its host"
    roll = step(roll, 33, seen(33, start_times=started))
    assert (roll.ended, roll.waits, roll.stranded) == ("broker_not_back", "a:1 may now have the name a:2", A)

    grown = seen(33, start_times={"d:1": at(3), B: LONG_AGO, C: LONG_AGO})
    assert step(drained(), 33, grown).ended == "broker_not_back", "a new broker elsewhere is none that was renamed"


def test_the_users_own_dag_is_awaited() -> None:
    roll = step(drained(), 4, restarted(4), restart_state="running")
    roll = step(roll, 5, restarted(5), restart_state="running")
    assert (roll.phase, roll.waits) == (Phase.RESTARTING, "the end of the DAG that restarts a:1")
    assert step(roll, 6, restarted(6), restart_state="success").phase is Phase.RETURNING

    assert step(drained(), 4, restart_state="", why_no_restart="the DAG is paused").waits == "the DAG is paused"
    held = step(drained(), 500, why_held="paused", restart_state="")
    assert (held.is_active, held.waits) == (True, "paused"), "it is not started during a pause"

    failed = step(drained(), 4, restart_state="failed")
    assert (failed.ended, failed.stranded) == ("restart_failed", A)


def test_a_broker_stays_drained_while_the_users_own_dag_may_still_restart_it() -> None:
    stop = Order(at=at(4), by="eve", reason="enough")
    given: dict[str, Any] = {"restart_state": "running", "dag_and_run": "restart_broker, run x"}
    assert step(drained(), 33, **given).stranded == A
    stopped = step(drained(), 4, restarted(4), stop_order=stop, **given)
    assert (stopped.ended, stopped.stranded) == ("roll_stopped", A)
    told = "the DAG that restarts a:1 (restart_broker, run x) is still running: end it before you release a:1"
    assert told in stopped.progress
    assert step(drained(), 4, restarted(4), stop_order=stop, restart_state="success").stranded == ""


def test_a_drain_that_stands_still_stops_the_roll_and_releases_the_broker() -> None:
    roll = step(step(new_roll(), 1, seen(1, home_bundles=("t/n/1", "t/n/2"))), 2, seen(2, bundles_left=2))
    fewer = step(roll, 31.5, seen(31.5, bundles_left=1))
    assert fewer.is_active, "fewer bundles are progress"

    stuck = step(roll, 33, seen(33, bundles_left=2))
    assert (stuck.ended, stuck.roll_drains(), stuck.elsewhere) == ("roll_stuck", {}, {})
    assert step(fewer, 62, seen(62, bundles_left=1)).elsewhere == {A: "the broker was being drained"}
    more = step(step(fewer, 40, seen(40, bundles_left=2)), 60, seen(60, bundles_left=1))
    assert step(more, 62, seen(62, bundles_left=1)).ended == "roll_stuck", "as few as before are no progress"


def test_a_drain_says_why_bundles_stay() -> None:
    roll = step(new_roll(), 1, seen(1, home_bundles=("t/n/1", "t/n/2")))
    stays = seen(33, bundles_left=2, stay_counts={"anti_affinity": 1}, outcome_text="awaiting_approval")
    roll = step(roll, 2, stays)
    assert roll.waits == "2 bundles to leave a:1 (anti_affinity x1; the last run: awaiting_approval)"
    assert "awaiting_approval" in step(roll, 33, stays).progress


def test_a_crash_during_the_drain_is_not_the_restart() -> None:
    roll = emptied(step(new_roll(), 1, seen(1, home_bundles=("t/n/1",))), 4, start_times=restarted(4).start_times)
    for minute in (5, 6):
        roll = step(roll, minute, restarted(minute))
    assert (roll.phase, roll.waits) == (Phase.RESTARTING, "a person: restart a:1 now")


def test_a_broker_is_empty_only_if_it_says_so_in_two_samples_in_a_row() -> None:
    draining, short = step(new_roll(), 1, seen(1, home_bundles=("t/n/1",))), {"min_gap": timedelta(seconds=30)}
    roll = step(draining, 2, seen(2, bundles_left=0), **short)
    assert step(roll, 2.1, seen(2.1, bundles_left=0), **short).phase is Phase.DRAINING, "seconds apart, by a dry run"
    assert step(roll, 3, seen(3, bundles_left=0), **short).phase is Phase.RESTARTING
    for what in ({"bundles_left": 1}, {"start_times": {B: LONG_AGO, C: LONG_AGO}}, {"problems": {A: "report_missing"}}):
        again = step(roll, 3, seen(3, **what), **short)
        assert step(again, 4, seen(4, bundles_left=0), **short).phase is Phase.DRAINING, what
    planless = step(roll, 3, seen(3), **short)
    assert step(planless, 4, seen(4, bundles_left=0), **short).phase is Phase.RESTARTING

    cut_off = emptied(draining, start_times={B: LONG_AGO, C: LONG_AGO})
    assert (cut_off.phase, cut_off.waits) == (Phase.DRAINING, "a:1 to return to the list of active brokers")


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ({"start_times": {A: LONG_AGO, B: LONG_AGO}}, "c:1 to return to the list of active brokers"),
        ({"problems": {C: "bad_report_time"}}, "c:1 to recover: bad_report_time"),
        ({"drained_brokers": (C,)}, "an operator to release c:1"),
    ],
)
def test_no_broker_restarts_while_another_is_not_known_to_be_well(what: dict[str, Any], why: str) -> None:
    draining = step(new_roll(), 1, seen(1, home_bundles=("t/n/1",)))
    held = emptied(draining, **what)
    assert (held.phase, held.waits) == (Phase.DRAINING, why)
    assert step(held, 33, seen(33, bundles_left=0, **what)).ended == "roll_stuck"

    asked = drained()
    assert asked.may_restart
    withdrawn = step(asked, 4, seen(4, **what))
    assert (withdrawn.may_restart, withdrawn.waits) == (False, why)
    assert step(withdrawn, 5).may_restart


def test_a_broker_that_got_bundles_again_does_not_restart() -> None:
    roll = step(drained(), 3, seen(3, bundles_left=2))
    assert (roll.phase, roll.may_restart, roll.waits) == (Phase.RESTARTING, False, "2 bundles to leave a:1")
    assert not step(roll, 3.5).may_restart, "no run has seen it empty since"
    assert step(roll, 4, seen(4, bundles_left=0)).may_restart


def test_the_users_own_dag_starts_only_while_the_broker_itself_is_seen() -> None:
    roll = drained()
    assert why_turn_unsafe(roll, seen(3)) == ""
    gone = seen(3, start_times={B: LONG_AGO, C: LONG_AGO})
    assert why_turn_unsafe(roll, gone) == "a:1 to return to the list of active brokers"
    assert step(roll, 3, gone, restart_state="").waits == why_turn_unsafe(roll, gone)
    assert step(roll, 3, gone).may_restart, "people may have begun to restart it"


def test_a_clock_that_was_set_back_hides_no_restart() -> None:
    roll = drained()
    for minute in (4, 5):
        back = seen(minute, start_times=dict.fromkeys(LISTED, LONG_AGO) | {A: LONG_AGO - timedelta(days=1)})
        roll = step(roll, minute, back)
        assert not roll.may_restart
    assert roll.phase is Phase.RETURNING


def test_bundles_that_never_return_do_not_hold_the_others_up() -> None:
    roll = drained()
    for minute in (4, 5, 6):
        roll = step(roll, minute, restarted(minute, bundles_left=3 if minute == 6 else None))
    later = step(roll, 37, restarted(37, bundles_left=3))
    assert (later.broker, later.elsewhere) == (B, {A: "3 bundles"})


@pytest.mark.parametrize("phase", list(Phase))
def test_a_person_stops_it_in_any_phase(phase: Phase) -> None:
    roll = drained().model_copy(update={"phase": phase})
    stop = Order(at=at(4), by="eve", reason="enough")

    down = step(roll, 4, seen(4), stop_order=stop)
    assert (down.ended, down.stranded) == ("roll_stopped", A if phase is Phase.RESTARTING else "")
    assert step(roll, 4, restarted(4), stop_order=stop).stranded == "", "it is up again"


@pytest.mark.parametrize(
    ("phase", "left", "apart"),
    [
        (Phase.WAITING, None, {}),
        (Phase.DRAINING, None, {A: "the broker was being drained"}),
        (Phase.DRAINING, 2, {A: "the broker was being drained"}),
        (Phase.RESTARTING, None, {A: "the broker was drained"}),
        (Phase.RETURNING, None, {A: "no run has tried to return bundles"}),
        (Phase.RETURNING, 2, {A: "2 bundles"}),
    ],
)
def test_a_stopped_roll_says_whose_bundles_are_elsewhere(phase: Phase, left: int | None, apart: dict[str, str]) -> None:
    roll = drained().model_copy(update={"phase": phase, "left": left, "elsewhere": {C: "astray x1"}})
    stopped = step(roll, 4, seen(4), stop_order=Order(at=at(4), by="eve", reason="enough"))
    assert stopped.elsewhere == {C: "astray x1"} | apart


def test_an_order_counts_for_the_roll_and_the_phase_in_which_it_is_given() -> None:
    def given(action: str, minute: float) -> Control:
        return Control(orders=(GivenOrder(action=action, at=at(minute), by="eve", reason="x", subject=A),))

    roll = step(new_roll(), 2)
    assert (roll.at, roll.since) == (at(0), at(2))
    assert [bool(roll.stop_order(given("stop_roll", minute))) for minute in (-1, 0)] == [False, True]
    assert [bool(roll.skip_order(given("skip_broker", minute))) for minute in (1, 2)] == [False, True]
    assert (Roll().stop_order(given("stop_roll", 1)), Roll().skip_order(given("skip_broker", 1))) == (None, None)


def test_a_broker_is_skipped() -> None:
    skip = Order(at=at(4), by="eve", reason="later")

    new = step(new_roll(), 4, skip_order=skip)
    assert (new.done, new.elsewhere) == ({A: "roll_stopped"}, {})
    gone = seen(4, start_times={B: LONG_AGO, C: LONG_AGO})
    down = step(drained(), 4, gone, skip_order=skip)
    assert (down.done, down.elsewhere) == ({A: "roll_stopped"}, {A: "the broker is down"})
    hidden = step(step(new_roll(), 1, seen(1)), 4, seen(4, home_bundles=("t/n/9",), bundles_left=2), skip_order=skip)
    assert (hidden.phase, hidden.home) == (Phase.RETURNING, ("t/n/9",)), "what has already left it comes back"
    back = step(drained(), 4, skip_order=skip)
    assert (back.broker, back.phase, back.roll_drains()) == (A, Phase.RETURNING, {})
    assert step(back, 5, seen(5, bundles_left=0)).done == {A: "roll_stopped"}
    twice = step(step(back, 5, seen(5, bundles_left=2)), 6, skip_order=skip)
    assert step(back, 5, seen(5), skip_order=skip).elsewhere == {A: "no run has tried to return bundles"}
    assert (twice.done, twice.elsewhere) == ({A: "roll_stopped"}, {A: "2 bundles"})


def test_a_skip_waits_for_the_end_of_the_dag_that_restarts_the_broker() -> None:
    skip = Order(at=at(4), by="eve", reason="later")

    roll = step(drained(), 4, skip_order=skip, restart_state="running")
    assert (roll.phase, list(roll.roll_drains())) == (Phase.RESTARTING, [A]), "it would restart with bundles on it"
    assert roll.waits == "the end of the DAG that restarts a:1 before the broker is skipped"

    for ended in ("success", "failed"):
        skipped = step(roll, 5, skip_order=skip, restart_state=ended)
        assert (skipped.phase, skipped.outcome) == (Phase.RETURNING, "roll_stopped")
    assert step(drained(), 4, skip_order=skip, restart_state="").phase is Phase.RETURNING, "the DAG never started"


@pytest.mark.parametrize("roll", [new_roll(), drained()], ids=["waiting", "restarting"])
def test_time_in_which_airflow_was_down_is_no_time_without_progress(roll: Roll) -> None:
    def stepped(roll: Roll, minute: float) -> Roll:
        facts = RollFacts(now=at(minute), max_wait_minutes=30, sample=None, why_no_sample="a usable sample")
        return advance(roll, facts)

    for minute in range(3, 21):
        roll = stepped(roll, minute)
    hours = 600
    roll = stepped(roll, hours)
    assert (roll.is_active, roll.waits) == (True, "a usable sample")
    assert stepped(roll, hours + 0.5) == roll, "a step that changes nothing is not stored"
    for minute in range(hours + 1, hours + 7):
        roll = stepped(roll, minute)
    assert roll.is_active
    for minute in range(hours + 7, hours + 12):
        roll = stepped(roll, minute)
    assert not roll.is_active


def test_a_clock_that_was_set_back_leaves_a_roll_its_time() -> None:
    roll = new_roll().model_copy(update={"looked_at": at(100), "progress_at": at(0)})
    facts = RollFacts(now=at(4), max_wait_minutes=30, sample=None)
    assert advance(roll, facts).looked_at == at(4)

    ahead = roll.model_copy(update={"looked_at": at(-60), "progress_at": at(3)})
    assert advance(ahead, facts).progress_at == at(4)
