from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.overview_scene import JUST_NOW, NOW, Scene, broker, history, seen, uneven

from pulsar_rebalancer.config.clusters_file import ClusterEntry
from pulsar_rebalancer.config.field_types import Mode
from pulsar_rebalancer.orders.breaker import Breaker
from pulsar_rebalancer.orders.manual_plans import Answer, Answers, Drain, Drains, Question
from pulsar_rebalancer.orders.order import Control, GivenOrder
from pulsar_rebalancer.orders.roll_document import Phase, Roll
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.plan import Summary
from pulsar_rebalancer.run.request import DrainProgress
from pulsar_rebalancer.show.page import overview
from pulsar_rebalancer.show.page.facts import FailedRun
from pulsar_rebalancer.show.page.page_model import Attention, Status

EVEN = {broker(number): 40.0 + number for number in range(4)}


def ordered(action: str, **given: Any) -> Control:
    return Control(orders=(GivenOrder(action=action, **given),))


def scene(tmp_path: Path, brokers: int = 4, *, loads: dict[str, float] | None = None, **settings: Any) -> Scene:
    return Scene(str(tmp_path), loads or uneven(brokers), **settings)


def strip(made: Scene, **more: Any) -> Status:
    return seen(made, **more).status


@pytest.mark.parametrize(
    ("age", "hits", "said"),  # a sample each minute
    [(30, 5, "(hit 5 of 8); moves start in about 3 min."), (150, 6, "(hit 6 of 8); moves start after 2 more samples.")],
)
def test_a_pair_says_how_far_it_is_from_firing(tmp_path, age, hits, said):
    made = scene(tmp_path, loads=uneven(4, hottest=55, coldest=30))
    history(made, NOW - timedelta(seconds=age), hits)

    found = strip(made)

    assert found.state == "waiting"
    assert found.sentence.endswith(f"broker-2 and broker-3 differ by 29 points {said}")


@pytest.mark.parametrize(
    ("samples", "took", "seconds", "said"),
    [(5, 20, 28 * 3 + 20, "(hit 5 of 8); moves start in about 74 s."), (1, 900, 180 * 8, "in about 24 min.")],
)
def test_a_forecast_follows_the_time_that_samples_really_take(tmp_path, samples, took, seconds, said):
    rules: dict[str, Any] = {"interval_seconds": 15, "host_usage_interval_minutes": 0.25}
    made = scene(tmp_path, loads=uneven(4, hottest=55, coldest=30), **rules)
    for back in reversed(range(samples)):
        made.run(JUST_NOW - timedelta(seconds=28 * back), seconds=took)

    assert {pair.seconds_to_fire for pair in seen(made).pairs} == {seconds}
    assert strip(made).sentence.endswith(said)


@pytest.mark.parametrize(
    ("old", "steps", "tone", "said"),
    [(65, 28, "good", "The scores"), (75, 28, "idle", "At 11:58:45 UTC: The scores"), (140, 60, "good", "The scores")],
)
def test_headline_is_not_green_past_the_age_of_its_data(tmp_path, old, steps, tone, said):
    made = scene(tmp_path, loads=EVEN, interval_seconds=15)
    for back in (3, 2, 1, 0):
        made.run(NOW - timedelta(seconds=old + steps * back))

    found = strip(made)

    assert (found.state, found.tone) == ("balanced", tone)
    assert found.sentence.startswith(said)
    assert found.fresh_until is not None
    assert (found.fresh_until < NOW) == (tone == "idle")


def test_no_next_run_is_promised_while_one_is_under_way(tmp_path):
    made = scene(tmp_path, loads=EVEN)
    made.run(JUST_NOW)

    assert strip(made, running_since=JUST_NOW).running_since == JUST_NOW
    assert strip(made).next_run_at == NOW + timedelta(seconds=30)
    assert strip(made, running_since=JUST_NOW).next_run_at is None


