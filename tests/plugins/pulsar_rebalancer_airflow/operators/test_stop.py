import json
import re
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from tests.airflow_context import context, store_of
from tests.airflow_runs import CLUSTER
from tests.plugins.pulsar_rebalancer_airflow.operators.unload_scene import UnloadScene

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.orders.breaker import Breaker
from pulsar_rebalancer.orders.order import Control, GivenOrder
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.outcome import conclude_run
from pulsar_rebalancer.run.tables import BUNDLES, table
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer_airflow.operators import ReportOperator, UnloadWaveOperator
from pulsar_rebalancer_airflow.operators import gate as module
from pulsar_rebalancer_airflow.operators.unload import UnfinishedPlanError
from pulsar_rebalancer_airflow.options import CLUSTERS_VARIABLE

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def unload(scene: UnloadScene, run: StoragePath, started: datetime) -> dict[str, Any]:
    """Carry wave 0 out in a run that started then; what the task pushed."""
    given: Any = context(CLUSTER, scene.state, started=started)
    settings = {"mode": "auto", "connection": "pulsar_test", "unload_concurrency": 1}
    UnloadWaveOperator(task_id="unload", cluster=CLUSTER, settings=settings, run=run.uri, wave=0).execute(given)
    pushed: dict[str, Any] = given["ti"].pushed
    return pushed


def test_a_stop_ends_a_wave_between_two_bundles_and_a_cleared_run_goes_on(scene):
    moves = scene.moves(4)
    run = scene.run(moves)
    scene.monkeypatch.setattr(module, "_SECONDS_BETWEEN_LOOKS", 0.0)
    stop = Control().with_order(GivenOrder(action="stop", at=NOW, by="ada", reason="wait"))
    scene.before_unloads(lambda _: store_of(scene.state).put(stop))

    with pytest.raises(AirflowFailException, match="stopped"):
        unload(scene, run, NOW - timedelta(minutes=1))

    assert conclude_run(run, Reason.OPEN, NOW).move_counts == {"stopped": 3, "moved": 1}
    assert sum(scene.cluster.owner(move["bundle"]) == move["destination"] for move in moves) == 1

    pushed = unload(scene, run, NOW + timedelta(seconds=1))

    assert conclude_run(run, Reason.OPEN, NOW).move_counts == {"moved": 4}
    assert scene.all_on(moves, "destination")
    assert pushed["progress"] == {"done": 4, "of": 4, "failed": 0}


FILE = {"mode": "auto", "connection": "pulsar_test", "unload_concurrency": 1, "breaker": {"failed_moves": 1}}


def opened(scene: UnloadScene) -> None:
    store_of(scene.state).put(Breaker(opened_at=datetime.now(UTC), why="worse"))


def nothing(scene: UnloadScene) -> None:
    pass


@pytest.mark.parametrize(
    ("order", "file", "reason"),
    [
        (opened, FILE, "breaker_open"),
        (nothing, FILE | {"mode": "observe"}, "observe"),
        (nothing, FILE | {"mode": "approve"}, "awaiting_approval"),
        (nothing, FILE | {"modes": "auto"}, "wrong_setting"),
        (nothing, None, "wrong_setting"),
    ],
)
def test_whatever_closes_the_gate_ends_a_wave_as_a_stop_does(scene, tmp_path, order, file, reason):
    clusters = tmp_path / "clusters.yaml"

    def write(given: dict[str, Any] | None) -> None:
        clusters.write_text(json.dumps({"clusters": {CLUSTER: given} if given else {}}))

    write(FILE)
    scene.monkeypatch.setenv(CLUSTERS_VARIABLE, str(clusters))
    scene.monkeypatch.setattr(module, "_SECONDS_BETWEEN_LOOKS", 0.0)
    # As long as it is looked at twice at least: an editor may be writing the file at the first look.
    moves = scene.moves(5)
    run = scene.run(moves)
    breaker = scene.state.documents["breaker"]
    with scene.monkeypatch.context() as once:
        real = scene.cluster.unload_via

        def unload_via(at: int, *given: Any) -> Any:
            order(scene)
            write(file)
            return real(at, *given)

        once.setattr(scene.cluster, "unload_via", unload_via)
        with failed(reason) if reason == "wrong_setting" else nullcontext():
            told = carry_out(scene, run)
    counts = conclude_run(run, Reason.OPEN, NOW).move_counts
    assert counts[Reason.MOVED] <= 2
    assert counts == {"moved": counts[Reason.MOVED], reason: 5 - counts[Reason.MOVED]}
    assert reason == "wrong_setting" or told == counts

    scene.state.documents["breaker"] = breaker
    write(FILE)
    carry_out(scene, run)
    assert conclude_run(run, Reason.OPEN, NOW).move_counts == {"moved": 5}
    assert scene.all_on(moves, "destination")


