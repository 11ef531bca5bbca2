"""The schedule goes on after a run that a task started, and DAGs of one's own work with it, under a real scheduler."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psutil
import pytest
from tests.patience import awaited
from tests.spark_connect_server import SparkConnectServer

from pulsar_rebalancer.orders.roll_document import Phase, Roll
from pulsar_rebalancer_airflow import example_dags
from pulsar_rebalancer_airflow.embedded.airflow_home import CHECKOUT, AirflowHome
from pulsar_rebalancer_airflow.embedded.local_airflow import LocalAirflow, Processes, _process_tree
from pulsar_rebalancer_airflow.state_store import state_asset
from pulsar_simulator.cluster import Cluster as SimulatedCluster
from pulsar_simulator.load import NO_NOISE
from pulsar_simulator.sampling import Timing
from pulsar_simulator.scenario import build_cluster
from pulsar_simulator.serve import serve
from pulsar_simulator.timeline import RealClock

pytestmark = pytest.mark.system

DAG, BY_HAND, ROLL = "pulsar_rebalance__east", "pulsar_by_hand__east", "pulsar_roll__east"
EXAMPLES = [f"example_pulsar_{name}" for name in ("balance_after_deployment", "act_on_moves", "own_operator")]
SETTINGS: dict[str, Any] = {
    "mode": "auto",
    # A run is always under way: the next one is due before it ends.
    "interval_seconds": 5,
    "host_usage_interval_minutes": 1 / 60,
    "max_plan_age_seconds": 3600,
    "overloaded_threshold": 100,
    # The strategy waits: whatever moves was asked for by hand.
    "hit_count_low": 1000,
    "hit_count_high": 1000,
}
HELD = """
import time
from pathlib import Path

from pulsar_rebalancer_airflow.operators import ReportOperator

def held(operator, context):
    while context["dag_run"].run_type == "scheduled" and Path(__file__).with_name("held").exists():
        time.sleep(0.1)

