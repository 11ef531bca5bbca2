import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.airflow_context import MemoryState, context, store_of
from tests.airflow_runs import CLUSTER, bundle, make_run, move_row

from pulsar_rebalancer.carry_out.move_history import WaveHistory
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.orders.breaker import Breaker
from pulsar_rebalancer.orders.order import Control, GivenOrder
from pulsar_rebalancer.run.outcome import MoveOutcome, Outcome
from pulsar_rebalancer.run.plan import Move, read_moves
from pulsar_rebalancer.run.request import Finding, Validation
from pulsar_rebalancer.show.alert_conditions import EndedRun
from pulsar_rebalancer.show.incidents import run_value_lines
from pulsar_rebalancer.show.measurements import outcome_text
from pulsar_rebalancer.state import MovesState, Unload
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer_airflow.operators import ReportOperator
from pulsar_rebalancer_airflow.state_store import moves_alias, moves_asset


def carried_out(run: StoragePath, state: MemoryState, wave: int, reasons: dict[int, str]) -> None:
    """A wave with these outcomes; an empty reason is a bundle that was under way when the task was killed."""
    history = WaveHistory(store_of(state).get(MovesState), store_of(state).change_moves_state, run, wave)
    planned: list[Move] = [m for m in read_moves(run) if m.bundle in {bundle(number) for number in reasons}]
    history.record_planned_moves(planned, datetime.now(UTC))
    by_bundle = {bundle(number): reason for number, reason in reasons.items()}
    for move in planned:
        asyncio.run(history.record_begin(move))
        if reason := by_bundle[move.bundle]:
            history.add_outcome(
                MoveOutcome(
                    bundle=move.bundle,
                    source=move.source,
                    destination=move.destination,
                    reason=reason,
                    attempts=int(reason in ("moved", "astray", "unknown_owner")),
                ),
                datetime.now(UTC),
            )
    history.write_outcomes()


def report(
    run: StoragePath | None, state: MemoryState, gate: str | None = "open", attempt: tuple[int, int] = (1, 1)
) -> tuple[dict[str, int], Any]:
    """What the task returns, and its events; `attempt` is the number of the try, and how many there may be."""
    xcoms = {("gate", "reason"): gate} if gate else {}
    given: Any = context(CLUSTER, state, xcoms=xcoms)
    given["ti"].try_number, given["ti"].max_tries = attempt
    operator = ReportOperator(task_id="report", cluster=CLUSTER, run=run.uri if run else None, gate="gate", retries=1)
    return operator.execute(given), given["outlet_events"].get(moves_alias(CLUSTER).name, [])


@pytest.mark.parametrize(
    ("reason", "why"), [("", ""), ("astray", "1 move of a run failed or landed on the wrong broker")]
)
def test_the_breaker_counts_moves_that_failed_and_none_of_a_killed_worker(storage, state, reason, why):
    run = make_run(storage, [move_row(1, "a:1", "b:1")])
    carried_out(run, state, 0, {1: reason})
    settings = Settings.model_validate({"breaker": {"failed_moves": 1}})
    operator = ReportOperator(task_id="report", cluster=CLUSTER, run=run.uri, gate="gate", settings=settings)

    operator.execute(context(CLUSTER, state, xcoms={("gate", "reason"): "open"}))

    assert store_of(state).get(Breaker).why == why


@pytest.mark.parametrize(("reason", "note"), [("moved", "moved 1, range 60 → 20"), ("no_topic", None)])
def test_a_run_that_moved_bundles_says_so_for_its_note(storage, state, reason, note):
    run = make_run(storage, [move_row(1, "a:1", "b:1")])
    summary = run / "plan" / "summary.json"
    summary.write_json(summary.read_json() | {"predicted_min": 20.0, "predicted_max": 40.0})
    carried_out(run, state, 0, {1: reason})
    given: Any = context(CLUSTER, state, xcoms={("gate", "reason"): "open"})

    ReportOperator(task_id="report", cluster=CLUSTER, run=run.uri, gate="gate").execute(given)

    assert given["ti"].pushed.get("note") == note