def test_a_failure_names_what_failed(tmp_path):
    made = scene(tmp_path, loads=EVEN)
    made.run(JUST_NOW)
    failed = FailedRun(run_id="r", at=NOW, task="collect", reason=Reason.UNREACHABLE, message="b-3:8080 is silent")

    found = strip(made, failed=failed)

    assert found.state == "failed"
    assert found.sentence.startswith(
        f"The latest run failed in collect (unreachable): {Reason.UNREACHABLE.meaning} b-3"
    )


def test_attention_stands_beside_the_balance(tmp_path):
    made = scene(tmp_path, loads=EVEN)
    folder = made.run(JUST_NOW)
    own, other = broker(3), broker(2)
    drains = {name: Drain(at=JUST_NOW, by="bob", reason="disks") for name in (own, other)}
    stopped = ROLL.model_copy(update={"ended": Reason.ROLL_STOPPED, "ended_at": NOW, "stranded": own})

    waits = strip(made, roll=stopped, drains=Drains(brokers=drains))

    assert (waits.state, waits.tone) == ("balanced", "good")
    ended = Attention(
        text=f"The rolling restart has ended, but {own} is still drained: release it.", since=NOW, acts=("Release",)
    )
    assert waits.attention == (ended,)

    plan = folder / "plan" / "summary.json"
    progress = DrainProgress(since=JUST_NOW, by="bob", reason="disks", bundles=0, moving=0).model_dump(mode="json")
    plan.write_json(plan.read_json() | {"drains": {other: progress}})
    text = f"{other} is empty and safe to stop; drained by bob: disks."
    empty = Attention(text=text, since=JUST_NOW, acts=("Release",))
    assert strip(made, roll=stopped, drains=Drains(brokers=drains)).attention == (ended, empty)

    rolls = Roll(id="0a1b", order=(other,), phase=Phase.RESTARTING, may_restart=True, since=NOW)
    text = f"Rolling restart, broker 1 of 1: restart {other} now."
    restart = Attention(text=text, since=NOW, acts=("Skip broker", "Stop roll"))
    assert strip(made, roll=rolls, drains=Drains(brokers={other: drains[other]})).attention == (restart,)
    assert strip(made, roll=rolls.model_copy(update={"may_restart": False})).attention == ()
    stop = ordered("stop_roll", at=NOW, by="eve", reason="enough")
    stops = strip(made, roll=rolls.model_copy(update={"at": NOW, "waits": "a person"}), control=stop)
    assert (stops.attention, "waits for the next step, in which the roll stops" in stops.in_force) == ((), True)

    (lost,) = strip(made, lost="drains: missing").attention
    assert (lost.since, lost.acts) == (None, ("Restore", "Reset"))
    made.settings = made.settings.model_copy(update={"mode": Mode.APPROVE})
    (asks,) = strip(made, question=Question(plan_id="p", at=JUST_NOW)).attention
    assert (asks.text, asks.since) == ("The 11:59 plan to move bundles waits for approval until 12:59 UTC.", JUST_NOW)


NOT_CARRIED_OUT = "A plan to move 4 bundles was not carried out: "
TOO_OLD = "The limit is 180 s, and the run ended 20 s after its sample."


@pytest.mark.parametrize(
    ("mode", "verdict", "state", "said"),
    [
        ("auto", None, "moved", "Moved 4 bundles, each verified on its new broker."),
        ("observe", None, "would move", "A plan would move 4 bundles. Nothing is moved, because the mode is observe."),
        ("auto", Reason.SETTINGS_CHANGED, "held back", f"{NOT_CARRIED_OUT}{Reason.SETTINGS_CHANGED.meaning}"),
        ("auto", Reason.PLAN_TOO_OLD, "held back", f"{NOT_CARRIED_OUT}{Reason.PLAN_TOO_OLD.meaning} {TOO_OLD}"),
    ],
)
def test_a_plan_says_what_became_of_it(tmp_path, mode, verdict, state, said):
    made = scene(tmp_path, mode=mode)
    made.run(JUST_NOW - timedelta(minutes=1))
    made.run(JUST_NOW, verdict=verdict)

    found = strip(made)

    assert (found.state, found.sentence) == (state, said)


