"""What people ordered, as the page says it beside the state."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from tests.overview_scene import JUST_NOW, NOW, Scene, broker, seen, uneven

from pulsar_rebalancer.config.enums import Action
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.state.manual_plans import Drain, HandedOver, HandedOverPlans, ShownPlan
from pulsar_rebalancer.state.orders.control_document import Control, Order, PauseOrder
from pulsar_rebalancer.state.orders.question import Answer, Answers, Question
from pulsar_rebalancer.state.roll_document import Phase, Roll

if TYPE_CHECKING:
    from pathlib import Path

EVEN = {broker(number): 40.0 + number for number in range(4)}
PAUSE = PauseOrder(at=NOW, by="ada", reason="a holiday", until=NOW + timedelta(hours=1))


def ordered(made: Scene, **more: Any) -> str:
    made.run(JUST_NOW)
    return seen(made, **more).status.in_force


def test_what_people_ordered_is_one_sentence_beside_the_state(tmp_path: Path) -> None:
    made = Scene(str(tmp_path), EVEN)
    assert ordered(made) == ""

    said = "Nothing is moved: mode auto; paused until 2026-11-22 13:00 UTC by ada: a holiday."
    assert ordered(made, control=Control(pause=PAUSE)) == said
    held = seen(made, control=Control(pause=PAUSE)).status
    assert (held.state, held.sentence[:22]) == ("paused", "The cluster is paused.")

    drains = {broker(0): Drain(at=NOW, by="bob", reason="a new disk")}
    assert f"{broker(0)} drained by bob: a new disk" in ordered(made, drains=drains)
    (drained,) = [each for each in seen(made, drains=drains).brokers if each.drained]
    assert drained.drained == "since 2026-11-22 12:00 UTC by bob: a new disk"
    damaged = "which brokers are drained cannot be read: damaged"
    assert ordered(made, unreadable="damaged") == f"Nothing is moved: mode auto; {damaged}."
    both = ordered(made, unreadable="damaged", control=Control(pause=PAUSE))
    assert both == f"{said.removesuffix('.')}; {damaged}."
    assert ordered(made, approvals_unreadable="damaged") == "Approvals cannot be read: damaged."
    assert "what people ordered cannot be read: damaged" in ordered(made, control=Control(unreadable="damaged"))


def test_a_rolling_restart_is_told_until_its_end_and_as_long_as_it_left_a_broker_drained(tmp_path: Path) -> None:
    made, (first, second) = Scene(str(tmp_path), EVEN), (broker(0), broker(1))
    roll = Roll(id="0a1b", by="bob", order=(first, second), turn_at=NOW, phase=Phase.DRAINING, waits="12 bundles")
    said = f"rolling restart 0a1b by bob: {first} draining, 0 of 2 brokers done; waits for 12 bundles"

    assert f"; {said}" in ordered(made, roll=roll)
    found = seen(made, roll=roll).roll
    assert found is not None
    assert (found.text, found.done, found.total) == (said, 0, 2)

    over = roll.stopped(Reason.BROKER_NOT_BACK, "it is down", NOW, stranded=True)
    ended = seen(made, roll=over).roll
    assert ended is not None
    assert f"{first} stays drained" in ended.text
    long_over = over.model_copy(update={"ended_at": NOW - timedelta(days=1, seconds=1)})
    assert seen(made, roll=long_over).roll is None
    assert f"{first} stays drained until a person releases it" in ordered(made, roll=over, drains=over.drains())
    assert ordered(made, roll=over) == ""


def test_a_manual_plan_in_the_queue_is_told(tmp_path: Path) -> None:
    made = Scene(str(tmp_path), EVEN)
    plan = ShownPlan(plan_id="p", action=Action.UNLOAD, at=NOW, by="ada")
    handed = HandedOverPlans(plans={"0" * 64: HandedOver(plan=plan, run_id="by_hand__1", at=NOW, by="bob")})
    assert ordered(made, handed_over=handed) == ""
    said = "Manual plan 000000000000 of bob waits in the queue for its run."
    assert ordered(made, handed_over=handed, queued=("scheduled__1", "by_hand__1")) == said


def test_a_stop_and_a_plan_that_waits_are_told_with_their_people_and_times(tmp_path: Path) -> None:
    made = Scene(str(tmp_path), uneven(4))
    made.run(JUST_NOW - timedelta(minutes=1))
    made.run(JUST_NOW, seconds=0)
    stop = Control(stop=Order(at=NOW, by="ada", reason="wrong hour"))
    assert seen(made, control=stop).status.in_force == "Run stopped at 2026-11-22 12:00 UTC by ada: wrong hour."

    asking = Scene(str(tmp_path / "approve"), uneven(4), mode="approve")
    asking.run(JUST_NOW - timedelta(minutes=1))
    plan = asking.run(JUST_NOW, verdict=Reason.AWAITING_APPROVAL)
    question = Question(plan_id=plan.name, hash="0" * 64, at=JUST_NOW, run_id="ask__1")
    waits = seen(asking, question=question)
    assert waits.status.in_force == "Plan 000000000000 waits for approval until 2026-11-22 12:59 UTC."
    assert waits.awaiting is None  # it is the plan that is shown
    asking.run(NOW - timedelta(seconds=1), verdict=Reason.AWAITING_APPROVAL)
    newer = seen(asking, question=question)
    assert newer.status.state == "would move"
    assert newer.status.sentence.startswith("A plan of 11:59 waits for a person's approval until 12:59 UTC.")
    assert newer.awaiting is not None
    assert (newer.awaiting.folder, newer.awaiting.bundles) == (plan.name, 4)
    answers = Answers(plans={plan.name: Answer(question=question, at=NOW, by="ada", reason="", carried_out_by="a")})
    assert "waits for a person" not in seen(asking, question=question, answers=answers).status.sentence
    old = question.model_copy(update={"at": NOW - timedelta(hours=2)})
    assert seen(asking, question=old).status.in_force == ""


def test_a_mode_that_observes_is_not_told_twice(tmp_path: Path) -> None:
    assert ordered(Scene(str(tmp_path), EVEN, mode="observe")) == ""
