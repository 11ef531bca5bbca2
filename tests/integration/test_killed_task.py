"""A real scheduler: processes of a scheduled run are killed and tried again, while a manual run waits for its end.

Those of *record* and *gate* when they are about to begin, that of *record* behind its write, that of a wave in between.
What the runs tell Airflow's metrics is received beside. A run of another cluster is stopped while its control DAG is
busy.
"""

from __future__ import annotations

import re
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.metrics_receiver import Received, receiving
from tests.patience import PATIENCE, awaited

from pulsar_rebalancer.run.outcome import Outcome
from pulsar_rebalancer.run.plan import Summary, read_moves, read_plan_state
from pulsar_rebalancer.state import DecisionState
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer_airflow.embedded import MakeRunError
from pulsar_rebalancer_airflow.embedded.airflow_home import CHECKOUT, AirflowHome
from pulsar_rebalancer_airflow.embedded.local_airflow import LocalAirflow, Processes
from pulsar_rebalancer_airflow.spark_archive import cached_archive
from pulsar_rebalancer_airflow.state_store import state_asset
from pulsar_simulator.cluster import Cluster
from pulsar_simulator.faults import FaultKind
from pulsar_simulator.load import NO_NOISE
from pulsar_simulator.sampling import Timing
from pulsar_simulator.scenario import build_cluster
from pulsar_simulator.serve import RunningCluster, serve
from pulsar_simulator.timeline import RealClock

pytestmark = pytest.mark.system

DAG = "pulsar_rebalance__east"
WEST, CONTROL = "pulsar_rebalance__west", "pulsar_control__west"
SETTINGS: dict[str, Any] = {
    "mode": "auto",
    # One run a day: the first one is scheduled as soon as the DAG is there.
    "interval_seconds": 86400,
    "max_plan_age_seconds": 3600,
    # The outer pair fires at once, the inner one keeps its hits.
    "low_threshold": 5,
    "hit_count_high": 1,
    "unload_concurrency": 2,
}


DAGS = """
import os, signal, time
from datetime import timedelta
from pathlib import Path

from pulsar_rebalancer_airflow import dag_factory
from pulsar_rebalancer_airflow.operators import ControlOperator, GateOperator, RecordOperator, gate

def waits(state, needed):
    while "/east/" in state.uri and Path(__file__).parents[2].joinpath("record_waits").exists():
        time.sleep(0.1)

gate.delete_unneeded_state_files = waits

def killed_at_first(operator, context):
    of_east = context["dag_run"].dag_id == "pulsar_rebalance__east"
    if of_east and context["dag_run"].run_type == "scheduled" and context["ti"].try_number == 1:
        os.kill(os.getpid(), signal.SIGKILL)

def patient(operator, context):
    operator.timeout_seconds = 600  # However late the scheduler starts the second stop, the first still waits.

ControlOperator.pre_execute = patient
GateOperator.pre_execute = RecordOperator.pre_execute = killed_at_first
dag_factory._RETRY_DELAY = timedelta(0)
globals().update(dag_factory.build_dags())
"""

WRONG: dict[str, Any] = {"hit_count_low": 0, "force_threshold": -1, "mode": "full", "max_bundles_per_run": -1}


@dataclass(frozen=True)
class Home(AirflowHome):
    """An Airflow with these DAGs, and metrics that go to this port."""

    metrics_port: int = 0

    def environment(self) -> dict[str, str]:
        dags = self.folder / "dags"
        dags.mkdir(exist_ok=True)
        (dags / "dags.py").write_text(DAGS)
        return super().environment() | {
            "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
            # Whatever waits in a task occupies a place.
            "AIRFLOW__CORE__PARALLELISM": "8",
            "AIRFLOW__METRICS__OTEL_ON": "True",
            "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": f"http://127.0.0.1:{self.metrics_port}/v1/metrics",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        }


def refusal(airflow: LocalAirflow, field: str, value: Any) -> str:
    with pytest.raises(MakeRunError) as caught:
        airflow.trigger(DAG, {field: value})
    return str(caught.value)


@dataclass(frozen=True)
class Ended:
    """A run that has ended, as Airflow's API shows it; number of tries by task."""

    run: Any
    tries: dict[str, int]
    folder: StoragePath

    def at(self, moment: str) -> datetime:
        return datetime.fromisoformat(self.run[moment])

    @classmethod
    def of(cls, airflow: LocalAirflow, run_id: str, dag: str = DAG) -> Ended:
        run = airflow.wait(dag, run_id)
        tasks: list[Any] = airflow.tasks(dag, run_id)
        tries = {task["task_id"]: task["try_number"] for task in tasks}
        return cls(run, tries, StoragePath(airflow.xcom(dag, run_id, "collect")))


