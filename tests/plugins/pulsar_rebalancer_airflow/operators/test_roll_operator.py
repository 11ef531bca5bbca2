from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time.comms import ErrorResponse
from tests.airflow_context import MemoryState, context, store_of
from tests.include.pulsar_rebalancer.decide.snapshots import NOW, Snapshots
from tests.plugins.pulsar_rebalancer_airflow.operators.control_scene import control

from pulsar_rebalancer.config.clusters_file import ClusterEntry
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.errors import AdminError, RebalancerError, SettingsError, SnapshotError
from pulsar_rebalancer.orders.manual_plans import Drain, Drains, Question
from pulsar_rebalancer.orders.order import Control, GivenOrder
from pulsar_rebalancer.orders.roll_document import Phase, Roll
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer_airflow import notifications
from pulsar_rebalancer_airflow.operators import RollOperator, roll

OWNED = {broker: {f"t/n/0x{n:08x}_0x{n + 1:08x}": 5.0} for n, broker in enumerate("abc")}
PAUSE = {"pause": {"until": datetime(2100, 1, 1, tzinfo=UTC), "reason": "holiday"}}


class Desk:
    def __init__(self, folder: Path, owned: Any = None, **settings: Any) -> None:
        self.snapshots = Snapshots(folder, owned or OWNED)
        self.snapshots.take(after=datetime.now(UTC) - NOW)
        self.settings = Settings.model_validate({"mode": "auto"} | settings)
        self.state = MemoryState()
        self.runs: dict[str, str] = {}
        self.dag: Any = None
        self.paused = False
        self.pushed: dict[str, Any] = {}
        self.owns: set[str] | RebalancerError = set()

    def act(self, run: str = "", user: str = "bob", attempt: int = 1, **form: Any) -> Any:
        """What the task returns after one step, or the reason code."""
        entry = ClusterEntry(name="east", given={}, settings=self.settings)
        given: Any = context("east", self.state, params=form, user=user, run_id=run, dag_id="pulsar_roll__east")
        given["ti"].runs, self.pushed = self.runs, given["ti"].pushed
        given["ti"].paused, given["ti"].try_number = self.paused, attempt
        if self.dag is not None:
            given["ti"].get_dag = self.dag
        task = RollOperator(task_id="roll", entry=entry, root=self.snapshots.storage.root)
        object.__setattr__(task, "_owned_bundles", self._answer)
        try:
            return task.poke(given).xcom_value
        except AirflowFailException:
            return str(given["ti"].pushed["failure"])

    async def _answer(self, _: Roll) -> set[str]:
        if isinstance(self.owns, RebalancerError):
            raise self.owns
        return self.owns

    def plan(self, **form: Any) -> str:
        return str(self.act(user="ada", reason="patch", **form)["plan"])

    @property
    def roll(self) -> Roll:
        return store_of(self.state).get(Roll)

    def empties(self, run: str) -> Any:
        """Have the first broker empty, as if runs had drained it, and take the next step."""
        roll = self.roll.with_phase(Phase.RESTARTING, datetime.now(UTC), "")
        changed = {"started": NOW - timedelta(days=9), "left": 0, "may_restart": True}
        store_of(self.state).put(roll.model_copy(update=changed))
        return self.act(run)


def test_a_roll_that_was_shown_begins_once_and_is_nobody_elses(tmp_path):
    desk = Desk(tmp_path)
    plan = desk.plan(brokers=["b:1", "a:1"])
    assert not desk.roll.is_active

    assert desk.act("first", plan=plan) == {}
    assert (desk.roll.broker, desk.roll.by, desk.roll.reason) == ("b:1", "bob", "patch")
    assert desk.act("first", plan=plan) == {}, "its own run goes on"
    desk.runs = {"first": "running"}
    assert desk.act("second", plan=plan) == "rolling"


@pytest.mark.parametrize("runs", [{}, {"first": "failed"}], ids=["gone", "ended"])
def test_another_run_continues_a_roll_whose_run_no_longer_does(tmp_path, runs):
    desk = Desk(tmp_path)
    plan = desk.plan(brokers=["b:1", "a:1"])
    desk.act("first", plan=plan)
    begun = desk.roll
    desk.runs = runs
    assert desk.act("second", plan="0" * 64) == "rolling"

    assert desk.act("second", user="eve", plan=plan) == {}
    assert desk.roll == begun.model_copy(update={"run_id": "second"})
    desk.runs = {"second": "running"}
    assert desk.act("first", plan=plan) == "rolling", "the former run was cleared"
    stop = GivenOrder(action="stop_roll", at=datetime.now(UTC), by="eve", reason="enough")
    store_of(desk.state).put(Control(orders=(stop,)))
    assert desk.act("second") == "roll_stopped"


