from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from airflow.sdk.exceptions import AirflowFailException
from tests.airflow_context import context
from tests.airflow_runs import CLUSTER, make_run, move_row

from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.outcome import conclude, read_waves, wave_file
from pulsar_rebalancer.run.plan import Summary, read_moves
from pulsar_rebalancer.run.request import Finding, Validation
from pulsar_rebalancer.unload import history
from pulsar_rebalancer.unload.history import WaveHistory
from pulsar_rebalancer_airflow.operators import UnloadWaveOperator
from pulsar_rebalancer_airflow.operators.unload import UnfinishedWaveError
from pulsar_rebalancer_airflow.state_store import DECISION, MOVES, StateStore

if TYPE_CHECKING:
    from tests.airflow_context import MemoryState

    from pulsar_rebalancer.storage.layout import ClusterStorage
    from pulsar_rebalancer.storage.path import StoragePath
    from pulsar_simulator.cluster import Cluster
    from pulsar_simulator.serve import Running

HOLD = Validation(findings=(Finding(reason=Reason.BUILTIN_SHEDDING_ON),))
ALONE = Path(__file__).with_name("unload_alone.py")


def loaded_moves(cluster: Cluster, count: int, wave: int = 0) -> list[dict[str, Any]]:
    """Moves of bundles with traffic, each from its owner to another broker, no hash range twice."""
    report = {b: cluster.load_report(b)["lastStats"] for b in cluster.active_brokers()}
    brokers = sorted(report)
    rows: list[dict[str, Any]] = []
    ranges: set[str] = set()
    for number, source in enumerate(brokers):
        for name, stats in report[source].items():
            hash_range = name.rpartition("/")[2]
            if stats["topics"] and hash_range not in ranges and not name.startswith("pulsar/"):
                ranges.add(hash_range)
                destination = brokers[(number + 1) % len(brokers)]
                rows.append(move_row(len(rows), source, destination, wave) | {"bundle": name})
    return rows[:count]


def recorded(state: MemoryState, run: StoragePath) -> None:
    document = (run / "plan" / "state.json").read_json()
    state.set(DECISION, document | {"plan_hash": Summary.read(run).hash})
    state.writes.clear()


def unload(run: StoragePath, state: Any, wave: int = 0, **present: Any) -> dict[str, int]:
    operator = UnloadWaveOperator(
        task_id="unload",
        cluster=CLUSTER,
        settings={"mode": "auto", "connection": "pulsar_test"} | present,
        run=run.uri,
        wave=wave,
    )
    return operator.execute(context(CLUSTER, state))


def test_moves_its_wave_alone_and_verifies(served: Running, storage: ClusterStorage, state: MemoryState) -> None:
    moves = loaded_moves(served.cluster, 6)
    later = moves.pop() | {"wave": 1}
    run = make_run(storage, [*moves, later])
    recorded(state, run)

    assert unload(run, state) == {"moved": 5}

    assert all(served.cluster.owner(move["bundle"]) == move["destination"] for move in moves)
    assert served.cluster.owner(later["bundle"]) == later["source"]
    history = state.documents[MOVES]["unloads"]
    assert {bundle: unload["outcome"] for bundle, unload in history.items()} == {m["bundle"]: "moved" for m in moves}
    assert {outcome.attempts for outcome in read_waves(run).values()} == {1}


def test_plans_are_stored_before_the_first_unload(
    served: Running, storage: ClusterStorage, state: MemoryState, monkeypatch: pytest.MonkeyPatch
) -> None:
    moves = loaded_moves(served.cluster, 3)
    run = make_run(storage, moves)
    recorded(state, run)
    seen: list[dict[str, str]] = []
    real = served.cluster.unload_at

    def note(*args: Any, **kwargs: Any) -> Any:
        seen.append({b: u["outcome"] for b, u in state.documents[MOVES]["unloads"].items()})
        return real(*args, **kwargs)

    monkeypatch.setattr(served.cluster, "unload_at", note)
    unload(run, state)

    assert seen[0] == {move["bundle"]: "" for move in moves}