@dataclass(frozen=True)
class Stop:
    """A stop; `meanwhile` is the state of the run of another stop, which waits for a bundle, when it was stored."""

    unloads: int
    meanwhile: str
    run: Ended
    answer: dict[str, Any]


UNLOADS = 1000
"""More unloads than a run has."""


class Other:
    """Another cluster, whose unloads take so long that a stop is ordered during one of them, probably the first."""

    def __init__(self) -> None:
        self.cluster = quick_cluster()
        self.cluster.faults.add(FaultKind.SLOW, path="/unload", amount=60, times=UNLOADS)
        self._unloads = 0
        self._hop = self.cluster.unload_via
        self._meanwhile = self._run = ""

    def unload_via(self, at: int, namespace: str, range_text: str, destination: str | None = None) -> Any:
        further = self._hop(at, namespace, range_text, destination)
        self._unloads += further is None
        return further

    def stop(self, airflow: LocalAirflow) -> None:
        """Order a stop, while an unload is under way and another run of the control DAG is in progress."""
        during(lambda: self.cluster.faults.all()[0].times != UNLOADS, airflow, WEST)
        busy = airflow.trigger(CONTROL, {"action": "stop", "reason": "first"})
        during(lambda: "running" in [task["state"] for task in airflow.tasks(CONTROL, busy)[-1:]], airflow, WEST)
        self._run = airflow.trigger(CONTROL, {"action": "stop", "reason": "second"})
        state = airflow.home.storage_folder / "west" / "state"
        during(lambda: any("second" in noted.read_text() for noted in state.glob("change-*-stop.json")), airflow, WEST)
        self._meanwhile = airflow.get_run(CONTROL, busy)["state"]
        self.cluster.faults.clear()

    def ended(self, airflow: LocalAirflow) -> Stop:
        (run,) = [run["dag_run_id"] for run in airflow.runs(WEST)]
        ended, _ = Ended.of(airflow, run, WEST), airflow.wait(CONTROL, self._run)
        return Stop(self._unloads, self._meanwhile, ended, airflow.xcom(CONTROL, self._run, "control"))


@dataclass(frozen=True)
class Story:
    """What happened; `stored` is the state when record was killed, and when all was over."""

    cluster: Cluster
    unloads: Counter[str]
    stored: tuple[DecisionState, DecisionState]
    scheduled: Ended
    manual: Ended
    refusals: dict[str, str]
    metrics: Received
    stop: Stop


def stored(airflow: LocalAirflow) -> DecisionState | None:
    """The state in Airflow's state store; None as long as no plan is recorded."""
    for asset in airflow.get("/assets", name_pattern=state_asset("east").name)["assets"]:
        found = airflow.get(f"/assets/{asset['id']}/state-store/{DecisionState.KEY}")
        state = DecisionState.parse(found["value"], "it") if found else DecisionState()
        return state if state.seq else None
    return None


def during(happened: Callable[[], Any], airflow: LocalAirflow, dag: str = DAG) -> Any:
    """What happened during a run, as soon as it is something."""

    def looked() -> Any:
        found = happened()
        assert found or not {"success", "failed"} & {run["state"] for run in airflow.runs(dag)}, airflow.home.folder
        return found

    return awaited(looked)


def connection(served: RunningCluster) -> dict[str, Any]:
    host = ",".join(url.removeprefix("http://") for url in served.urls)
    return {"conn_type": "pulsar_admin", "host": host, "password": served.token}


def process_of(airflow: LocalAirflow, run_id: str, task_id: str) -> psutil.Process:
    tasks: list[Any] = airflow.tasks(DAG, run_id)
    (pid,) = [task["pid"] for task in tasks if (task["task_id"], task["state"]) == (task_id, "running")]
    return psutil.Process(pid)


def kill(victim: psutil.Process) -> None:
    """As the kernel does when memory runs out."""
    victim.send_signal(signal.SIGKILL)
    victim.wait()