def carry_out(scene: UnloadScene, run: StoragePath) -> dict[str, int]:
    operator = UnloadWaveOperator(task_id="unload", cluster=CLUSTER, settings=FILE, run=run.uri, wave=0)
    return operator.execute(context(CLUSTER, scene.state, started=NOW))


def failed(reason: str) -> pytest.RaisesExc[AirflowFailException]:
    return pytest.raises(AirflowFailException, match=re.escape(Reason(reason).meaning))


def test_bundle_excluded_during_a_wave_stays(scene, tmp_path):
    clusters, moves = tmp_path / "clusters.yaml", scene.moves(5)

    def write(given: dict[str, Any]) -> None:
        clusters.write_text(json.dumps({"clusters": {CLUSTER: given}}))

    write(FILE)
    scene.monkeypatch.setenv(CLUSTERS_VARIABLE, str(clusters))
    scene.monkeypatch.setattr(module, "_SECONDS_BETWEEN_LOOKS", 0.0)
    scene.before_unloads(lambda _: write(FILE | {"excluded_bundles": [move["bundle"] for move in moves[3:]]}))
    run = scene.run(moves)

    carry_out(scene, run)

    assert conclude_run(run, Reason.OPEN, NOW).move_counts == {"moved": 3, "bundle_excluded": 2}
    assert scene.all_on(moves[:3], "destination")
    assert scene.all_on(moves[3:], "source")


@pytest.mark.parametrize("concurrency", [1, 4])
def test_a_run_whose_moves_fail_is_stopped_by_the_breaker_that_its_report_opens(scene, concurrency):
    moves = scene.moves(8)
    rules = {"failed_moves": 2, "minutes": 60}
    present = {"breaker": rules, "unload_concurrency": concurrency}
    scene.cluster.faults.add("error_500", path="/unload")
    run = scene.run(
        [move | {"wave": int(number > 5)} for number, move in enumerate(moves)],
        unload_concurrency=concurrency,
        move_timeout_seconds=1,
    )

    with pytest.raises(UnfinishedPlanError, match=r"Wave 0: .* stopped by the circuit breaker"):
        scene.unload(run, 0, **present)
    tried = conclude_run(run, Reason.OPEN, NOW).move_counts[Reason.SERVER_ERROR]
    assert 2 <= tried <= 1 + concurrency
    with pytest.raises(UnfinishedPlanError):  # a retry begins nothing
        scene.unload(run, 0, **present)
    with pytest.raises(AirflowSkipException, match="2 stopped by the circuit breaker"):
        scene.unload(run, 1, **present)
    assert conclude_run(run, Reason.OPEN, NOW).move_counts == {"server_error": tried, "breaker_open": 8 - tried}

    assert opened_by_report(scene, run, rules) == f"{tried} moves of a run failed or landed on the wrong broker"

    # Once a person has closed it, the waves may be cleared.
    close_breaker(scene)
    assert scene.unload(run, 0, **present) == {"moved": 6}
    assert scene.unload(run, 1, **present) == {"moved": 2}


def opened_by_report(scene: UnloadScene, run: StoragePath, rules: dict[str, Any]) -> str:
    """Why the report of a run has opened the breaker; empty if it has not."""
    (run / "input" / "bundles.parquet").write_table(table([], BUNDLES))
    settings = Settings.model_validate({"mode": "auto", "breaker": rules})
    xcoms = {("gate", "reason"): "open"}
    report = ReportOperator(task_id="report", cluster=CLUSTER, run=run.uri, gate="gate", settings=settings)
    report.execute(context(CLUSTER, scene.state, xcoms=xcoms))
    return store_of(scene.state).get(Breaker).why


def close_breaker(scene: UnloadScene) -> None:
    """As a person does once the brokers are well again."""
    scene.cluster.faults.clear()
    closed = GivenOrder(action="close_breaker", at=datetime.now(UTC), by="ada", reason="brokers are well again")
    store_of(scene.state).put(Control(orders=(closed,)))


def test_a_breaker_that_a_person_closes_during_the_run_counts_later_failures_only(scene):
    moves = scene.moves(4)
    rules = {"failed_moves": 2, "minutes": 60}
    scene.cluster.faults.add("error_500", path="/unload")
    waves = [move | {"wave": int(number > 1)} for number, move in enumerate(moves)]
    run = scene.run(waves, move_timeout_seconds=1)
    with pytest.raises(UnfinishedPlanError):
        scene.unload(run, 0, breaker=rules)
    with pytest.raises(AirflowSkipException, match="2 stopped by the circuit breaker"):
        scene.unload(run, 1, breaker=rules)

    close_breaker(scene)

    assert scene.unload(run, 1, breaker=rules) == {"moved": 2}
    assert opened_by_report(scene, run, rules) == ""
