import json
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
from airflow.sdk.exceptions import AirflowFailException
from tests.airflow_context import store_of
from tests.airflow_runs import CLUSTER, move_row
from tests.patience import PATIENCE
from tests.plugins.pulsar_rebalancer_airflow.operators import unload_alone
from tests.plugins.pulsar_rebalancer_airflow.operators.unload_scene import Moves, UnloadScene

from pulsar_rebalancer.carry_out.move_history import WaveHistory
from pulsar_rebalancer.names import range_of
from pulsar_rebalancer.orders.manual_plans import Drain, Drains
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.outcome import conclude_run
from pulsar_rebalancer.run.plan import read_moves
from pulsar_rebalancer.run.tables import BROKERS, table
from pulsar_rebalancer.state import MovesState
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer_airflow.operators.unload import UnfinishedPlanError
from pulsar_simulator.faults import Fault, FaultKind

ROOT = Path(__file__).parents[4]
FORKED = multiprocessing.get_context("forkserver")
"""Its server imports Airflow once, for all processes that are to be killed."""
FORKED.set_forkserver_preload([unload_alone.__name__])


@pytest.mark.parametrize(("minutes", "resumed"), [(20, True), (31, False)])
def test_a_wave_that_was_begun_in_time_is_resumed_later(scene, minutes, resumed):
    moves = scene.moves(2)
    run = scene.run(moves, age=timedelta(minutes=minutes))
    store = store_of(scene.state)
    WaveHistory(store.get(MovesState), store.change_moves_state, run, 0).record_planned_moves(
        read_moves(run), datetime.now(UTC) - timedelta(minutes=15)
    )

    if resumed:
        assert scene.unload(run) == {"moved": 2}
    else:
        with pytest.raises(AirflowFailException, match="plan_too_old"):
            scene.unload(run)
        assert conclude_run(run, Reason.OPEN, datetime.now(UTC)).move_counts == {"plan_too_old": 2}


@pytest.mark.parametrize(("version", "left"), [("4.0.8", True), ("4.2.4", False)])
def test_a_range_that_a_bundle_of_another_wave_still_needs_is_left_alone(scene, version, left):
    """Airflow starts the next wave while a wave waits for its retry; an old leader knows one destination per range."""
    first, other, further = waves_by_range(scene)
    run = scene.run([first, other, further], move_timeout_seconds=1)
    (run / "input" / "brokers.parquet").write_table(
        table([{"cluster": CLUSTER, "broker": first["source"], "version": version}], BROKERS)
    )
    scene.monkeypatch.setattr(scene.cluster.placement, "is_by_range", left)
    scene.cluster.faults.add(FaultKind.CLIENTS_GONE, bundle=first["bundle"])
    scene.cluster.faults.add(FaultKind.ERROR_500, path="/lookup/")
    with pytest.raises(UnfinishedPlanError, match="1 without a known owner"):
        scene.unload(run)
    scene.cluster.faults.clear()

    assert scene.unload(run, wave=1) == ({"not_attempted": 1, "moved": 1} if left else {"moved": 2})
    assert scene.unload(run) == {"moved": 1}

    assert scene.all_on([first, further], "destination")
    assert scene.all_on([other], "source" if left else "destination")


def waves_by_range(scene: UnloadScene) -> Moves:
    """Moves of two bundles of the same range, in a wave each and to different brokers, and a further move."""
    busy = {
        bundle: broker
        for broker in scene.cluster.active_brokers()
        for bundle, stats in scene.cluster.load_report(broker)["lastStats"].items()
        if stats["topics"] and not bundle.startswith("pulsar/")
    }
    of_range: dict[str, list[str]] = {}
    for bundle in busy:
        of_range.setdefault(range_of(bundle), []).append(bundle)
    pair = next(bundles[:2] for bundles in of_range.values() if len(bundles) > 1)
    third = next(bundle for bundle in busy if range_of(bundle) != range_of(pair[0]))
    moves: Moves = []
    for number, (bundle, wave) in enumerate(zip((*pair, third), (0, 1, 1), strict=True)):
        taken = {busy[bundle], *(move["destination"] for move in moves)}
        destination = next(broker for broker in scene.cluster.active_brokers() if broker not in taken)
        moves.append(move_row(number, busy[bundle], destination, wave) | {"bundle": bundle})
    return moves