@pytest.mark.parametrize(
    ("settings", "form", "reason"),
    [
        ({}, {"brokers": ["z:1"], "reason": "patch"}, "unknown_name"),
        ({}, {"brokers": ["a:1"]}, "wrong_setting"),
        ({}, {"brokers": ["a:1", "a:1"], "reason": "patch"}, "wrong_setting"),
        ({}, {"brokers": ["no broker"], "reason": "patch"}, "wrong_setting"),
        ({}, {"plan": "0" * 64}, "other_plan"),
        ({"interval_seconds": 5}, {"plan": "0" * 63}, "wrong_setting"),
    ],
)
def test_bad_forms(tmp_path, settings, form, reason):
    assert Desk(tmp_path, **settings).act(**form) == reason


@pytest.mark.parametrize(
    ("settings", "user", "reason"),
    [
        ({"mode": "observe"}, "bob", "observe"),
        ({"two_people": True}, "ada", "same_person"),
        ({"two_people": True, "mode": "approve"}, "ada", "same_person"),
        ({"max_awaiting_minutes": 1e-9}, "bob", "plan_expired"),
    ],
)
def test_roll_that_cannot_begin_is_refused(tmp_path, settings, user, reason):
    desk = Desk(tmp_path, **settings)
    assert desk.act(user=user, plan=desk.plan()) == reason


def test_no_roll_begins_once_a_broker_has_restarted_since_it_was_shown(tmp_path):
    desk = Desk(tmp_path)
    plan = desk.plan(brokers=["b:1"])
    desk.snapshots.started["a:1"] = timedelta(minutes=1)
    desk.snapshots.take(after=datetime.now(UTC) - NOW)
    assert desk.act(plan=plan) == "other_plan"


def test_no_roll_begins_while_a_broker_is_drained_and_the_dry_run_says_so(tmp_path):
    desk = Desk(tmp_path, **PAUSE)
    drain = Drain(at=NOW, by="ada", reason="new disks")
    store_of(desk.state).put(Drains(brokers={"c:1": drain}))
    shown = desk.act(user="ada", reason="patch", brokers=["a:1"])
    assert shown["waits"].startswith("paused until 2100-01-01 00:00 UTC")
    assert shown["refused"] == "draining: release these brokers first: c:1"
    assert desk.act(plan=shown["plan"]) == "draining"

    store_of(desk.state).put(Drains())
    assert desk.act(plan=shown["plan"]) == {}


def no_such_dag(dag_id: str) -> Any:
    raise refusal(404)


def refusal(status: int) -> AirflowRuntimeError:
    return AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail={"status_code": status}))


def test_the_users_own_dag_has_to_be_there_and_is_triggered_once(tmp_path, monkeypatch):
    desk, triggered = Desk(tmp_path, roll_restart_dag="restart_broker"), []

    def trigger(dag_id: str, run_id: str, conf: dict[str, str]) -> None:
        triggered.append((dag_id, conf))
        desk.runs[run_id] = "running"

    monkeypatch.setattr(roll, "_trigger_run", trigger)
    desk.paused = True
    shown = desk.act(user="ada", reason="patch", brokers=["a:1"])
    why = "restart_failed: the rolling restart needs DAG restart_broker, which is paused in Airflow"
    assert shown["refused"] == why
    plan, desk.dag, desk.paused = shown["plan"], no_such_dag, False
    assert desk.act("run", plan=plan) == "restart_failed"
    desk.dag = None
    assert desk.act("run", plan=plan) == {}
    assert triggered == []

    desk.empties("run")
    assert desk.act("run") == {}
    assert triggered == [("restart_broker", {"broker": "a:1", "roll": plan})]
    desk.runs = dict.fromkeys(desk.runs, "failed")
    assert desk.act("run") == "restart_failed"
    assert desk.roll.stranded == "a:1"
    assert desk.act("run", plan=plan) == "plan_used", "the task was cleared after the roll's end"


def test_an_order_to_skip_a_broker_skips_no_other(tmp_path):
    desk = Desk(tmp_path)
    desk.act("run", plan=desk.plan(brokers=["a:1", "b:1"]))
    late = GivenOrder(
        action="skip_broker", at=datetime.now(UTC) + timedelta(hours=1), by="eve", reason="later", subject="a:1"
    )
    store_of(desk.state).put(Control(orders=(late,)))
    desk.act("run")
    desk.act("run")
    assert (desk.roll.done, desk.roll.broker) == ({"a:1": "roll_stopped"}, "b:1")
    given = {"action": "skip_broker", "reason": "later", "subject": "a:1"}
    with pytest.raises(AirflowFailException, match="not the turn of a:1; current broker: b:1"):
        control(desk.snapshots.storage, desk.state, desk.settings, given)


