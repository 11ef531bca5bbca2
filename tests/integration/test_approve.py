"""Mode `approve`, through the real DAGs and Airflow's API server: nothing moves until a person says so, and then that
very plan.
"""

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import httpx
import pytest
from airflow.executors.local_executor import LocalExecutor
from airflow.jobs.scheduler_job_runner import SchedulerJobRunner
from airflow.models.dag import DagModel
from airflow.models.dagbag import DBDagBag
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.sdk.observability import stats
from airflow.sdk.observability.metrics import stats_utils
from airflow.utils.session import create_session
from airflow.utils.state import TaskInstanceState
from sqlalchemy import select, update
from tests.airflow_server import airflow_server
from tests.integration.airflow_world import Outcome, World, world
from tests.integration.page_scene import changed_in_file
from tests.metrics_receiver import Received, receiving
from tests.monitoring import DASHBOARD, RULES, asked_for
from tests.patience import PATIENCE
from tests.prometheus import Prometheus, prometheus

from pulsar_rebalancer.command import drain
from pulsar_rebalancer.command.__main__ import main
from pulsar_rebalancer.names import SHEDDING_SETTING
from pulsar_rebalancer.orders.breaker import Breaker
from pulsar_rebalancer.orders.manual_plans import Answers, Drain, Drains, Question
from pulsar_rebalancer.run.outcome import Outcome as Written
from pulsar_rebalancer.run.plan import Summary, read_moves
from pulsar_rebalancer.show.measurements import outcome_text

pytestmark = pytest.mark.integration

FORCE: dict[str, Any] = {"force": "a broker was added", "force_threshold": 5, "max_bundles_per_run": 2}


@pytest.fixture(scope="module")
def metrics() -> Iterator[Received]:
    with receiving() as received:
        statsd = {"ON": "True", "HOST": "127.0.0.1", "PORT": str(received.port), "INFLUXDB_ENABLED": "True"}
        with mock.patch.dict(os.environ, {f"AIRFLOW__METRICS__STATSD_{name}": value for name, value in statsd.items()}):
            # As every process that runs a task does.
            stats.initialize(factory=stats_utils.get_stats_factory(), export_legacy_names=True)
            yield received
    stats.initialize(factory=stats_utils.get_stats_factory(), export_legacy_names=True)


@pytest.fixture(scope="module")
def wise(tmp_path_factory: pytest.TempPathFactory, one_session: None, metrics: Received) -> Iterator[World]:
    given = {"mode": "approve", "state_max_gap": 1000, "max_plan_age_seconds": 3600, "overloaded_threshold": 100}
    given |= {"breaker": {"failed_moves": 100}}
    with world("wise", tmp_path_factory.mktemp("wise"), **given) as made:
        yield made


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with airflow_server() as address:
        yield address


def ask_airflow(url: str, user: str | None, method: str, path: str, said: dict[str, Any]) -> int:
    """Ask the API server, as somebody who has just logged in; the status."""
    headers = {}
    if user is not None:
        login = httpx.post(f"{url}/auth/token", json={"username": user, "password": user}, timeout=PATIENCE)
        headers = {"Authorization": f"Bearer {login.raise_for_status().json()['access_token']}"}
    return httpx.request(method, f"{url}/api/v2/dags/{path}", json=said, headers=headers, timeout=PATIENCE).status_code


def answer(url: str, run_id: str, user: str | None, option: str, why: str = "") -> int:
    path = f"pulsar_apply__wise/dagRuns/{run_id}/taskInstances/approve/-1/hitlDetails"
    return ask_airflow(url, user, "PATCH", path, {"chosen_options": [option], "params_input": {"reason": why}})


def by_hand(wise: World, url: str, user: str, **conf: Any) -> Outcome:
    said = {"logical_date": None, "conf": conf}
    assert ask_airflow(url, user, "POST", "pulsar_by_hand__wise/dagRuns", said) == 200
    (run_id,) = wise.queued("by_hand")
    return wise.begin(run_id, "by_hand")


