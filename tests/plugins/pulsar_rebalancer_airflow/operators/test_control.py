from datetime import datetime
from threading import Event, Thread
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException
from tests.airflow_context import MemoryState, context, store_of
from tests.airflow_runs import CLUSTER, make_run, move_row
from tests.plugins.pulsar_rebalancer_airflow.operators.control_scene import control

from pulsar_rebalancer.config.clusters_file import ClusterEntry
from pulsar_rebalancer.config.settings import BreakerRules, Settings
from pulsar_rebalancer.run.request import Finding, Validation
from pulsar_rebalancer.run.snapshot import StateBefore
from pulsar_rebalancer.state import DecisionState
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer_airflow.operators import (
    ControlOperator,
    GateOperator,
    OrderOperator,
    RecordOperator,
    ReportOperator,
    UnloadWaveOperator,
)
from pulsar_rebalancer_airflow.operators import control as actions
from pulsar_rebalancer_airflow.operators import gate as module

YESTERDAY = "2000-01-01T00:00:00Z"
SOONER, TOMORROW, LATER = "2099-01-01T00:00:00Z", "2100-01-01T00:00:00Z", "2101-01-01T00:00:00Z"
SETTINGS = Settings.model_validate({"mode": "auto", "connection": "pulsar_test"})


def order(storage, state, action, until=None, runs=None, cleared=0):
    params = {"action": action, "reason": "new disks", "until": until}
    return control(storage, state, SETTINGS, params, runs=runs, cleared=cleared)


def gate(storage: ClusterStorage, state: MemoryState, run: StoragePath, settings: Settings = SETTINGS) -> str:
    StateBefore(decision=store_of(state).get(DecisionState)).write(run)
    given: Any = context(CLUSTER, state)
    RecordOperator(task_id="record", cluster=CLUSTER, run=run.uri).execute(given)
    GateOperator(task_id="gate", cluster=CLUSTER, settings=settings, run=run.uri).execute(given)
    return str(given["ti"].pushed["reason"])


def next_run(storage: ClusterStorage, state: MemoryState, **given: Any) -> StoragePath:
    return make_run(storage, [move_row(1, "a:1", "b:1")], base_seq=store_of(state).get(DecisionState).seq, **given)


def test_a_pause_holds_until_somebody_resumes(storage, state):
    said = order(storage, state, "pause", TOMORROW)

    assert said["in_force"].startswith("Nothing is moved: mode auto; paused until ")
    assert said["in_force"].endswith("(ada: new disks)")
    assert gate(storage, state, next_run(storage, state)) == "paused"
    assert order(storage, state, "resume")["in_force"] == "Moves are carried out: mode auto"
    assert gate(storage, state, next_run(storage, state)) == "open"
    written = [(storage.state / name).read_json() for name in storage.state.entry_names() if name.startswith("change-")]
    assert [(each["action"], each["by"], each["reason"]) for each in written] == [
        ("pause", "ada", "new disks"),
        ("resume", "ada", "new disks"),
    ]


@pytest.mark.parametrize("action", ["resume", "stop", "reset", "restore"])
def test_an_order_of_a_run_that_is_cleared_is_not_repeated(storage, state, action):
    order(storage, state, "pause", TOMORROW)
    before = dict(state.documents)

    with pytest.raises(AirflowFailException, match="no_user"):
        order(storage, state, action, cleared=1)

    given: Any = context(CLUSTER, state, params={"action": action, "reason": "x"}, cleared=1)
    entry = ClusterEntry(name=CLUSTER, given={}, settings=SETTINGS)
    with pytest.raises(AirflowFailException, match="no_user"):
        ControlOperator(task_id="control", entry=entry, root=storage.root).execute(given)
    assert state.documents == before
    assert "paused" in order(storage, state, "show", cleared=1)["in_force"]


@pytest.mark.parametrize("then", ["reset", "restore"])
def test_pause_is_lifted_only_by_a_person(storage, state, then):
    gate(storage, state, next_run(storage, state))
    order(storage, state, "pause", TOMORROW)

    order(storage, state, then)

    assert gate(storage, state, next_run(storage, state)) == "paused"


@pytest.mark.parametrize("until", [YESTERDAY, SOONER])
def test_no_pause_lifts_another(storage, state, until):
    order(storage, state, "pause", TOMORROW)

    with pytest.raises(AirflowFailException, match="until"):
        order(storage, state, "pause", until)

    assert gate(storage, state, next_run(storage, state)) == "paused"


