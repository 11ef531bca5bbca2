"""Rolling restarts, through the real DAGs: one scene of several acts on one cluster, in this order."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.utils.session import create_session
from sqlalchemy import update
from tests.airflow_home import HOME
from tests.integration.airflow_world import Outcome, World, world
from tests.patience import awaited

from pulsar_rebalancer.carry_out.bundle_move import MAX_RETRIES
from pulsar_rebalancer.decide.sources import filling
from pulsar_rebalancer.orders.roll_document import Phase, Roll
from pulsar_simulator.cluster import Cluster

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("one_session")]

RESTARTS = '''
"""A user's own DAG, which restarts the broker that it is triggered with, and fails where a file says so."""

import pathlib
import urllib.request

from airflow.sdk import DAG, task

with DAG("pulsar_restart__roll", schedule=None):

    @task
    def restart(dag_run=None):
        if pathlib.Path(__file__).with_suffix(".broken").exists():
            raise RuntimeError("no such machine")
        broker = dag_run.conf["broker"]
        other = next(url for url in URLS if not url.endswith(broker))
        address = f"{other}/simulation/brokers/{broker}/restart"
        headers = {"Authorization": "Bearer TOKEN"}
        urllib.request.urlopen(urllib.request.Request(address, method="POST", headers=headers))

    restart()