@pytest.mark.parametrize("lost", ["a:1", "c:1"])
def test_the_users_own_dag_restarts_no_broker_while_one_is_not_listed(tmp_path, monkeypatch, lost):
    desk, triggered = Desk(tmp_path, roll_restart_dag="restart_broker"), []
    monkeypatch.setattr(roll, "_trigger_run", lambda *given: triggered.append(given))
    desk.act("run", plan=desk.plan(brokers=["a:1"]))
    owned = dict(desk.snapshots.owned)
    del desk.snapshots.owned[lost]
    desk.snapshots.take(after=datetime.now(UTC) - NOW)
    desk.empties("run")
    desk.act("run")
    assert triggered == []
    assert desk.roll.waits == f"{lost} to return to the list of active brokers"

    desk.snapshots.owned = owned
    desk.snapshots.take(after=datetime.now(UTC) - NOW)
    desk.act("run")
    assert len(triggered) == 1


(OF_B,) = OWNED["b"]
UNREACHABLE = AdminError(Reason.UNREACHABLE, "no connection")


@pytest.mark.parametrize(
    ("owns", "waits"),
    [
        ({OF_B}, "1 bundle to leave a:1"),
        (UNREACHABLE, "a:1 to recover: unreachable"),
        (SettingsError(Reason.WRONG_SETTING, "host"), "a:1 to recover: wrong_setting"),
    ],
    ids=["owns another's bundle", "is down", "wrong connection"],
)
def test_the_users_own_dag_restarts_no_broker_that_does_not_itself_say_it_is_empty(tmp_path, monkeypatch, owns, waits):
    desk, triggered = Desk(tmp_path, roll_restart_dag="restart_broker"), []
    monkeypatch.setattr(roll, "_trigger_run", lambda *given: triggered.append(given))
    desk.act("run", plan=desk.plan(brokers=["a:1"]))
    desk.owns = owns
    desk.empties("run")
    assert (desk.roll.waits, desk.roll.may_restart, triggered) == (waits, False, [])

    desk.owns = set(OWNED["a"])  # those that never leave
    desk.empties("run")
    assert len(triggered) == 1


def test_a_roll_waits_while_the_sample_of_the_empty_broker_cannot_be_read(tmp_path):
    desk = Desk(tmp_path, roll_restart_dag="restart_broker")
    desk.act("run", plan=desk.plan(brokers=["a:1"]))
    desk.owns = SnapshotError(Reason.FILE_DAMAGED, "bundles.parquet is damaged")
    desk.empties("run")
    assert desk.roll.is_active
    assert desk.roll.waits == "a usable sample: bundles.parquet is damaged"