def ends(run: Outcome) -> list[tuple[str, str, str]]:
    return sorted((move.bundle, move.source, move.destination) for move in read_moves(run.folder))


def hash_of(run: Outcome) -> str:
    return Summary.read(run.folder).hash


def ask(wise: World, **changed: Any) -> tuple[Outcome, str]:
    """A run whose plan waits, and the run that asks about it."""
    asking = wise.run(**FORCE | changed)
    assert (asking.xcom("gate", "reason"), asking.states["unload"]) == ("awaiting_approval", "skipped")
    return asking, wise.queued("apply")[-1]


def ended(wise: World, run_id: str) -> None:
    """The question of a run has ended: it begins anew, and asks nothing."""
    run = wise.begin(run_id, "apply")
    assert (run.state, run.states["approve"], run.states["carry_out"]) == ("success", "skipped", "skipped")


def lose_the_race(run_id: str) -> None:
    """Let the scheduler hear of the end of the process that asked once it has queued the task with its answer."""
    executor = LocalExecutor()
    with create_session() as session:
        found = select(TaskInstance).where(TaskInstance.run_id == run_id, TaskInstance.task_id == "approve")
        ti = session.scalars(found).one()
        assert ti.state == TaskInstanceState.SCHEDULED  # the answer has put it there
        ti.state, ti.queued_by_job_id = TaskInstanceState.QUEUED, 7
        executor.success(ti.key)
        session.flush()
        SchedulerJobRunner.process_executor_events(
            executor=executor, job_id=7, scheduler_dag_bag=DBDagBag(), session=session
        )
        session.refresh(ti)
        assert ti.state == TaskInstanceState.UP_FOR_RETRY
        ti.prepare_db_for_next_try(session)  # as it does before the next attempt, which has another id


def test_a_plan_is_carried_out_once_a_person_approves_it(wise, url):
    wise.run()
    earned = wise.decision().hits
    assert earned
    # A newer plan takes the place of all older ones: of one that is shown, and of one whose run has not begun.
    _, first = ask(wise)
    wise.begin(first, "apply", last="approve")
    # The very same moves take nobody's place: whoever is asked has time to answer.
    same = wise.run(**FORCE)
    assert (same.xcom("gate", "reason"), same.states["ask"]) == ("awaiting_approval", "skipped")
    assert wise.queued("apply") == []
    _, second = ask(wise, max_bundles_per_run=1)
    ended(wise, first)
    latest, question = ask(wise)
    ended(wise, second)
    wise.begin(question, "apply", last="approve")
    assert f"plan `{hash_of(latest)[:16]}`" in wise.asked(question)
    assert wise.decision().hits == earned

    # Only who may act may answer, once; the first answer comes before Airflow knows that the task waits.
    assert answer(url, question, None, "Approve") == 401
    assert answer(url, question, "vera", "Approve") == 403
    assert wise.queued() == []
    assert answer(url, question, "ada", "Approve", "it is quiet now") == 200
    assert answer(url, question, "ada", "Reject") == 409
    lose_the_race(question)

    answered = wise.begin(question, "apply")
    assert (answered.state, answered.states["carry_out"]) == ("success", "success")
    (approved,) = wise.queued()
    done = wise.begin(approved)

    summary, outcome = Summary.read(done.folder), Written.read(done.folder)
    moves = read_moves(latest.folder)
    assert len(moves) == 2
    assert summary.bundle_skip_reasons == {}
    assert ends(done) == ends(latest)
    assert outcome.move_counts == {"moved": len(moves)}
    assert summary.by_hand is not None
    assert (summary.by_hand.by, summary.by_hand.carries_out) == ("ada", hash_of(latest))
    assert "approved by ada (it is quiet now): 2 bundles to move" in outcome_text(outcome, done.folder)
    assert all(wise.served.cluster.owner(move.bundle) == move.destination for move in moves)
    moved = {end for move in moves for end in (move.source, move.destination)}
    assert moved & earned.keys()
    assert wise.decision().hits == {broker: hit for broker, hit in earned.items() if broker not in moved}