'''


@pytest.fixture(scope="module")
def east(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    patient = {"interval_seconds": 5, "state_max_gap": 1000, "max_plan_age_seconds": 3600}
    # The strategy waits: whatever moves belongs to the roll.
    waiting = {"hit_count_low": 1000, "hit_count_high": 1000, "overloaded_threshold": 100}
    given = {"mode": "auto", "roll_restart_dag": "pulsar_restart__roll"} | patient | waiting
    with world("roll", tmp_path_factory.mktemp("roll"), **given) as made:
        file = HOME / "dags" / "restart.py"
        file.write_text(RESTARTS.replace("TOKEN", made.served.token).replace("URLS", str(list(made.served.urls))))
        try:
            yield World("roll", Path(made.storage.root), made.served)
        finally:
            for made_here in HOME.glob("dags/restart.*"):
                made_here.unlink()


def state(east: World) -> Roll:
    return east.document(Roll)


def loaded(east: World, broker: str) -> set[str]:
    stats = east.served.cluster.load_report(broker)["lastStats"]
    return {bundle for bundle in stats if stats[bundle]["topics"] and not bundle.startswith("pulsar/")}


def place(cluster: Cluster, bundle: str, broker: str | None) -> None:
    cluster.unload(bundle, broker)
    cluster.lookup(cluster.topology.topics(cluster.topology.index(bundle))[0])


def averaged(east: World) -> set[str]:
    means = (east.storage.state / east.decision().means).read_table(["bundle"])
    return set(map(str, means["bundle"].to_pylist()))


def conduct(east: World, roll: Outcome, until: Callable[[Roll], bool] = lambda _: False) -> Outcome:
    """Let runs and the roll alternate until it is over, or as far as is said."""
    for _ in range(1000):
        roll = east.go_on(roll, last="roll")
        if roll.state != "running" or until(state(east)):
            return roll
        for run_id in east.queued("restart"):
            east.begin(run_id, "restart")
        east.run()
    raise RuntimeError(f"the roll does not go on: {state(east)}")


def pause_in_airflow(dag_id: str, *, paused: bool) -> None:
    with create_session() as session:
        session.execute(update(DagModel).where(DagModel.dag_id == dag_id).values(is_paused=paused))


def refused(run: Outcome, task: str) -> tuple[str, str]:
    return run.states[task], run.xcom(task, "failure")


@pytest.mark.system
def test_three_brokers_one_after_the_other(east: World, monkeypatch: pytest.MonkeyPatch) -> None:
    # These brokers' reports show after a second what has moved.
    monkeypatch.setattr(filling, "_REPORT_LAG", timedelta(seconds=2))
    cluster = east.served.cluster
    bundles = {broker: loaded(east, broker) for broker in cluster.active_brokers()}
    order = first, second, third = sorted(bundles, key=lambda name: (-len(bundles[name]), name))[:3]

    assert refused(east.run("roll", reason="patch", brokers=order), "roll") == ("failed", "file_missing")
    east.run()
    told = east.run("roll", reason="patch", brokers=order).xcom("roll")
    assert [turn["broker"] for turn in told["restarts"]] == [*order]
    assert not any(turn["why_not"] for turn in told["restarts"])
    assert (told["refused"], told["waits"]) == ("", "")
    assert not state(east).is_active

    # The first broker, by the user's own DAG.
    begun = east.begin(east.start("roll", plan=told["plan"]), "roll", last="roll")
    roll = conduct(east, begun, lambda now: now.phase is Phase.DRAINING)
    cluster.faults.add("error_500", first)
    before, known = east.decision(), averaged(east)
    east.run()
    assert east.decision().means != before.means
    assert averaged(east) == known, "bundles of a broker without a report keep their averages"
    roll = east.go_on(roll, last="roll")
    assert (state(east).phase, state(east).left) == (Phase.DRAINING, None), "a broker without a report is not empty"
    cluster.faults.clear("error_500")
    roll = conduct(east, roll, lambda now: now.phase is Phase.RESTARTING)
    assert state(east).broker == first
    assert loaded(east, first) == set()
    pause_in_airflow("pulsar_restart__roll", paused=True)
    roll = east.go_on(roll, last="roll")
    assert state(east).waits == "DAG pulsar_restart__roll, which is paused in Airflow"
    # The cluster places a bundle on it, which no run has seen yet.
    astray, owner = min(bundles[first]), cluster.owner(min(bundles[first]))
    place(cluster, astray, first)
    awaited(lambda: loaded(east, first))
    pause_in_airflow("pulsar_restart__roll", paused=False)
    roll = east.go_on(roll, last="roll")
    assert (state(east).waits, east.queued("restart")) == (f"1 bundle to leave {first}", [])
    place(cluster, astray, owner)
    awaited(lambda: not loaded(east, first))
    east.run("control", action="pause", until="2999-01-01T00:00:00Z", reason="wait")
    roll = east.go_on(roll, last="roll")
    assert state(east).waits.startswith("permission: paused ")
    assert east.queued("restart") == []
    east.run("control", action="resume", reason="it is over")
    assert refused(east.run("by_hand", action="release", broker=first, reason="no"), "carry_out")[1] == "rolling"
    with create_session() as session:
        session.delete(session.get(DagRun, roll.run.id))
    roll = east.begin(east.start("roll", plan=told["plan"]), "roll", last="roll")
    assert (state(east).run_id, state(east).phase) == (roll.run.run_id, Phase.RESTARTING), "it continues the roll"

    # One of its bundles goes astray in one run, with all its retries, another one in every run.
    once, ever = sorted(bundles[first])[:2]
    cluster.faults.add("stray", bundle=once, times=1 + MAX_RETRIES)
    cluster.faults.add("stray", bundle=ever)
    roll = conduct(east, roll, lambda now: now.broker == second)
    assert loaded(east, first) == bundles[first] - {ever}
    assert state(east).elsewhere == {first: "astray x1"}
    cluster.faults.clear("stray")

    # A person skips the second one, which is empty by then.
    roll = conduct(east, roll, lambda now: now.phase is Phase.DRAINING)
    east.run()
    assert second not in {cluster.owner(bundle) for bundle in bundles[second]}
    skip = east.run("control", action="skip_broker", subject=second, reason="it has a test")
    assert "rolling restart" in skip.xcom("control")["in_force"]
    roll = conduct(east, roll, lambda now: now.broker != second)
    assert {cluster.owner(bundle) for bundle in bundles[second]} == {second}
    assert (state(east).broker, state(east).done) == (third, {first: "rolled", second: "roll_stopped"})

    # The DAG fails for the third one, which stays drained until a person releases it.
    (HOME / "dags" / "restart.broken").touch()
    roll = conduct(east, roll)
    assert (roll.state, refused(roll, "roll")) == ("failed", ("failed", "restart_failed"))
    assert (state(east).stranded, loaded(east, third)) == (third, set())
    assert east.run("by_hand", action="release", broker=third, reason="it is up").state == "success"