@pytest.mark.parametrize(
    ("verdict", "why", "state"),
    [
        (Reason.PAUSED, "the cluster was paused.", "paused"),
        (Reason.BREAKER_OPEN, "the circuit breaker was open.", "held back"),
        (Reason.BLACKOUT, "a blackout was in force.", "held back"),
        (Reason.OUTSIDE_WINDOW, "no maintenance window was open.", "held back"),
        (Reason.SKIPPED, "a person skipped the run.", "held back"),
        (Reason.STATE_LOST, "the state was lost.", "held back"),
    ],
)
def test_hold_of_a_plan_ends_with_its_cause(tmp_path, verdict, why, state):
    made = scene(tmp_path)
    made.run(JUST_NOW - timedelta(minutes=1))
    folder = made.run(JUST_NOW, verdict=verdict)

    over, said = strip(made), f"{NOT_CARRIED_OUT}{why}"

    assert (over.state, over.sentence) == ("would move", said)
    held = strip(made, control=PAUSE)
    assert (held.state, held.sentence) == ("paused", f"{PAUSED} {said}")
    assert strip(made, scheduled=False).state == "held back"
    entry = ClusterEntry(name="east", given={}, settings=made.settings)
    of_run = overview.run_overview(made.storage, entry, folder, NOW)
    assert of_run is not None
    assert (of_run.status.state, of_run.status.sentence) == (state, said)


@pytest.mark.parametrize(
    ("rolls", "settings", "state", "why"),
    [(True, {}, "held back", Reason.ROLLING), (False, {"max_bytes_per_run": 1}, "unbalanced", Reason.CAP_BYTES)],
)
def test_a_pair_that_fired_is_not_balanced_although_nothing_of_it_moves(tmp_path, rolls, settings, state, why):
    made = scene(tmp_path, **settings)
    made.rolls = rolls
    history(made, JUST_NOW, 2)

    found = strip(made)

    assert (found.state, found.sentence) == (state, f"Bundles need to move but stay: {why.meaning}")


@pytest.mark.parametrize(
    ("refused", "why"), [(Reason.PAUSED, "the cluster was paused."), (Reason.TASK_FAILED, Reason.TASK_FAILED.meaning)]
)
def test_an_approval_that_was_refused_is_not_about_to_move_anything(tmp_path, refused, why):
    made = scene(tmp_path, mode="approve")
    made.run(JUST_NOW - timedelta(minutes=1))
    run = made.run(JUST_NOW, verdict=Reason.AWAITING_APPROVAL)
    question = Question(plan_id=run.name, at=JUST_NOW)
    answers = Answers(plans={run.name: Answer(question=question, at=NOW, by="ada", reason="now", carried_out_by="1")})

    found = strip(made, question=question, answers=answers, why_not_handed_over={run.name: refused})

    said = f"A plan to move 4 bundles was approved by ada: now, but was not carried out: {why}"
    assert (found.state, found.sentence) == ("held back", said)


WAITS = "broker-2 and broker-3 differ by 29 points (hit 5 of 8)"
WOULD_FIRE = f"{WAITS}; moves would start in about 3 min."
NO_SCHEDULER, NOT_LOOKED = "Airflow's scheduler is not running", "No new data for"
RULES = {"breaker": {"failed_moves": 1, "minutes": 60}}
PAUSED = "Rebalancing is paused until 13:00 UTC (ada: a holiday)."
PAUSE = ordered("pause", at=NOW, by="ada", reason="a holiday", until=NOW + timedelta(hours=1))
BLACKOUT = {"start": "2026-11-22T11:00:00", "end": "2026-11-22T13:00:00", "timezone": "UTC", "reason": "a report"}
OPEN_BREAKER = Breaker(opened_at=NOW - timedelta(minutes=5), why="too many moves failed")
SKIP = ordered("skip", at=JUST_NOW, by="ada", reason="a look first")
ROLL = Roll(id="0a1b", by="bob", order=(broker(0),), turn_at=NOW)