def quick_cluster() -> Cluster:
    timing = Timing(stats_period=1, host_check_period=1, report_max_interval=5)
    return build_cluster(brokers=4, bundles=60, noise=NO_NOISE, timing=timing, clock=RealClock())


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """What `DAGS` kills; record after its write; after two unloads brokers fall silent, and unload is killed."""
    cluster, other = quick_cluster(), Other()
    folder: Path = tmp_path_factory.mktemp("killed")
    unloads: Counter[str] = Counter()
    silent = threading.Event()
    hop = cluster.unload_via
    # While it exists, *record* waits after it has written to the store.
    obstacle = folder / "record_waits"
    obstacle.touch()

    def unload_via(at: int, namespace: str, range_text: str, destination: str | None = None) -> Any:
        further = hop(at, namespace, range_text, destination)
        if further is None:
            unloads[f"{namespace}/{range_text}"] += 1
            if sum(unloads.values()) == 2:
                cluster.faults.add("silent")
                silent.set()
        return further

    with (
        pytest.MonkeyPatch.context() as patch,
        serve(cluster) as served,
        serve(other.cluster) as served_west,
        receiving() as metrics,
        Processes() as processes,
    ):
        patch.setattr(cluster, "unload_via", unload_via)
        patch.setattr(other.cluster, "unload_via", other.unload_via)
        home = Home(
            folder=folder / "airflow",
            cluster_settings={"east": SETTINGS, "west": SETTINGS | {"connection": "west", "unload_concurrency": 1}},
            connections={
                "pulsar_admin_default": connection(served),
                "west": connection(served_west),
                "spark_default": {"conn_type": "spark", "host": "local[2]"},
            },
            spark_archive=cached_archive(CHECKOUT / ".cache"),
            metrics_port=metrics.port,
        )
        home.prepare(keep_data=False)
        airflow = LocalAirflow(home, processes)
        airflow.start()
        airflow.wait_for_dag(DAG)
        refusals = {field: refusal(airflow, field, value) for field, value in WRONG.items()}

        recorded = during(lambda: stored(airflow), airflow)
        other.stop(airflow)
        (scheduled,) = [run["dag_run_id"] for run in airflow.runs(DAG)]
        manual = airflow.trigger(DAG)
        kill(process_of(airflow, scheduled, "record"))
        obstacle.unlink()

        assert silent.wait(PATIENCE), airflow.home.folder / "logs"
        kill(process_of(airflow, scheduled, "unload"))
        cluster.faults.clear()

        ended = Ended.of(airflow, scheduled), Ended.of(airflow, manual)
        after = stored(airflow)
        assert after is not None
        yield Story(cluster, unloads, (recorded, after), *ended, refusals, metrics, other.ended(airflow))


def test_record_that_is_killed_before_and_after_its_write_counts_once(story: Story) -> None:
    recorded = story.stored[0]

    assert story.scheduled.run["state"] == "success"
    assert story.scheduled.tries["record"] == 3
    assert recorded.model_copy(update={"plan_hash": ""}) == read_plan_state(story.scheduled.folder)
    assert (recorded.seq, set(recorded.hits.values())) == (1, {(0, 1)})
    seen = (story.manual.folder / "input" / "state.json").read_json()["decision"]
    assert DecisionState.parse(seen, "it") == recorded


def test_a_gate_and_a_wave_whose_processes_are_killed_are_carried_on(story: Story) -> None:
    moves = read_moves(story.scheduled.folder)

    assert {"record": 3, "gate": 2, "unload": 2}.items() <= story.scheduled.tries.items()
    assert len(moves) > 2
    assert {move.bundle: story.cluster.owner(move.bundle) for move in moves} == {m.bundle: m.destination for m in moves}
    assert Outcome.read(story.scheduled.folder).move_counts == {"moved": len(moves)}
    assert story.unloads == dict.fromkeys((move.bundle for move in moves), 1)


def test_a_manual_run_waits_for_the_scheduled_one_and_counts_nothing(story: Story) -> None:
    recorded, after = story.stored

    assert (story.scheduled.run["run_type"], story.manual.run["run_type"]) == ("scheduled", "manual")
    assert story.manual.at("queued_at") < story.scheduled.at("end_date") <= story.manual.at("start_date")
    assert story.manual.run["state"] == "success"
    summary = Summary.read(story.manual.folder)
    assert (summary.counting, summary.base_seq) == ("too_soon", recorded.seq)
    own = {"seq": recorded.seq + 1, "plan_id": summary.plan_id, "plan_hash": summary.hash, "samples": after.samples}
    assert after == recorded.model_copy(update=own)
    assert after.samples.items() <= recorded.samples.items()  # those older than a host interval go


@pytest.mark.parametrize("field", WRONG)
def test_wrong_values_begin_no_run_and_the_field_is_named(story: Story, field: str) -> None:
    assert re.search(rf"answered 4\d\d .*{field}", story.refusals[field])


def test_a_stop_waits_for_no_other_run_of_the_control_dag(story: Story) -> None:
    stop = story.stop
    moves = [move.bundle for move in read_moves(stop.run.folder)]
    last, left = moves[stop.unloads - 1], len(moves) - stop.unloads

    assert left > 0
    assert stop.meanwhile == "running"
    assert (stop.run.run["state"], stop.run.tries["unload"]) == ("failed", 1)
    assert Outcome.read(stop.run.folder).move_counts == {"stopped": left, "moved": stop.unloads}
    assert stop.answer["stopped"] == {"finished": {last: "moved"}, "unfinished": [], "not_begun": left}