def test_a_question_ends_when_the_clusters_file_has_another_mode(wise, url):
    with create_session() as session:  # as for a DAG of a versioned bundle
        session.execute(update(DagModel).where(DagModel.dag_id == "pulsar_apply__wise").values(bundle_version="v1"))
    _, question = ask(wise, max_bundles_per_run=1)
    with create_session() as session:  # a run with a version of its own would keep the tasks of that version
        assert session.scalars(select(DagRun.bundle_version).where(DagRun.run_id == question)).one() is None
    wise.begin(question, "apply", last="approve")
    clusters = Path(os.environ["AIRFLOW__PULSAR_REBALANCER__CLUSTERS_FILE"])
    given = clusters.read_text()
    clusters.write_text(given.replace("mode: approve", "mode: auto"))
    try:
        closed = wise.begin(question, "apply")
    finally:
        clusters.write_text(given)

    assert (closed.state, closed.states["approve"]) == ("success", "removed")
    answer(url, question, "ada", "Approve")
    assert wise.queued() == []
    assert wise.document(Question).plan_id not in wise.document(Answers).plans


def panel(title: str) -> str:
    """What a panel of the dashboard asks for."""
    (found,) = [each for each in DASHBOARD["panels"] if each["title"] == title]
    return str(found["targets"][0]["expr"]).replace("$cluster", "wise")


def fires(seen: Prometheus, alert: str, *times: float) -> list[bool]:
    """Whether the expression of a rule is true at these times."""
    (rule,) = [rule for rule in RULES if rule["alert"] == f"PulsarRebalancer{alert}"]
    return [bool(seen.query(rule["expr"], at)) for at in times]


def test_prometheus_sees_what_waits_and_what_closes_the_gate(wise, url, metrics, tmp_path):
    ours = "airflow_pulsar_rebalancer_"
    with prometheus(tmp_path, metrics.port) as seen:
        # A plan waits, and no run follows: its age grows all the same.
        _, question = ask(wise)
        asked = wise.document(Question)
        assert asked.at is not None
        since, minute = asked.at.timestamp(), 60
        seen.until(f"abs({ours}plan_waiting_since_timestamp_seconds - {since}) < 0.01")
        assert seen.query(panel("A plan waits"), since + 40 * minute)["wise"] == pytest.approx(40 * minute, abs=0.01)
        times = [since + minutes * minute for minutes in (29, 31, 59, 61)]
        assert fires(seen, "PlanWaits", *times) == [False, True, True, False]
        wise.begin(question, "apply", last="approve")
        assert answer(url, question, "ada", "Reject") == 200
        wise.begin(question, "apply")
        seen.until(f"{ours}plan_waiting_since_timestamp_seconds == 0")
        assert seen.query(panel("A plan waits"), since + 40 * minute) == {"wise": 0}

        cold = min(wise.served.cluster.true_scores().items(), key=lambda item: item[1])[0]
        now = datetime.now(UTC)
        wise.put(Breaker(opened_at=now, why="a test"))
        wise.put(Drains(brokers={cold: Drain(at=now, by="ada", reason="a test")}))
        wise.served.cluster.faults.add("other_configuration", broker=cold, values={SHEDDING_SETTING: "true"})
        wise.run()
        seen.until(f"{ours}holds > 0")
        seen.until(f"{ours}brokers_drained == 1")
        soon = time.time() + minute
        assert fires(seen, "Hold", soon) == fires(seen, "BreakerOpen", soon) == [True]
        wise.served.cluster.faults.clear()

        # What people order is seen without a run.
        end = now + timedelta(hours=1)
        assert wise.run("control", action="pause", until=end.isoformat(), reason="a test").state == "success"
        seen.until(f"{ours}paused_until_timestamp_seconds > 0")
        soon, until = time.time() + minute, end.timestamp()
        assert seen.query(panel("Pause ends"), soon)["wise"] == pytest.approx(until - soon, abs=0.01)
        assert seen.query(panel("Pause ends"), until + minute) == {"wise": 0}
        assert wise.run("control", action="close_breaker", reason="a test").state == "success"
        assert wise.run("control", action="resume", reason="a test").state == "success"
        seen.until(f"{ours}breaker_open_until_timestamp_seconds == 0")
        assert wise.run("by_hand", action="release", broker=cold, reason="a test").state == "success"
        seen.until(f"{ours}brokers_drained == 0")

        # Nothing was split here, and nothing moved if no other test ran.
        names = {series.name for series in metrics.series}
        missing = {name for name, _ in asked_for()} - names
        of_others = ("splits_total",)
        absent = {f"{ours}{name}" for name in of_others}
        assert missing - {f"{ours}moves_total"} == absent
        for target in (target for panel in DASHBOARD["panels"] for target in panel["targets"]):
            if not any(name in target["expr"] for name in missing):
                seen.until(target["expr"].replace("$cluster", "wise"))
        rules = [rule for group in seen.get("rules")["groups"] for rule in group["rules"]]
        assert {rule["name"] for rule in rules if rule["health"] == "ok"} == {rule["alert"] for rule in RULES}