def test_what_others_write_meanwhile_stays(
    served: Running, storage: ClusterStorage, state: MemoryState, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(storage, loaded_moves(served.cluster, 1))
    recorded(state, run)
    restored = {"at": "2026-11-21T10:00:00Z", "plan_id": "earlier", "source": "a:1", "destination": "b:1"}
    real = served.cluster.unload_at

    def restore(*args: Any, **kwargs: Any) -> Any:
        state.documents[MOVES]["unloads"]["acme/shop/0x00000000_0x10000000"] = restored
        return real(*args, **kwargs)

    monkeypatch.setattr(served.cluster, "unload_at", restore)
    unload(run, state)

    assert state.documents[MOVES]["unloads"]["acme/shop/0x00000000_0x10000000"]["plan_id"] == "earlier"
    assert len(state.documents[MOVES]["unloads"]) == 2


def test_a_second_attempt_unloads_nothing_again(
    served: Running, storage: ClusterStorage, state: MemoryState, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(storage, loaded_moves(served.cluster, 3))
    recorded(state, run)
    unload(run, state)
    monkeypatch.setattr(served.cluster, "unload_at", lambda *_, **__: pytest.fail("unloaded again"))

    assert unload(run, state) == {"moved": 3}


def test_another_plan_in_the_store_stops_it(served: Running, storage: ClusterStorage, state: MemoryState) -> None:
    moves = loaded_moves(served.cluster, 2)
    run = make_run(storage, moves)
    recorded(state, make_run(storage, moves))

    with pytest.raises(AirflowFailException, match="not_recorded"):
        unload(run, state)

    assert not state.writes
    assert all(served.cluster.owner(move["bundle"]) == move["source"] for move in moves)


def test_a_wave_of_a_run_long_gone_is_refused(served: Running, storage: ClusterStorage, state: MemoryState) -> None:
    run = make_run(storage, loaded_moves(served.cluster, 1), age=timedelta(hours=2))
    recorded(state, run)

    with pytest.raises(AirflowFailException, match="plan_too_old"):
        unload(run, state)


def test_a_wave_that_was_not_begun_in_time_is_left_and_says_so(
    served: Running, storage: ClusterStorage, state: MemoryState
) -> None:
    """Three minutes until the gate, five more until the last wave: the loads that the plan was made from are gone."""
    moves = loaded_moves(served.cluster, 2)
    run = make_run(storage, moves, age=timedelta(seconds=180 + 300 + 5))
    recorded(state, run)

    with pytest.raises(AirflowFailException, match=r"wave 0 was not begun.*plan_too_old"):
        unload(run, state)

    assert all(served.cluster.owner(move["bundle"]) == move["source"] for move in moves)
    assert conclude(run, Reason.OPEN, (), datetime.now(UTC)).counts == {"plan_too_old": 2}


@pytest.mark.parametrize(("minutes", "resumed"), [(20, True), (31, False)])
def test_a_wave_that_was_begun_in_time_is_resumed_later(
    served: Running, storage: ClusterStorage, state: MemoryState, minutes: int, resumed: bool
) -> None:
    moves = loaded_moves(served.cluster, 2)
    run = make_run(storage, moves, age=timedelta(minutes=minutes))
    recorded(state, run)
    history = WaveHistory(StateStore(state).moves(), StateStore(state).change_moves, run, 0)
    history.plan(read_moves(run), datetime.now(UTC) - timedelta(minutes=15))

    if resumed:
        assert unload(run, state) == {"moved": 2}
    else:
        with pytest.raises(AirflowFailException, match="plan_too_old"):
            unload(run, state)
        assert conclude(run, Reason.OPEN, {move["bundle"] for move in moves}, datetime.now(UTC)).counts == {
            "interrupted": 2
        }


def test_the_time_for_waves_is_a_setting_of_the_plan(
    served: Running, storage: ClusterStorage, state: MemoryState
) -> None:
    run = make_run(storage, loaded_moves(served.cluster, 1), age=timedelta(minutes=40), max_wave_delay_seconds=3600)
    recorded(state, run)

    assert unload(run, state) == {"moved": 1}


@pytest.mark.parametrize(
    ("given", "present", "reason"),
    [
        ({"validation": HOLD}, {}, "on_hold"),
        ({}, {"max_bundles_per_run": 1}, "over_cap"),
        ({"max_bundles_per_broker": 1}, {}, "over_cap"),
        ({}, {"connection": "pulsar_other"}, "connection_changed"),
    ],
)
def test_a_wave_asks_the_gates_rules_again(
    served: Running,
    storage: ClusterStorage,
    state: MemoryState,
    given: dict[str, Any],
    present: dict[str, Any],
    reason: str,
) -> None:
    """Which waves there are is an XCom of the gate: it opens no gate that is closed."""
    moves = loaded_moves(served.cluster, 4)
    run = make_run(storage, moves, **given)
    recorded(state, run)

    with pytest.raises(AirflowFailException, match=reason):
        unload(run, state, **present)

    assert all(served.cluster.owner(move["bundle"]) == move["source"] for move in moves)
    assert state.writes == []


def test_a_destination_that_the_leader_keeps_is_recorded_until_another_unload_takes_its_place(
    served: Running, storage: ClusterStorage, state: MemoryState
) -> None:
    # Not the broker that is asked first, but the owner fails: behind the leader.
    move = next(m for m in loaded_moves(served.cluster, 99) if not served.urls[0].endswith(m["source"]))
    moves, cluster, bundle = [move], served.cluster, move["bundle"]
    leader = next(b for b in cluster.active_brokers() if b not in (move["source"], move["destination"]))
    cluster.change_leader(leader)
    cluster.faults.add("error_500", move["source"], path="/unload")
    run = make_run(storage, moves, unload_retries=0)
    recorded(state, run)

    with pytest.raises(UnfinishedWaveError, match="server_error"):
        unload(run, state)

    kept = state.documents[MOVES]["kept"]
    assert {name: (found["destination"], found["owner"]) for name, found in kept.items()} == {
        bundle: (move["destination"], move["source"])
    }
    assert read_waves(run)[bundle].destination_kept
    cluster.faults.clear()
    other = make_run(storage, [move | {"destination": leader}], base_seq=1)
    recorded(state, other)

    assert unload(other, state) == {"moved": 1}
    assert state.documents[MOVES]["kept"] == {}


def test_a_read_only_connection_stops_it(
    served: Running, storage: ClusterStorage, state: MemoryState, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = json.loads(os.environ["AIRFLOW_CONN_PULSAR_TEST"])
    monkeypatch.setenv("AIRFLOW_CONN_PULSAR_TEST", json.dumps(document | {"extra": {"read_only": True}}))
    run = make_run(storage, loaded_moves(served.cluster, 1))
    recorded(state, run)

    with pytest.raises(AirflowFailException, match="read_only"):
        unload(run, state)

    assert not state.writes


def test_what_moved_on_is_an_outcome_and_no_failure(
    served: Running, storage: ClusterStorage, state: MemoryState
) -> None:
    moves = loaded_moves(served.cluster, 2)
    third = next(b for b in served.cluster.active_brokers() if b not in (moves[0]["source"], moves[0]["destination"]))
    run = make_run(storage, [moves[0] | {"source": third}, moves[1]])
    recorded(state, run)

    assert unload(run, state) == {"owner_changed": 1, "moved": 1}


def test_brokers_that_fail_are_tried_again_and_the_rest_is_not(
    served: Running, storage: ClusterStorage, state: MemoryState, monkeypatch: pytest.MonkeyPatch
) -> None:
    moves = loaded_moves(served.cluster, 3)
    run = make_run(storage, moves)
    recorded(state, run)
    served.cluster.faults.add("error_500", moves[0]["destination"], path="/topicHashPositions")

    with pytest.raises(UnfinishedWaveError, match="server_error"):
        unload(run, state)
    reached = {b for b, outcome in read_waves(run).items() if outcome.ok}
    served.cluster.faults.clear()
    unloaded: list[str] = []
    real = served.cluster.unload_at

    def note(at: int, namespace: str, hash_range: str, destination: str | None = None) -> Any:
        unloaded.append(f"{namespace}/{hash_range}")
        return real(at, namespace, hash_range, destination)

    monkeypatch.setattr(served.cluster, "unload_at", note)

    assert unload(run, state) == {"moved": 3}
    assert not reached & set(unloaded)


def test_refused_credentials_are_not_tried_again(served: Running, storage: ClusterStorage, state: MemoryState) -> None:
    run = make_run(storage, loaded_moves(served.cluster, 1))
    recorded(state, run)
    served.cluster.faults.add("unauthorized", path="")

    with pytest.raises(AirflowFailException, match="unauthorized"):
        unload(run, state)


@pytest.mark.parametrize("astray", [False, True])
def test_killed_in_the_middle_it_resumes(
    served: Running,
    storage: ClusterStorage,
    state: MemoryState,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    astray: bool,
) -> None:
    """The process is killed while its second unload is under way; the store holds what it had written by then.

    With nobody to look after it, the bundle may have been placed on a third broker.
    """
    moves = loaded_moves(served.cluster, 4)
    run = make_run(storage, moves, unload_concurrency=1)
    recorded(state, run)
    file = tmp_path / "store.json"
    file.write_text(json.dumps(state.documents))
    unloaded: list[str] = []
    real = served.cluster.unload_at
    killing = True

    def watch(at: int, namespace: str, hash_range: str, destination: str | None = None) -> Any:
        hop = real(at, namespace, hash_range, destination)
        if hop is None:  # the owner itself: the bundle is unloaded now
            unloaded.append(f"{namespace}/{hash_range}")
            if killing and len(unloaded) == 2:
                # Time stands still from here on: no client looks the lost bundle up by chance.
                now = served.cluster.clock.now()
                monkeypatch.setattr(served.cluster.clock, "now", lambda: now)
                os.kill(child.pid, signal.SIGKILL)
                child.wait()
        return hop

    monkeypatch.setattr(served.cluster, "unload_at", watch)
    child = subprocess.Popen([sys.executable, str(ALONE), str(file), run.uri], env=os.environ | {"PYTHONPATH": paths()})
    child.wait(120)
    killing = False
    assert child.returncode == -signal.SIGKILL
    state.documents = json.loads(file.read_text())
    assert set(state.documents[MOVES]["unloads"]) == {move["bundle"] for move in moves}
    # The bundle that was unloaded and not placed: nobody owns it until it is looked up.
    assert [m["bundle"] for m in moves if served.cluster.owner(m["bundle"]) is None] == unloaded[1:2]
    if astray:
        (lost,) = (move for move in moves if move["bundle"] == unloaded[1])
        placed_on_a_third(served.cluster, lost)

    counts = unload(run, state)

    assert counts == {"moved": 4}
    assert all(served.cluster.owner(move["bundle"]) == move["destination"] for move in moves)
    assert unloaded.count(unloaded[0]) == 1


def placed_on_a_third(cluster: Cluster, move: dict[str, Any]) -> None:
    third = next(b for b in cluster.active_brokers() if b not in (move["source"], move["destination"]))
    cluster.unload(move["bundle"], third)
    topology = cluster.topology
    assert cluster.lookup(topology.topics(topology.index(move["bundle"]))[0]) == third


@pytest.mark.parametrize("reason", ["unowned", "unknown_owner"])
def test_what_an_attempt_unloaded_and_a_client_placed_elsewhere_is_moved(
    served: Running, storage: ClusterStorage, state: MemoryState, reason: str
) -> None:
    moves = loaded_moves(served.cluster, 2)
    run = make_run(storage, moves)
    recorded(state, run)
    lost = {"bundle": moves[0]["bundle"], "source": moves[0]["source"], "destination": moves[0]["destination"]}
    wave_file(run, 0).write_json([lost | {"reason": reason, "attempts": 1}])
    placed_on_a_third(served.cluster, moves[0])

    assert unload(run, state) == {"moved": 2}
    assert served.cluster.owner(moves[0]["bundle"]) == moves[0]["destination"]


def test_what_a_client_moved_before_its_unload_is_left_where_it_is(
    served: Running, storage: ClusterStorage, state: MemoryState
) -> None:
    moves = loaded_moves(served.cluster, 2)
    run = make_run(storage, moves)
    recorded(state, run)
    left = {"bundle": moves[0]["bundle"], "source": moves[0]["source"], "destination": moves[0]["destination"]}
    wave_file(run, 0).write_json([left | {"reason": "timeout", "attempts": 0}])
    placed_on_a_third(served.cluster, moves[0])

    assert unload(run, state) == {"owner_changed": 1, "moved": 1}


def paths() -> str:
    root = Path(__file__).parents[4]
    return os.pathsep.join(str(root / part) for part in ("include", "plugins", "spark_apps", "."))


def test_details_are_on_disk_while_the_wave_goes_on(
    served: Running, storage: ClusterStorage, state: MemoryState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """History and details are written at most once a second, and always at the end."""
    moves = loaded_moves(served.cluster, 5)
    run = make_run(storage, moves, unload_concurrency=1)
    recorded(state, run)
    clock = iter(range(100, 10_000))
    monkeypatch.setattr(history, "time", SimpleNamespace(monotonic=lambda: next(clock)))

    unload(run, state)

    # Planned, once per outcome with a clock that leaps, and at the end.
    assert state.writes.count(MOVES) == 1 + len(moves) + 1


@pytest.mark.parametrize(
    ("standing", "reason"),
    [
        ({"mode": "observe"}, "observe"),
        ({"pause": {"until": "2999-01-01T00:00:00Z", "reason": "stop"}}, "paused"),
    ],
)
def test_a_wave_is_not_begun_when_the_clusters_file_says_so_by_now(
    served: Running, storage: ClusterStorage, state: MemoryState, standing: dict[str, Any], reason: str
) -> None:
    moves = loaded_moves(served.cluster, 2)
    run = make_run(storage, moves)
    recorded(state, run)
    with pytest.raises(AirflowFailException, match=reason):
        unload(run, state, **standing)
    assert all(served.cluster.owner(move["bundle"]) == move["source"] for move in moves)


def test_a_wave_is_not_begun_while_pulsar_sheds_itself(
    served: Running, storage: ClusterStorage, state: MemoryState
) -> None:
    moves = loaded_moves(served.cluster, 2)
    run = make_run(storage, moves)
    recorded(state, run)
    url = f"{served.urls[0]}/admin/v2/brokers/configuration/loadBalancerSheddingEnabled/true"
    assert httpx.post(url, headers=served.headers).is_success
    with pytest.raises(AirflowFailException, match="builtin_shedding_on"):
        unload(run, state)
    assert all(served.cluster.owner(move["bundle"]) == move["source"] for move in moves)
    assert state.documents[MOVES]["unloads"] == {}