@pytest.mark.parametrize(("owns", "may"), [({OF_B}, False), (UNREACHABLE, True)], ids=["owns a bundle", "restarts"])
def test_a_person_restarts_no_broker_that_has_got_a_bundle_since_the_sample(tmp_path, owns, may):
    desk = Desk(tmp_path)
    desk.act("run", plan=desk.plan(brokers=["a:1"]))
    desk.owns = owns
    desk.empties("run")
    assert desk.roll.may_restart is may


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Messages, each of which a receiver accepts."""
    messages: list[Any] = []

    def deliver(_: str, given: Any) -> list[bool]:
        messages.extend(given)
        return [True]

    monkeypatch.setattr(notifications, "deliver_messages", deliver)
    return messages


def test_a_person_is_asked_once_and_told_that_the_roll_stopped(tmp_path, sent):
    desk = Desk(tmp_path, alert_connection="pulsar_alerts", roll_wait_minutes=60)
    desk.act("run", plan=desk.plan(brokers=["a:1"]))
    desk.empties("run")
    desk.act("run")
    (asked,) = sent
    assert desk.roll.asked == "a:1"
    assert asked.title == "Pulsar east: restart a broker now"
    assert "restart a:1 now" in asked.body

    past = dict.fromkeys(("since", "progress_at"), NOW)
    store_of(desk.state).put(desk.roll.model_copy(update=past))
    assert desk.act("run") == "broker_not_back"
    assert "a:1 stays drained until a person releases it" in sent[1].body
    assert "broker_not_back x1" in sent[1].body


def test_the_end_says_whose_bundles_are_elsewhere(tmp_path, sent):
    desk = Desk(tmp_path, alert_connection="pulsar_alerts")
    desk.act("run", plan=desk.plan(brokers=["a:1"]))
    assert desk.pushed == {}
    skipped = {"phase": Phase.RETURNING, "left": 2, "since": NOW}
    store_of(desk.state).put(desk.roll.model_copy(update=skipped))
    skip = GivenOrder(action="skip_broker", at=datetime.now(UTC), by="eve", reason="enough", subject="a:1")
    store_of(desk.state).put(Control(orders=(skip,)))

    assert desk.act("run") == {"a:1": "rolled"}
    assert desk.pushed == {"elsewhere": {"a:1": "2 bundles"}}
    assert desk.act("run", attempt=2) == {"a:1": "rolled"}, "it crashed before Airflow recorded the end"
    assert desk.pushed == {"elsewhere": {"a:1": "2 bundles"}}
    (message,) = sent
    assert message.title == "Pulsar east: bundles stay elsewhere"
    assert "bundles have not returned to a:1 (2 bundles)" in message.body


@pytest.mark.parametrize("accepted", [True, False])
def test_the_end_that_nobody_was_told_is_noted(tmp_path, monkeypatch, accepted):
    desk = Desk(tmp_path, alert_connection="pulsar_alerts")
    monkeypatch.setattr(notifications, "deliver_messages", lambda *_: [accepted])
    desk.act("run", plan=desk.plan())
    store_of(desk.state).put(
        Control().with_order(GivenOrder(action="stop_roll", at=datetime.now(UTC), by="eve", reason="enough"))
    )
    assert desk.act("run") == "roll_stopped"
    assert desk.roll.untold is not accepted


def test_people_who_were_asked_to_restart_a_broker_hear_that_it_was_skipped(tmp_path, sent):
    desk = Desk(tmp_path, alert_connection="pulsar_alerts")
    desk.act("run", plan=desk.plan(brokers=["a:1"]))
    desk.empties("run")
    skip = GivenOrder(action="skip_broker", at=datetime.now(UTC), by="eve", reason="later", subject="a:1")
    store_of(desk.state).put(Control(orders=(skip,)))
    for _ in range(2):
        desk.act("run")

    assert desk.roll.phase is Phase.RETURNING
    assert [message.title for message in sent] == [
        "Pulsar east: restart a broker now",
        "[Resolved] Pulsar east: restart a broker now",
    ]
    assert "a:1 no longer needs a restart" in sent[1].body
    assert "roll_stopped x1" in sent[1].body


@pytest.mark.parametrize("restarted", [True, False], ids=["restarted unasked", "another broker lost"])
def test_call_to_restart_is_withdrawn_once_it_is_unsafe(tmp_path, sent, restarted):
    desk = Desk(tmp_path, alert_connection="pulsar_alerts")
    desk.act("run", plan=desk.plan(brokers=["a:1"]))
    desk.empties("run")
    if restarted:
        desk.snapshots.started["a:1"] = timedelta(minutes=1)
    else:
        desk.snapshots.quarantined = ["c:1"]
    desk.snapshots.take(after=datetime.now(UTC) - NOW)
    for _ in range(2):
        desk.act("run")
    assert [message.title for message in sent][1:] == ["[Resolved] Pulsar east: restart a broker now"]
    assert "a:1 no longer needs a restart" in sent[1].body
    assert desk.roll.asked == ""


@pytest.mark.parametrize(
    ("by_hand", "runs", "refused"),
    [
        (True, {}, True),
        (True, {"ask": "running"}, True),
        (True, {"ask": "failed"}, False),
        (False, {"ask": "running"}, False),
    ],
    ids=["about to be asked", "asked", "no longer asked", "of the strategy"],
)
def test_a_manual_plan_that_waits_for_approval_comes_first(tmp_path, by_hand, runs, refused):
    desk = Desk(tmp_path, mode="approve")
    summary, _ = desk.snapshots.show(action="fill", broker="a:1")
    if not by_hand:
        run = desk.snapshots.storage.run_folder(summary.plan_id)
        assert run is not None
        summary.model_copy(update={"by_hand": None}).write(run)
    asked = Question(plan_id=summary.plan_id, hash=summary.hash, at=datetime.now(UTC), run_id="ask")
    store_of(desk.state).put(asked)
    desk.snapshots.take(after=datetime.now(UTC) - NOW)
    desk.runs = runs
    shown = desk.act(user="ada", reason="patch")
    assert (f"manual plan {summary.hash[:16]} waits for approval" in shown["refused"]) is refused
    assert desk.act(plan=shown["plan"]) == ("plan_under_way" if refused else {})