def test_a_person_who_clears_a_run_requests_nothing_in_the_name_of_its_first_user(wise, url):
    broker = wise.served.cluster.active_brokers()[0]
    changed_in_file("wise", two_people=True, mode="auto")
    shown = by_hand(wise, url, "ada", action="drain", broker=broker, reason="a test")
    again = wise.run_again(shown, "form").xcom("plan")
    assert by_hand(wise, url, "bob", plan=again["plan"]).xcom("carry_out", "failure") == "no_user"
    assert wise.document(Drains).brokers == {}
    changed_in_file("wise", two_people=None, mode="approve")


def test_a_broker_is_drained_by_one_command_that_waits(wise, url, monkeypatch, capsys):
    cluster = wise.served.cluster
    broker = min(name for name in cluster.active_brokers() if len(cluster.owned_bundles(name)) > 2)
    login = httpx.post(f"{url}/auth/token", json={"username": "ada", "password": "ada"}, timeout=PATIENCE)
    monkeypatch.setenv("AIRFLOW_URL", f"{url}/")
    monkeypatch.setenv("AIRFLOW_TOKEN", login.raise_for_status().json()["access_token"])
    monkeypatch.setattr(drain, "PAUSE_SECONDS", 0.1)
    command = ["drain", broker, "--cluster", "wise", "--reason", "a test", "--seconds"]
    changed_in_file("wise", mode="auto", grace_period_minutes=0)

    with ThreadPoolExecutor() as pool:
        draining, orders, runs = pool.submit(main, [*command, "1000"]), [], 0
        while not wait([draining], timeout=0.1).done:
            if waiting := wise.queued("by_hand"):
                orders.append(wise.begin(waiting[0], "by_hand"))
                if len(orders) == 1:  # between its plan and its order, somebody else drains another broker
                    wise.put(Drains(brokers={"away:8080": Drain(at=datetime.now(UTC), by="bob", reason="a test")}))
            elif broker in wise.document(Drains).brokers and runs < 3:
                if not runs:  # the first run has no report of the broker, which is not empty for that
                    cluster.faults.add("error_500", broker)
                runs += wise.run().state == "success"
                cluster.faults.clear("error_500")

    assert draining.result() == 0
    assert [run.xcom("carry_out", "failure") for run in orders] == [None, "other_plan", None, None]
    assert capsys.readouterr().out.endswith(f"{broker} has no bundle that can move\n")
    stats = cluster.load_report(broker)["lastStats"]
    assert [bundle for bundle in stats if stats[bundle]["topics"] and not bundle.startswith("pulsar/")] == []
    monkeypatch.setenv("AIRFLOW_TOKEN", "wrong")
    assert main([*command, "1000"]) == 2
    assert "Airflow answered 403 to /api/v2/dags/pulsar_by_hand__wise/dagRuns" in capsys.readouterr().out
    assert by_hand(wise, url, "ada", action="release", broker=[broker, "away:8080"], reason="a test").state == "success"
    changed_in_file("wise", mode="approve", grace_period_minutes=None)