@dataclass
class Killed:
    """The process of a wave, killed when a request for a bundle arrives, which nobody answers."""

    scene: UnloadScene
    unloaded: list[str] = field(default_factory=list)

    def carry_out(self, run: StoragePath, file: Path, at: Callable[[str], bool]) -> None:
        """Carry the wave out until `at` says of the path of a request that the process is killed."""
        scene, real, take = self.scene, self.scene.cluster.unload_via, self.scene.cluster.faults.take_fault

        def unload_via(broker: int, namespace: str, hash_range: str, destination: str | None = None) -> Any:
            owned = scene.cluster.owner(bundle := f"{namespace}/{hash_range}")
            hop = real(broker, namespace, hash_range, destination)
            self.unloaded += [bundle] if hop is None and owned else []
            return hop

        started, killed = threading.Event(), threading.Event()

        def kill(kind: Any, **where: Any) -> Any:
            if kind is FaultKind.RESET and not killed.is_set() and at(where["path"]):
                killed.set()
                started.wait()
                victim = psutil.Process(child.pid)
                victim.kill()
                victim.wait()
                return Fault(FaultKind.RESET)
            return take(kind, **where)

        scene.monkeypatch.setattr(scene.cluster, "unload_via", unload_via)
        scene.monkeypatch.setattr(scene.cluster.faults, "take_fault", kill)
        # No client looks the lost bundle up by chance.
        scene.cluster.ownership.reconnect_delay = 3600.0
        file.write_text(json.dumps(scene.state.documents))
        paths = os.pathsep.join(str(ROOT / part) for part in ("include", "plugins", "spark_apps", "."))
        scene.monkeypatch.setenv("PYTHONPATH", paths)
        child = FORKED.Process(target=unload_alone.main, args=(file, run.uri, dict(os.environ)))
        child.start()
        started.set()
        child.join(PATIENCE)
        assert child.exitcode == -signal.SIGKILL
        scene.cluster.ownership.reconnect_delay = scene.cluster.spec.timing.reconnect_delay
        scene.state.documents = json.loads(file.read_text())


def excluded(scene: UnloadScene, moves: Moves) -> dict[str, Any]:
    return {"excluded_bundles": [move["bundle"] for move in moves]}


def drained(scene: UnloadScene, moves: Moves) -> dict[str, Any]:
    drain = Drain(at=datetime.now(UTC), by="ada", reason="new disks")
    store_of(scene.state).put(Drains(brokers={m["destination"]: drain for m in moves}))
    return {}


def placed_by_a_person(scene: UnloadScene, moves: Moves) -> dict[str, Any]:
    for move in moves:
        if scene.cluster.owner(move["bundle"]) == move["source"]:
            scene.place_on_a_third(move)
    return {}


@pytest.mark.parametrize(
    ("meanwhile", "reason", "count"),
    [
        (excluded, "bundle_excluded", 0),
        (excluded, "bundle_excluded", 5),
        (drained, "draining", 1),
        (drained, "draining", 6),
        (placed_by_a_person, "owner_changed", 1),
        (placed_by_a_person, "owner_changed", 5),
    ],
)
def test_bundles_a_killed_wave_left_are_checked_again(scene, tmp_path, meanwhile, reason, count):
    moves, killed = scene.moves(6), Killed(scene)
    run = scene.run(moves, unload_concurrency=1)
    following = moves[count]["bundle"].rpartition("/")[2] if count < len(moves) else "/lookup/"
    killed.carry_out(run, tmp_path / "store.json", lambda path: following in path and len(killed.unloaded) == count)
    present = meanwhile(scene, moves)
    killed.unloaded.clear()

    told = scene.unload(run, **present)

    assert told == {code: n for code, n in {"moved": count, reason: len(moves) - count}.items() if n}
    assert scene.all_on(moves[:count], "destination")
    assert killed.unloaded == []