def test_skip_closes_the_gate_of_one_run(storage, state):
    under_way = next_run(storage, state)
    order(storage, state, "skip")

    assert gate(storage, state, under_way) == "open"
    assert [gate(storage, state, next_run(storage, state)) for _ in range(3)] == ["skipped", "open", "open"]


@pytest.mark.parametrize("then", ["reset", "restore", "restore of a lost state"])
@pytest.mark.parametrize("used", [True, False])
def test_a_skip_is_used_once_whatever_becomes_of_the_state(storage, state, used, then):
    gate(storage, state, next_run(storage, state))
    order(storage, state, "skip")
    if used:
        assert gate(storage, state, next_run(storage, state)) == "skipped"
    if then == "restore of a lost state":
        del state.documents["decision"]

    order(storage, state, then.partition(" ")[0])
    order(storage, state, "reset")

    expected = ["open", "open"] if used else ["skipped", "open"]
    assert [gate(storage, state, next_run(storage, state)) for _ in range(2)] == expected


def test_a_skip_is_lifted(storage, state):
    order(storage, state, "skip")
    order(storage, state, "resume")

    assert gate(storage, state, next_run(storage, state)) == "open"


def test_the_answer_to_a_stop_says_which_bundles_came_to_their_end(scene):
    moves = scene.moves(4)
    run = scene.run(moves)
    ordered, ended, said, real = Event(), Event(), [], actions.find_last_run
    scene.monkeypatch.setattr(module, "_SECONDS_BETWEEN_LOOKS", 0.0)

    def under_way(*given: Any) -> Any:
        found = real(*given)
        ordered.set()
        assert ended.wait(60)  # the *control* task begins later
        return found

    scene.monkeypatch.setattr(actions, "find_last_run", under_way)
    person = Thread(target=lambda: said.append(order(scene.storage, scene.state, "stop")))

    def first_unload(_: str) -> None:
        if not person.ident:
            person.start()
            assert ordered.wait(60)

    scene.before_unloads(first_unload)
    settings = {"mode": "auto", "connection": "pulsar_test", "unload_concurrency": 1}
    wave = UnloadWaveOperator(task_id="unload", cluster=CLUSTER, settings=settings, run=run.uri, wave=0)
    with pytest.raises(AirflowFailException, match="stopped"):
        wave.execute(context(CLUSTER, scene.state, started=datetime.fromisoformat(YESTERDAY)))
    ended.set()
    person.join(60)

    (moved,) = [move["bundle"] for move in moves if scene.cluster.owner(move["bundle"]) == move["destination"]]
    assert said[0]["stopped"] == {"finished": {moved: "moved"}, "unfinished": [], "not_begun": 3}


def test_a_stop_promises_nothing_of_a_run_that_begins_after_it(storage, state):
    entry = ClusterEntry(name=CLUSTER, given={}, settings=SETTINGS)
    given: Any = context(CLUSTER, state, params={"action": "stop", "reason": "new disks"})
    given["ti"].runs = {"scheduled__2": "queued"}
    ordered = OrderOperator(task_id="order", entry=entry, root=storage.root).execute(given)
    given["ti"].runs = {"scheduled__2": "running"}
    told = ControlOperator(task_id="control", entry=entry, root=storage.root, ordered=ordered).execute(given)
    assert "undecided" not in told


BREAKER = SETTINGS.model_copy(update={"breaker": BreakerRules(bad_brokers=1)})
SILENT = Validation(findings=(Finding(reason="report_missing", subject="c:1"),))


def report(state: MemoryState, run: StoragePath, settings: Settings = BREAKER) -> None:
    operator = ReportOperator(task_id="report", cluster=CLUSTER, run=run.uri, gate="gate", settings=settings)
    operator.execute(context(CLUSTER, state))


@pytest.mark.parametrize("then", ["nothing", "reset", "close_breaker"])
def test_the_breaker_that_a_run_opened_closes_the_gate_until_a_person_closes_it(storage, state, then):
    calm = next_run(storage, state)
    assert gate(storage, state, calm, BREAKER) == "open"
    report(state, calm)
    bad = next_run(storage, state, validation=SILENT)
    assert gate(storage, state, bad, BREAKER) == "open"
    report(state, bad)

    if then != "nothing":
        order(storage, state, then)

    expected = "open" if then == "close_breaker" else "breaker_open"
    assert gate(storage, state, next_run(storage, state), BREAKER) == expected
    # Where the clusters file has no breaker, none is asked.
    assert gate(storage, state, next_run(storage, state)) == "open"
