"""One word and one sentence for whatever a cluster may be in."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from tests.overview_scene import JUST_NOW, NOW, Scene, broker, history, seen, uneven

from pulsar_rebalancer.config.clusters_file import ClusterEntry
from pulsar_rebalancer.config.enums import Mode
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.outcome import wave_file
from pulsar_rebalancer.run.plan import Summary, read_moves
from pulsar_rebalancer.run.request import Finding, RunRequest
from pulsar_rebalancer.show.page import overview
from pulsar_rebalancer.show.page.facts import AirflowFacts, FailedRun
from pulsar_rebalancer.show.page.timeline import Span, timeline
from pulsar_rebalancer.state.orders.breaker import Breaker
from pulsar_rebalancer.state.orders.control_document import Control, Order, PauseOrder
from pulsar_rebalancer.state.orders.question import Answer, Answers, Question
from pulsar_rebalancer.state.roll_document import Roll
from pulsar_rebalancer.strategies.kept import ShedderState

if TYPE_CHECKING:
    from pathlib import Path

    from pulsar_rebalancer.show.page.page_model import Status

EVEN = {broker(number): 40.0 + number for number in range(4)}


def scene(tmp_path: Path, brokers: int = 4, *, loads: dict[str, float] | None = None, **settings: Any) -> Scene:
    return Scene(str(tmp_path), loads or uneven(brokers), **settings)


def strip(made: Scene, **more: Any) -> Status:
    return seen(made, **more).status


def test_without_a_run_there_is_no_data(tmp_path: Path) -> None:
    found = strip(scene(tmp_path))
    assert (found.state, found.collected_at, found.score_range) == ("no data", None, None)
    assert "unpause it" in strip(scene(tmp_path), paused=True).sentence


def test_a_broken_entry_says_what_is_wrong(tmp_path: Path) -> None:
    found = strip(scene(tmp_path), error="clusters.yaml: east: modes: unknown")
    assert (found.state, found.tone, found.sentence) == ("broken", "bad", "clusters.yaml: east: modes: unknown")


def test_a_pair_says_how_far_it_is_from_firing(tmp_path: Path) -> None:
    made = scene(tmp_path, loads=uneven(4, hottest=55, coldest=30))
    history(made, JUST_NOW, 5)

    found = strip(made)

    assert found.state == "waiting"
    # Three more samples, one a minute, the last of which was half a minute ago.
    assert found.sentence == "broker-2 and broker-3 are 29 apart, hit 5 of 8, fires in about 2 minutes."
    assert found.next_run_at == NOW + timedelta(seconds=30)


def test_a_high_gap_counts_its_high_hits(tmp_path: Path) -> None:
    made = scene(tmp_path)
    made.run(JUST_NOW)
    assert "hit 1 of 2, fires in about 30 seconds" in strip(made).sentence


NOT_CARRIED_OUT = "A plan to move 4 bundles was not carried out: "


@pytest.mark.parametrize(
    ("mode", "verdict", "state", "said"),
    [
        ("auto", None, "moved", "Moved 4 bundles, each verified on its new broker."),
        ("observe", None, "would move", "Would move 4 bundles, but mode observe moves nothing."),
        ("auto", Reason.OVER_CAP, "held back", f"{NOT_CARRIED_OUT}{Reason.OVER_CAP.meaning}"),
    ],
)
def test_a_plan_says_what_became_of_it(
    tmp_path: Path, mode: str, verdict: Reason | None, state: str, said: str
) -> None:
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
        (Reason.OUTSIDE_WINDOW, "it was outside the maintenance windows.", "held back"),
        (Reason.SKIPPED, "a person had ordered to skip the run.", "held back"),
        (Reason.CONTROL_UNREADABLE, "the orders that people gave could not be read.", "held back"),
    ],
)
def test_what_held_a_plan_back_is_over_once_it_is_over(tmp_path: Path, verdict: Reason, why: str, state: str) -> None:
    made = scene(tmp_path)
    made.run(JUST_NOW - timedelta(minutes=1))
    folder = made.run(JUST_NOW, verdict=verdict)

    over, said = strip(made), f"{NOT_CARRIED_OUT}{why}"

    assert (over.state, over.sentence) == ("would move", said)
    held = strip(made, control=Control(pause=PAUSE))
    assert (held.state, held.sentence) == ("paused", f"The cluster is paused. {said}")
    assert strip(made, scheduled=False).state == "held back"
    entry = ClusterEntry(name="east", given={}, settings=made.settings)
    of_run = overview.of_one_run(made.storage, entry, folder, NOW)
    assert of_run is not None
    assert (of_run.status.state, of_run.status.sentence) == (state, said)


@pytest.mark.parametrize(
    ("rolls", "settings", "state", "why"),
    [
        (True, {}, "held back", Reason.ROLLING),
        (False, {"max_bytes_per_run": 1}, "unbalanced", Reason.CAP_BYTES),
    ],
)
def test_a_pair_that_fired_is_not_balanced_although_nothing_of_it_moves(
    tmp_path: Path, rolls: bool, settings: dict[str, Any], state: str, why: Reason
) -> None:
    made = scene(tmp_path, **settings)
    made.rolls = rolls
    history(made, JUST_NOW, 2)

    found = strip(made)

    assert (found.state, found.sentence) == (state, f"Bundles should have moved, but stayed: {why.meaning}")


APPROVED = "A plan to move 4 bundles was approved by ada: now; nothing of it has moved yet."
LONG_AGO = Question(plan_id="an older plan", at=NOW - timedelta(hours=2))


@pytest.mark.parametrize(
    ("own", "carried_out_by", "facts", "mode", "state", "said"),
    [
        (True, "", {}, "approve", "held back", "A plan to move 4 bundles was rejected by ada: now."),
        (True, "approved__1", {}, "approve", "would move", APPROVED),
        # The run made the same moves as the plan that people were asked about.
        (False, "approved__1", {}, "approve", "would move", APPROVED),
        (None, "", {}, "approve", "would move", "A plan to move 4 bundles needs a person's approval."),
        (None, "", {"question": LONG_AGO}, "approve", "held back", "A plan to move 4 bundles was not answered."),
        (None, "", {"question": Question()}, "approve", "held back", "A plan to move 4 bundles was not answered."),
        (None, "", {}, "auto", "held back", "A plan to move 4 bundles was not answered."),
        (None, "", {"question": Question(), "approvals_unreadable": "x"}, "approve", "would move", "A plan to move 4"),
    ],
)
def test_a_plan_waits_no_longer_than_its_question(
    tmp_path: Path, own: bool | None, carried_out_by: str, facts: dict[str, Any], mode: str, state: str, said: str
) -> None:
    made = scene(tmp_path, mode="approve")
    made.run(JUST_NOW - timedelta(minutes=1))
    run = made.run(JUST_NOW, verdict=Reason.AWAITING_APPROVAL)
    question = Question(plan_id=run.name if own is not False else "the first plan", at=JUST_NOW)
    answer = Answer(question=question, at=NOW, by="ada", reason="now", carried_out_by=carried_out_by)
    answers = Answers(plans={question.plan_id: answer} if own is not None else {})
    made.settings = made.settings.model_copy(update={"mode": Mode(mode)})

    found = strip(made, **{"question": question, "answers": answers} | facts)

    assert (found.state, found.sentence[: len(said)]) == (state, said)


@pytest.mark.parametrize(
    ("refused", "why"),
    [(Reason.PAUSED, "the cluster was paused."), (Reason.TASK_FAILED, Reason.TASK_FAILED.meaning)],
)
def test_an_approval_that_was_refused_is_not_about_to_move_anything(tmp_path: Path, refused: Reason, why: str) -> None:
    made = scene(tmp_path, mode="approve")
    made.run(JUST_NOW - timedelta(minutes=1))
    run = made.run(JUST_NOW, verdict=Reason.AWAITING_APPROVAL)
    question = Question(plan_id=run.name, at=JUST_NOW)
    answers = Answers(plans={run.name: Answer(question=question, at=NOW, by="ada", reason="now", carried_out_by="1")})

    found = strip(made, question=question, answers=answers, not_handed_over={run.name: refused})

    said = f"A plan to move 4 bundles was approved by ada: now, and was not carried out: {why}"
    assert (found.state, found.sentence) == ("held back", said)


def test_a_hold_is_named(tmp_path: Path) -> None:
    made = scene(tmp_path)
    made.findings = (Finding(reason=Reason.BUILTIN_SHEDDING_ON),)
    made.run(JUST_NOW - timedelta(minutes=1))
    made.run(JUST_NOW, verdict=Reason.ON_HOLD)
    assert Reason.BUILTIN_SHEDDING_ON.meaning in strip(made).sentence


def test_moves_that_went_wrong_are_told(tmp_path: Path) -> None:
    made = scene(tmp_path)
    made.run(JUST_NOW - timedelta(minutes=1))
    made.run(JUST_NOW, astray=1)

    found = seen(made)

    assert (found.status.state, found.status.tone) == ("held back", "warn")
    assert found.status.sentence == f"Moved 3 of 4 bundles: {Reason.UNOWNED.meaning}"
    assert found.plan is not None
    assert (found.plan.done, found.plan.failed, found.plan.moves[0].outcome) == (4, 1, "unowned")


WAITS = "broker-2 and broker-3 are 29 apart, hit 5 of 8"
WOULD_FIRE = f"{WAITS}, would fire in about 2 minutes."
NO_SCHEDULER, NOT_LOOKED = "Airflow's scheduler is not running", "No run has looked at the cluster for"
RULES = {"breaker": {"failed_moves": 1, "minutes": 60}}
PAUSE = PauseOrder(at=NOW, by="ada", reason="a holiday", until=NOW + timedelta(hours=1))
BLACKOUT = {"start": "2026-11-22T11:00:00", "end": "2026-11-22T13:00:00", "timezone": "UTC", "reason": "a report"}
OPEN_BREAKER = Control(breaker=Breaker(opened_at=NOW - timedelta(minutes=5), why="too many moves failed"))
SKIP = Control(skip=Order(at=JUST_NOW, by="ada", reason="a look first"))
ROLL = Roll(id="0a1b", by="bob", order=(broker(0),), turn_at=NOW)
FAILED = FailedRun(run_id="scheduled__now", at=NOW, task="collect", reason="unauthorized")


@pytest.mark.parametrize(
    ("settings", "facts", "minutes", "state", "said"),
    [
        ({}, {}, 0, "waiting", f"{WAITS}, fires in about 2 minutes."),
        ({"mode": "observe"}, {}, 0, "waiting", f"{WAITS}, fires in about 2 minutes. Mode observe moves nothing."),
        ({}, {"control": Control(pause=PAUSE)}, 0, "paused", f"The cluster is paused. {WOULD_FIRE}"),
        ({"blackouts": [BLACKOUT]}, {}, 0, "held back", f"{Reason.BLACKOUT.meaning} {WOULD_FIRE}"),
        (RULES, {"control": OPEN_BREAKER}, 0, "held back", f"{Reason.BREAKER_OPEN.meaning} {WOULD_FIRE}"),
        ({}, {"control": SKIP}, 0, "held back", f"The next run moves nothing. {WOULD_FIRE}"),
        ({}, {"unreadable": "damaged"}, 0, "held back", f"{Reason.DRAINS_UNREADABLE.meaning} {WOULD_FIRE}"),
        ({}, {"roll": ROLL}, 0, "held back", f"{Reason.ROLLING.meaning} {WOULD_FIRE}"),
        ({}, {"roll": ROLL, "control": Control(pause=PAUSE)}, 0, "paused", f"The cluster is paused. {WOULD_FIRE}"),
        ({}, {"scheduled": False}, 0, "held back", f"{NO_SCHEDULER}, so no run starts. {WAITS}."),
        ({}, {"paused": True}, 0, "paused", "The DAG is paused in Airflow, so no run starts."),
        ({}, {}, 20, "stale", f"{NOT_LOOKED} 20 minutes."),
        ({}, {"scheduled": False}, 20, "stale", f"{NOT_LOOKED} 20 minutes. {NO_SCHEDULER}."),
    ],
)
def test_what_is_promised_is_true_in_each_state(
    tmp_path: Path, settings: dict[str, Any], facts: dict[str, Any], minutes: int, state: str, said: str
) -> None:
    made = scene(tmp_path, loads=uneven(4, hottest=55, coldest=30), **settings)
    history(made, JUST_NOW - timedelta(minutes=minutes), 5)

    found = seen(made, **facts)

    assert (found.status.state, found.status.sentence) == (state, said)
    assert found.firing == next((words for words in ("would fire", "fires") if words in said), "")
    assert (found.status.next_run_at is None) == (facts.get("paused", False) or not facts.get("scheduled", True))


def test_orders_are_told_while_the_files_are_unreadable(tmp_path: Path) -> None:
    entry = ClusterEntry(name="east", given={}, settings=Settings(mode="auto"))
    facts = AirflowFacts(control=Control(pause=PAUSE), next_run_at=NOW)
    found = overview.unreadable(entry, facts, SnapshotError(Reason.STORAGE_FAILED, "no disk"), NOW)
    assert (found.state, found.next_run_at) == ("unreadable", NOW)
    assert found.in_force == "Nothing is moved: mode auto; paused until 2026-11-22 13:00 UTC by ada: a holiday."


def test_a_skip_is_over_once_a_run_was_recorded_after_it(tmp_path: Path) -> None:
    made = scene(tmp_path, loads=EVEN)
    made.run(JUST_NOW)
    later = made.storage.new_run(NOW + timedelta(seconds=1)).name
    assert strip(made, control=SKIP).in_force.startswith("Nothing is moved: mode auto; one run is skipped by ada")
    assert strip(made, control=SKIP, last_plan=later).in_force == ""


@pytest.mark.parametrize(
    ("failed", "said"),
    [
        (FAILED, f"The newest run failed in collect (unauthorized): {Reason('unauthorized').meaning}"),
        (FAILED.model_copy(update={"reason": ""}), "The newest run failed in collect: see its log."),
        (FAILED.model_copy(update={"task": "", "reason": ""}), "The newest run took too long and was ended: see"),
    ],
)
def test_a_run_that_left_no_files_is_told(tmp_path: Path, failed: FailedRun, said: str) -> None:
    made = scene(tmp_path, loads=EVEN)
    assert strip(made, failed=failed).state == "failed"
    made.run(JUST_NOW)
    found = strip(made, failed=failed)
    assert found.state == "failed"
    assert found.sentence.startswith(said)


def test_the_first_run_is_not_failed_while_it_is_under_way(tmp_path: Path) -> None:
    made = scene(tmp_path)
    folder = made.run(JUST_NOW)
    for name in ("plan", "outcome.json"):
        (folder / name).delete()
    found = strip(made)
    assert (found.state, found.tone) == ("looking", "busy")
    assert "data judged, nothing decided yet" in found.sentence
    (folder / "validation.json").delete()
    assert "data collected" in strip(made).sentence
    entry = ClusterEntry(name="east", given={}, settings=made.settings)
    ended = overview.of_one_run(made.storage, entry, folder, NOW + timedelta(hours=1))
    assert ended is not None
    assert ended.status.state == "failed"


def test_a_dry_run_names_its_own_mode(tmp_path: Path) -> None:
    made = scene(tmp_path, mode="observe")
    made.run(JUST_NOW - timedelta(minutes=1))
    made.run(JUST_NOW)
    made.settings = made.settings.model_copy(update={"mode": Mode.AUTO})
    assert strip(made).sentence == "Would move 4 bundles, but mode observe moves nothing."


def test_a_run_that_validation_stopped_is_not_merely_failed(tmp_path: Path) -> None:
    made = scene(tmp_path)
    made.findings = (Finding(reason=Reason.TOO_FEW_BROKERS),)
    folder = made.run(JUST_NOW)
    run_id = RunRequest.read(folder).airflow_run_id
    failed = FAILED.model_copy(update={"run_id": run_id, "task": "validate"})
    assert strip(made, failed=failed).state == "blocked"


def test_a_run_is_shown_from_its_open_gate_on(tmp_path: Path) -> None:
    made = scene(tmp_path)
    made.run(JUST_NOW - timedelta(minutes=1))
    folder = made.run(JUST_NOW, seconds=0, begun=0)
    assert strip(made).state == "waiting"
    # A plan made by hand is shown meanwhile: it lies beside the runs, and has no outcome.
    made.hits = ShedderState()
    made.run(JUST_NOW + timedelta(seconds=10), seconds=0, begun=0)

    found = seen(made, opened=RunRequest.read(folder).airflow_run_id)

    assert (found.status.state, found.status.sentence) == ("moving", "Moving 4 bundles: 0 done so far.")
    assert found.plan is not None
    assert (found.plan.done, found.plan.bundles, found.plan.under_way) == (0, 4, True)


@pytest.mark.parametrize("begun", [0, 2])
def test_a_run_that_left_no_outcome_moves_no_longer_than_a_run_may_last(tmp_path: Path, begun: int) -> None:
    made = scene(tmp_path)
    made.run(JUST_NOW - timedelta(minutes=1))
    folder = made.run(JUST_NOW, seconds=0, begun=begun)
    entry = ClusterEntry(name="east", given={}, settings=made.settings)

    def state(minutes: float) -> tuple[str, str]:
        found = overview.of_one_run(made.storage, entry, folder, JUST_NOW + timedelta(minutes=minutes))
        assert found is not None
        return found.status.state, found.status.sentence

    assert state(29)[0] == "moving"
    assert state(31) == ("failed", f"The run left no outcome. {Reason.UNFINISHED.action}")


def test_a_run_that_moves_bundles_says_how_many_are_done(tmp_path: Path) -> None:
    made = scene(tmp_path)
    made.run(JUST_NOW - timedelta(minutes=1))
    folder = made.run(JUST_NOW, seconds=0)
    ended = wave_file(folder, 0).read_json()
    begun = {"bundle": read_moves(folder)[-1].bundle, "reason": "interrupted", "attempts": 1}
    wave_file(folder, 0).write_json([*ended, ended[0] | begun])  # until its end is written

    found = seen(made)

    assert (found.status.state, found.status.sentence) == ("moving", "Moving 4 bundles: 2 done so far.")
    assert found.plan is not None
    assert (found.plan.done, found.plan.bundles, found.plan.ended_at) == (2, 4, None)


def test_a_failed_validation_is_told_in_plain_words(tmp_path: Path) -> None:
    made = scene(tmp_path)
    made.findings = (Finding(reason=Reason.TOO_FEW_BROKERS, detail="1 of 4"),)
    made.run(JUST_NOW)

    found = seen(made)

    assert (found.status.state, found.status.tone) == ("blocked", "bad")
    assert found.status.sentence == f"Validation failed: {Reason.TOO_FEW_BROKERS.meaning} 1 of 4."
    (told,) = found.findings
    assert (told.reason, told.effect, told.action) == ("too_few_brokers", "block", Reason.TOO_FEW_BROKERS.action)
    assert found.brokers  # what was collected is shown all the same


def test_brokers_that_are_close_are_balanced(tmp_path: Path) -> None:
    made = scene(tmp_path, loads=EVEN)
    made.run(JUST_NOW)
    found = strip(made)
    assert (found.state, found.tone) == ("balanced", "good")
    assert found.sentence.startswith("4 brokers are within ")


def test_one_broker_has_nobody_to_share_with(tmp_path: Path) -> None:
    made = scene(tmp_path, loads={broker(0): 90.0})
    made.run(JUST_NOW)
    assert strip(made).sentence.startswith("Only one broker takes part")


@pytest.mark.parametrize(("minutes", "state"), [(4, "balanced"), (6, "stale")])
def test_old_data_is_stale(tmp_path: Path, minutes: int, state: str) -> None:
    made = scene(tmp_path, loads=EVEN)
    made.run(NOW - timedelta(minutes=minutes))
    found = strip(made)
    assert found.state == state
    if state == "stale":
        assert found.sentence == "No run has looked at the cluster for 6 minutes."


def test_a_mode_that_is_off_is_told(tmp_path: Path) -> None:
    assert strip(scene(tmp_path, mode="off")).state == "off"


def test_a_dry_run_is_shown_and_is_no_look_at_the_cluster(tmp_path: Path) -> None:
    made = scene(tmp_path)
    made.run(NOW - timedelta(hours=3))
    for seconds in range(22):
        folder = made.run(JUST_NOW - timedelta(seconds=seconds), seconds=0, begun=0, dry_run=True)
    assert (strip(made).state, strip(made).sentence) == ("stale", "No run has looked at the cluster for 3 hours.")
    assert sum(bucket.runs for bucket in timeline(made.storage, Span.DAY, NOW).buckets) == 1

    entry = ClusterEntry(name="east", given={}, settings=made.settings)
    for now in (NOW, NOW + timedelta(days=1)):
        of_plan = overview.of_one_run(made.storage, entry, folder, now)
        assert of_plan is not None
        assert of_plan.status.state == "would move"
        assert of_plan.status.sentence.endswith(" is shown, nothing is carried out.")


def test_after_moves_the_range_is_predicted_until_it_is_measured(tmp_path: Path) -> None:
    made = scene(tmp_path)
    made.run(JUST_NOW - timedelta(minutes=2))
    before = strip(made)
    assert not before.predicted
    assert before.score_range == pytest.approx(68, abs=3)
    folder = made.run(JUST_NOW - timedelta(minutes=1))
    moved = strip(made)
    assert (moved.state, moved.predicted, moved.deviation) == ("moved", True, None)
    assert moved.score_range == pytest.approx(Summary.read(folder).predicted_range, abs=0.01)
    made.run(JUST_NOW, seconds=0, begun=0)  # it has measured, and has not ended
    measured = strip(made)
    assert (measured.state, measured.predicted) == ("moved", False)
    assert measured.score_range == pytest.approx(moved.score_range, abs=3)


def test_no_range_is_predicted_of_moves_that_went_wrong(tmp_path: Path) -> None:
    made = scene(tmp_path)
    made.run(JUST_NOW - timedelta(minutes=1))
    made.run(JUST_NOW, astray=1)
    assert (strip(made).predicted, strip(made).score_range) == (False, None)


def test_one_run_is_told_as_it_was(tmp_path: Path) -> None:
    made = scene(tmp_path)
    folder = made.run(NOW - timedelta(hours=2))
    made.run(JUST_NOW)
    entry = ClusterEntry(name="east", given={}, settings=Settings(mode="auto"))

    found = overview.of_one_run(made.storage, entry, folder, NOW)

    assert found is not None
    assert (found.of_one_run, found.folder, found.status.state) == (True, folder.name, "waiting")
    assert found.status.sentence.endswith("apart, hit 1 of 2.")  # nothing is promised of what is over
    assert found.pairs[0].seconds_to_fire == 60
    assert overview.of_one_run(made.storage, entry, made.storage.new_run(NOW), NOW) is None
