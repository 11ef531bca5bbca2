"""A wave whose earlier attempt did not end, or not well."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from pulsar_rebalancer.carry_out.move_history import WaveHistory
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.outcome import conclude, read_waves, wave_file
from pulsar_rebalancer.run.plan import read_moves
from pulsar_rebalancer.state.state_documents import MovesState
from pulsar_rebalancer_airflow.operators.plan_part import UnfinishedError
from pulsar_rebalancer_airflow.state_store import StateStore

if TYPE_CHECKING:
    from tests.plugins.pulsar_rebalancer_airflow.operators.unload_scene import UnloadScene

ALONE = Path(__file__).with_name("unload_alone.py")
ROOT = Path(__file__).parents[4]


def test_a_second_attempt_unloads_nothing_again(scene: UnloadScene) -> None:
    run = scene.run(scene.moves(3))
    scene.unload(run)
    scene.before_unloads(lambda _: pytest.fail("unloaded again"))

    assert scene.unload(run) == {"moved": 3}


@pytest.mark.parametrize(("minutes", "resumed"), [(20, True), (31, False)])
def test_a_wave_that_was_begun_in_time_is_resumed_later(scene: UnloadScene, minutes: int, resumed: bool) -> None:
    moves = scene.moves(2)
    run = scene.run(moves, age=timedelta(minutes=minutes))
    store = StateStore(scene.state)
    WaveHistory(store.get(MovesState), store.change_moves, run, 0).plan(
        read_moves(run), datetime.now(UTC) - timedelta(minutes=15)
    )

    if resumed:
        assert scene.unload(run) == {"moved": 2}
    else:
        with pytest.raises(AirflowFailException, match="plan_too_old"):
            scene.unload(run)
        begun = {move["bundle"] for move in moves}
        assert conclude(run, Reason.OPEN, begun, datetime.now(UTC)).counts == {"interrupted": 2}


def test_brokers_that_fail_are_tried_again_and_the_rest_is_not(scene: UnloadScene) -> None:
    moves = scene.moves(3)
    run = scene.run(moves)
    scene.cluster.faults.add("error_500", moves[0]["destination"], path="/topicHashPositions")

    with pytest.raises(UnfinishedError, match=r"^Wave 0: .*server_error"):
        scene.unload(run)
    reached = {b for b, outcome in read_waves(run).items() if outcome.ok}
    scene.cluster.faults.clear()
    unloaded: list[str] = []
    scene.before_unloads(unloaded.append)

    assert scene.unload(run) == {"moved": 3}
    assert not reached & set(unloaded)


@pytest.mark.parametrize("astray", [False, True])
def test_killed_in_the_middle_it_resumes(scene: UnloadScene, tmp_path: Path, astray: bool) -> None:
    """The process is killed while its second unload is under way; the store holds what it had written by then.

    With nobody to look after it, the bundle may have been placed on a third broker.
    """
    moves = scene.moves(4)
    run = scene.run(moves, unload_concurrency=1)
    file = tmp_path / "store.json"
    file.write_text(json.dumps(scene.state.documents))
    unloaded: list[str] = []
    real = scene.cluster.unload_at
    killing = True

    def watch(at: int, namespace: str, hash_range: str, destination: str | None = None) -> Any:
        hop = real(at, namespace, hash_range, destination)
        if hop is None:  # the owner itself: the bundle is unloaded now
            unloaded.append(f"{namespace}/{hash_range}")
            if killing and len(unloaded) == 2:
                # Time stands still from here on: no client looks the lost bundle up by chance.
                now = scene.cluster.clock.now()
                scene.monkeypatch.setattr(scene.cluster.clock, "now", lambda: now)
                os.kill(child.pid, signal.SIGKILL)
                child.wait()
        return hop

    scene.monkeypatch.setattr(scene.cluster, "unload_at", watch)
    paths = os.pathsep.join(str(ROOT / part) for part in ("include", "plugins", "spark_apps", "."))
    child = subprocess.Popen([sys.executable, str(ALONE), str(file), run.uri], env=os.environ | {"PYTHONPATH": paths})
    child.wait(120)
    killing = False
    assert child.returncode == -signal.SIGKILL
    scene.state.documents = json.loads(file.read_text())
    assert set(scene.state.documents[MovesState.KEY]["unloads"]) == {move["bundle"] for move in moves}
    # The bundle that was unloaded and not placed: nobody owns it until it is looked up.
    assert [m["bundle"] for m in moves if scene.cluster.owner(m["bundle"]) is None] == unloaded[1:2]
    if astray:
        scene.place_on_a_third(next(move for move in moves if move["bundle"] == unloaded[1]))

    assert scene.unload(run) == {"moved": 4}
    assert scene.all_on(moves, "destination")
    assert unloaded.count(unloaded[0]) == 1


@pytest.mark.parametrize(
    ("reason", "attempts", "counts"),
    [
        ("unowned", 1, {"moved": 2}),
        ("unknown_owner", 1, {"moved": 2}),
        # The attempt did not unload it: whoever did wanted it there.
        ("timeout", 0, {"owner_changed": 1, "moved": 1}),
    ],
)
def test_what_an_attempt_unloaded_and_a_client_placed_elsewhere_is_moved(
    scene: UnloadScene, reason: str, attempts: int, counts: dict[str, int]
) -> None:
    moves = scene.moves(2)
    run = scene.run(moves)
    lost = {name: moves[0][name] for name in ("bundle", "source", "destination")}
    wave_file(run, 0).write_json([lost | {"reason": reason, "attempts": attempts}])
    scene.place_on_a_third(moves[0])

    assert scene.unload(run) == counts
    assert scene.all_on(moves[:1], "destination") is (attempts == 1)