def test_says_what_became_of_every_move(storage, state):
    run = make_run(storage, [move_row(n, "a:1", "b:1", wave=n // 3) for n in range(6)])
    carried_out(run, state, 0, {0: "moved", 1: "astray", 2: "no_topic"})
    carried_out(run, state, 1, {3: "moved", 4: ""})  # killed with bundle 4 under way, 5 never begun

    counts, events = report(run, state)

    assert counts == {"moved": 2, "astray": 1, "no_topic": 1, "interrupted": 1, "not_attempted": 1}
    outcome = Outcome.read(run)
    assert outcome.verdict == "open"
    assert [m.reason for m in outcome.moves] == ["moved", "astray", "no_topic", "moved", "interrupted", "not_attempted"]
    assert events == [
        (moves_asset(CLUSTER).name, {"cluster": CLUSTER, "plan_id": run.name, "run": run.uri, "moved": 3, "split": 0})
    ]
    text = outcome_text(outcome, run)
    assert "10.0 to 70.0 % (range 60.0) over 3 brokers" in text
    assert "2 of 6 on their planned broker (2 moved" in text
    assert f"{bundle(1)}: a:1 -> b:1: astray" in text


def test_report_names_orders_in_force_and_who_gave_them(storage, state):
    begun = datetime.now(UTC) - timedelta(minutes=1)
    run = make_run(storage, max_bundles_per_run=3)
    store_of(state).put(Control().with_order(GivenOrder(action="stop", at=datetime.now(UTC), by="bob", reason="wait")))
    given: Any = context(CLUSTER, state, xcoms={("gate", "reason"): "open"}, started=begun)
    now = Settings.model_validate({"mode": "auto", "blackouts": [{"cron": "* * * * *", "minutes": 1}]})

    ReportOperator(task_id="report", cluster=CLUSTER, run=run.uri, gate="gate", settings=now).execute(given)

    outcome = Outcome.read(run)
    assert outcome.in_force.startswith("Nothing is moved: mode auto; blackout ")
    assert "; stopped by bob: wait; " in outcome.in_force
    assert outcome.in_force.endswith("; caps from the clusters file: 3 bundles per run")
    assert f"  state:   {outcome.in_force}" in outcome_text(outcome, run)
    assert run_value_lines(EndedRun({}, outcome=outcome))[-1] == f"in force: {outcome.in_force}"


def test_bundles_left_alone_are_not_recently_unloaded(storage, state):
    run = make_run(storage, [move_row(n, "a:1", "b:1") for n in range(4)])
    carried_out(run, state, 0, {0: "moved", 1: "owner_changed", 2: "", 3: "unknown_owner"})

    report(run, state)

    history = store_of(state).get(MovesState).unloads
    assert {b: u.outcome for b, u in history.items()} == {
        bundle(0): "moved",
        bundle(2): "interrupted",
        bundle(3): "unknown_owner",
    }


@pytest.mark.parametrize(
    ("settings", "minutes"),
    [({}, 30), ({"grace_period_minutes": 0, "interval_seconds": 600}, 30), ({"grace_period_minutes": 1}, 25)],
    ids=["grace period", "three intervals", "learning"],
)
def test_forgets_unloads_once_nothing_depends_on_them(storage, state, settings, minutes):
    def unloaded(ago: float) -> Unload:
        return Unload(
            at=datetime.now(UTC) - timedelta(minutes=ago), plan_id="p", source="a:1", destination="b:1", outcome="moved"
        )

    store_of(state).put(MovesState(unloads={bundle(8): unloaded(minutes + 1), bundle(9): unloaded(minutes - 1)}))

    report(make_run(storage, **settings), state, gate="nothing_to_do")

    assert set(state.documents[MovesState.KEY]["unloads"]) == {bundle(9)}


def test_no_event_and_no_write_when_nothing_moved(storage, state):
    run = make_run(storage, [move_row(0, "a:1", "b:1")], mode="observe")

    counts, events = report(run, state, gate="observe")

    assert (counts, events, state.writes) == ({}, [], [])
    assert Outcome.read(run).verdict == "observe"


@pytest.mark.parametrize(("blocked", "verdict"), [(True, "blocked"), (False, "unfinished")])
def test_runs_that_stopped_early(storage, state, blocked, verdict):
    finding = Finding(reason="too_few_brokers")
    run = make_run(storage, validation=Validation(findings=(finding,) if blocked else ()))
    (run / "plan").delete()

    report(run, state, gate=None)

    assert Outcome.read(run).verdict == verdict


@pytest.mark.parametrize("earlier", ["open", "nothing_to_do"])
@pytest.mark.parametrize(("blocked", "verdict"), [(True, "blocked"), (False, "unfinished")])
def test_verdict_of_an_earlier_folder_is_ignored(storage, state, earlier, blocked, verdict):
    """The run was cleared from collect on, and ended before its gate was asked again."""
    finding = Finding(reason="too_few_brokers")
    before, run = make_run(storage), make_run(storage, validation=Validation(findings=(finding,) if blocked else ()))
    (run / "plan").delete()
    said = {("gate", "reason"): earlier, ("gate", "folder"): before.uri, ("collect", "return_value"): run.uri}
    operator = ReportOperator(task_id="report", cluster=CLUSTER, run=run.uri, gate="gate")

    operator.execute(context(CLUSTER, state, xcoms=said))

    assert Outcome.read(run).verdict == verdict


def test_a_gate_that_is_asked_again_later_takes_nothing_back(storage, state):
    """Somebody clears the gate of the latest run when its plan is too old, then once more when nobody remembers it."""
    run = make_run(storage, [move_row(n, "a:1", "b:1") for n in range(4)])
    carried_out(run, state, 0, {0: "moved", 1: "astray", 2: ""})
    counts, events = report(run, state)
    before = Outcome.read(run)
    assert (counts, len(events)) == ({"moved": 1, "astray": 1, "interrupted": 1, "not_attempted": 1}, 1)

    assert report(run, state, gate="plan_too_old") == (counts, [])
    state.documents.clear()
    assert report(run, state, gate=None) == (counts, [])

    after = Outcome.read(run)
    assert after.model_copy(update={"ended_at": before.ended_at}) == before


def test_a_retry_sends_the_event_that_was_lost_with_the_attempt_before(storage, state):
    run = make_run(storage, [move_row(0, "a:1", "b:1")])
    carried_out(run, state, 0, {0: "moved"})
    _, lost = report(run, state, attempt=(1, 1))

    assert report(run, state, attempt=(2, 1))[1] == lost != []
    assert report(run, state, attempt=(3, 3))[1] == [], "it was cleared after its end, and its event was sent"