@pytest.mark.parametrize(
    ("settings", "facts", "minutes", "state", "said"),
    [
        ({}, {}, 0, "waiting", f"{WAITS}; moves start in about 3 min."),
        ({"mode": "observe"}, {}, 0, "waiting", f"{WOULD_FIRE} Nothing is moved, because the mode is observe."),
        ({}, {"control": PAUSE}, 0, "paused", f"{PAUSED} {WOULD_FIRE}"),
        ({"blackouts": [BLACKOUT]}, {}, 0, "held back", f"{Reason.BLACKOUT.meaning} {WOULD_FIRE}"),
        (RULES, {"breaker": OPEN_BREAKER}, 0, "held back", f"{Reason.BREAKER_OPEN.meaning} {WOULD_FIRE}"),
        ({}, {"control": SKIP}, 0, "held back", f"The next run moves nothing. {WOULD_FIRE}"),
        ({}, {"lost": "x"}, 0, "held back", f"{Reason.STATE_LOST.meaning} {WOULD_FIRE}"),
        ({}, {"roll": ROLL}, 0, "held back", f"{Reason.ROLLING.meaning} {WOULD_FIRE}"),
        ({}, {"roll": ROLL, "control": PAUSE}, 0, "paused", f"{PAUSED} {WOULD_FIRE}"),
        ({}, {"scheduled": False}, 0, "held back", f"{NO_SCHEDULER}, so no run starts. {WAITS}."),
        ({}, {"paused": True}, 0, "paused", "The DAG is paused in Airflow, so no run starts."),
        ({}, {}, 20, "stale", f"{NOT_LOOKED} 20 min."),
        ({}, {"scheduled": False}, 20, "stale", f"{NOT_LOOKED} 20 min. {NO_SCHEDULER}."),
    ],
)
def test_promises_hold_in_each_state(tmp_path, settings, facts, minutes, state, said):
    made = scene(tmp_path, loads=uneven(4, hottest=55, coldest=30), **settings)
    history(made, JUST_NOW - timedelta(minutes=minutes), 5)

    found = seen(made, **facts)

    assert (found.status.state, found.status.sentence) == (state, said)
    assert found.firing == next((words for words in ("moves would start", "moves start") if words in said), "")
    assert (found.status.next_run_at is None) == (facts.get("paused", False) or not facts.get("scheduled", True))


@pytest.mark.parametrize(("minutes", "state"), [(4, "balanced"), (6, "stale")])
def test_old_data_is_stale(tmp_path, minutes, state):
    made = scene(tmp_path, loads=EVEN)
    made.run(NOW - timedelta(minutes=minutes))
    found = strip(made)
    assert found.state == state
    if state == "stale":
        assert found.sentence == "No new data for 6 min."


def test_after_moves_the_range_is_predicted_until_it_is_measured(tmp_path):
    made = scene(tmp_path)
    made.run(JUST_NOW - timedelta(minutes=2))
    before = strip(made)
    assert not before.predicted
    assert before.score_range == pytest.approx(68, abs=3)
    folder = made.run(JUST_NOW - timedelta(minutes=1))
    moved = strip(made)
    assert (moved.state, moved.predicted) == ("moved", True)
    assert moved.score_range == pytest.approx(Summary.read(folder).predicted_range, abs=0.01)
    made.run(JUST_NOW, seconds=0, begun=0)  # it has measured, and has not ended
    measured = strip(made)
    assert (measured.state, measured.predicted) == ("moved", False)
    assert measured.score_range == pytest.approx(moved.score_range, abs=3)