ReportOperator.pre_execute = held
"""


class Impatient(AirflowHome):
    """An Airflow that soon takes over the tasks of a scheduler that has ended."""

    def environment(self) -> dict[str, str]:
        seconds = {"SCHEDULER_HEALTH_CHECK_THRESHOLD": "15", "ORPHANED_TASKS_CHECK_INTERVAL": "5"}
        return super().environment() | {f"AIRFLOW__SCHEDULER__{name}": value for name, value in seconds.items()}


class Schedulers(Processes):
    """The processes of an Airflow, whose scheduler can be killed."""

    def kill_scheduler(self) -> None:
        process, log = self._started["airflow scheduler"]
        command, environment = process.args, psutil.Process(process.pid).environ()
        for member in _process_tree({process.pid}):
            with suppress(psutil.NoSuchProcess):
                member.kill()
        process.wait()
        self.start("airflow scheduler", command, environment, log)  # type: ignore[arg-type]


class Cluster:
    """The runs of a cluster in an Airflow that is up."""

    def __init__(self, airflow: LocalAirflow, simulated: SimulatedCluster, processes: Schedulers) -> None:
        self.airflow = airflow
        self.simulated = simulated
        self.processes = processes

    def roll(self) -> Roll:
        (asset,) = self.airflow.get("/assets", name_pattern=state_asset("east").name)["assets"]
        return Roll.parse(self.airflow.get(f"/assets/{asset['id']}/state-store/{Roll.KEY}")["value"], "it")

    def owners(self) -> dict[str, str]:
        brokers = self.simulated.true_scores()
        return {bundle: broker for broker in brokers for bundle in self.simulated.owned_bundles(broker)}

    def runs(self, run_type: str) -> list[Any]:
        runs: list[Any] = self.airflow.runs(DAG)
        return [run for run in runs if run["run_type"] == run_type]

    @contextmanager
    def unending(self) -> Iterator[None]:
        """Meanwhile, no scheduled run ends."""
        held = self.airflow.home.dags_folder / "held"
        held.touch()
        try:
            yield
        finally:
            held.unlink()

    def carries_out(self, **form: Any) -> str:
        """Ask for a plan, and give its hash while a scheduled run is under way; the run that carried it out."""
        with self.unending():
            shown = self.airflow.trigger(BY_HAND, form)
            assert self.airflow.wait(BY_HAND, shown)["state"] == "success"
            known = {run["dag_run_id"] for run in self.runs("operator_triggered")}
            under_way = awaited(lambda: [run for run in self.runs("scheduled") if run["state"] == "running"])[-1]
            identity = self.airflow.xcom(BY_HAND, shown, "plan")["plan"]
            assert self.airflow.wait(BY_HAND, self.airflow.trigger(BY_HAND, {"plan": identity}))["state"] == "success"
        (begun,) = [run for run in self.runs("operator_triggered") if run["dag_run_id"] not in known]
        ended, before = (self.airflow.wait(DAG, run["dag_run_id"]) for run in (begun, under_way))
        assert (ended["state"], before["state"]) == ("success", "success")
        assert begun["queued_at"] < before["end_date"], "the scheduled run ended while the other one waited"
        return str(begun["dag_run_id"])

    def scheduled_after(self, run_id: str) -> Any:
        """The next scheduled run that begins once a run has ended; None when there is none."""
        end = self.airflow.get_run(DAG, run_id)["end_date"]
        return awaited(lambda: [run for run in self.runs("scheduled") if (run["start_date"] or "") >= end])


@pytest.fixture(scope="module")
def east(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("schedule")
    shutil.copytree(CHECKOUT / "dags", folder / "dags")
    with (folder / "dags" / "pulsar_rebalancer_dags.py").open("a") as file:
        file.write(HELD)
    shutil.copy(example_dags.__file__, folder / "dags")
    timing = Timing(stats_period=1, host_check_period=1, report_max_interval=5)
    simulated = build_cluster(brokers=4, bundles=60, noise=NO_NOISE, timing=timing, clock=RealClock())
    spark = SparkConnectServer(folder)  # one Spark for all runs: starting it would take most of each run's time
    with spark, serve(simulated) as served, Schedulers() as processes:
        host = ",".join(url.removeprefix("http://") for url in served.urls)
        home = Impatient(
            folder=folder / "airflow",
            cluster_settings={"east": SETTINGS},
            connections={
                "pulsar_admin_default": {"conn_type": "pulsar_admin", "host": host, "password": served.token},
                "spark_default": spark.fields(),
            },
            dags_folder=folder / "dags",
        )
        home.prepare(keep_data=False)
        airflow = LocalAirflow(home, processes)
        airflow.start()
        for dag_id in (BY_HAND, ROLL, *EXAMPLES):
            airflow.wait_for_dag(dag_id)
        yield Cluster(airflow, simulated, processes)


def test_the_schedule_goes_on_after_a_plan(east: Cluster) -> None:
    scores = east.simulated.true_scores()
    hot, cold = max(scores, key=scores.__getitem__), min(scores, key=scores.__getitem__)
    bundle = min(east.simulated.owned_bundles(hot))

    plan = east.carries_out(action="unload", bundles=[bundle], destination=cold)

    assert east.simulated.owner(bundle) == cold
    assert east.scheduled_after(plan)


def test_examples_balance_after_a_deployment_act_on_its_moves_and_ask_brokers(east: Cluster) -> None:
    deploy, act, own = EXAMPLES
    airflow, before = east.airflow, east.owners()

    deployed, asked = airflow.trigger(deploy), airflow.trigger(own)
    assert airflow.wait(deploy, deployed)["state"] == "success"
    after = east.owners()
    moved = sum(after[bundle] != owner for bundle, owner in before.items())
    assert sum(airflow.xcom(deploy, deployed, "moves").values()) == moved > 0
    (forced,) = [run for run in east.runs("operator_triggered") if run["conf"].get("force") == "two brokers were added"]
    assert east.scheduled_after(forced["dag_run_id"])

    folder = airflow.xcom(DAG, forced["dag_run_id"], "collect")
    (acted,) = awaited(lambda: [each for each in _acted(airflow, act) if each["run"] == folder])
    assert (acted["cluster"], acted["moved"], acted["split"]) == ("east", moved, 0)

    assert airflow.wait(own, asked)["state"] == "success"
    assert airflow.xcom(own, asked, "versions") == dict.fromkeys(east.simulated.true_scores(), "4.2.4")


def test_a_rolling_restart_goes_on_after_the_scheduler_was_killed_in_each_phase(east: Cluster) -> None:
    airflow, simulated, owners = east.airflow, east.simulated, [*east.owners().values()]
    broker = sorted(set(owners), key=owners.count)[-2]
    assert awaited(lambda: [run for run in east.runs("scheduled") if run["state"] == "success"])
    shown = airflow.trigger(ROLL, {"brokers": [broker], "reason": "a new kernel"})
    assert airflow.wait(ROLL, shown)["state"] == "success"
    stats = simulated.load_report(broker)["lastStats"]
    loaded = {bundle for bundle in stats if stats[bundle]["topics"] and not bundle.startswith("pulsar/")}
    # So that the scheduler is killed between two moves.
    simulated.faults.add("slow", path="/unload", amount=1)
    roll = airflow.trigger(ROLL, {"plan": airflow.xcom(ROLL, shown, "roll")["plan"]})

    def half_moved() -> bool:
        return 0 < len(loaded & set(simulated.owned_bundles(broker))) < len(loaded)

    assert awaited(half_moved)
    assert east.roll().phase is Phase.DRAINING
    east.processes.kill_scheduler()
    assert awaited(lambda: east.roll().phase is Phase.RESTARTING)
    assert east.roll().waits == f"a person: restart {broker} now"
    east.processes.kill_scheduler()
    simulated.restart(broker)
    assert awaited(lambda: east.roll().phase is Phase.RETURNING and half_moved())
    east.processes.kill_scheduler()

    ended = airflow.wait(ROLL, roll)
    simulated.faults.clear()
    assert (ended["state"], airflow.xcom(ROLL, roll, "roll")) == ("success", {broker: "rolled"})
    assert loaded <= set(simulated.owned_bundles(broker))
    assert east.roll().elsewhere == {}


def _acted(airflow: LocalAirflow, dag_id: str) -> list[Any]:
    """What the DAG of the asset returned in all its runs that succeeded."""
    ended = [run["dag_run_id"] for run in airflow.runs(dag_id) if run["state"] == "success"]
    return [each for run_id in ended for each in airflow.xcom(dag_id, run_id, "act")]
