"""What a wave's moves cost their clients is measured, and measuring harms no wave."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from tests.airflow_context import context
from tests.airflow_runs import CLUSTER

from pulsar_rebalancer.carry_out import harm_meter
from pulsar_rebalancer.carry_out.bundle_move import BundleMove
from pulsar_rebalancer.orders.control_document import Control, Order
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.outcome import BundleHarm, Harm, Outcome, conclude, read_waves
from pulsar_rebalancer.show.measurements import describe
from pulsar_rebalancer_airflow.operators import ReportOperator, unload
from pulsar_rebalancer_airflow.state_store import StateStore
from pulsar_simulator.faults import FaultKind

if TYPE_CHECKING:
    from tests.plugins.pulsar_rebalancer_airflow.operators.unload_scene import UnloadScene

    from pulsar_rebalancer.carry_out.move_executor import AdaptivePace
    from pulsar_rebalancer.run.outcome import MoveOutcome
    from pulsar_rebalancer.storage.path import StoragePath

DELAY = 1.5  # seconds that clients of the simulated cluster are away


class Truth:
    """The simulation's own record: when bundles were unloaded, and when all clients were first seen again."""

    def __init__(self, scene: UnloadScene) -> None:
        self.asked: Counter[str] = Counter()
        self.unloaded: dict[str, float] = {}
        self.back: dict[str, float] = {}
        self._scene = scene
        scene.before_unloads(lambda bundle: self.unloaded.setdefault(bundle, time.monotonic()))
        self._real = scene.cluster.topic_stats_at
        scene.monkeypatch.setattr(scene.cluster, "topic_stats_at", self._watched)

    def _watched(self, at: int, topic: str) -> Any:
        answer = self._real(at, topic)
        topology = self._scene.cluster.topology
        bundle = topology.bundles[topology.of_topic(topic)]
        self.asked[bundle] += 1
        if bundle in self.unloaded and isinstance(answer, dict) and answer["publishers"]:
            self.back[bundle] = time.monotonic()
        return answer

    def clients(self, bundle: str) -> int:
        cluster = self._scene.cluster
        index = cluster.topology.index(bundle)
        return int(cluster.reporter.producers[index] + cluster.reporter.consumers[index])


def harms(run: StoragePath) -> dict[str, Harm]:
    found = {bundle: outcome.harm for bundle, outcome in read_waves(run).items() if outcome.harm is not None}
    assert found.keys() == read_waves(run).keys()
    return found


def test_clients_that_come_back_are_timed(scene: UnloadScene) -> None:
    scene.cluster.ownership.reconnect_delay = DELAY
    truth, moves = Truth(scene), scene.moves(5)
    run = scene.run(moves)
    begun = time.monotonic()

    assert scene.unload(run) == {"moved": 5}

    took = time.monotonic() - begun
    for bundle, harm in harms(run).items():
        assert harm.clients_before == harm.clients_back == truth.clients(bundle) > 0
        assert (harm.unknown, harm.errors) == ("", 0)
        assert harm.topics == harm.topics_measured > 0
        assert harm.owner_seconds is not None
        assert harm.clients_seconds is not None
        # Never less than clients were away, and no more than the wave took, which waited for them.
        assert DELAY <= truth.back[bundle] - truth.unloaded[bundle] <= harm.clients_seconds <= took
        assert 0 < harm.owner_seconds < harm.clients_seconds

    outcome = conclude(run, Reason.OPEN, datetime.now(UTC))
    assert outcome.harm is not None
    assert (outcome.harm.moves, outcome.harm.unknown, outcome.harm.not_back) == (5, 0, 0)
    assert "clients were back after" in describe(outcome, run)


def test_a_report_keeps_what_each_bundles_move_cost(scene: UnloadScene) -> None:
    moves = scene.moves(2)
    run = scene.run(moves)
    scene.unload(run)
    operator = ReportOperator(task_id="report", cluster=CLUSTER, run=run.uri, gate="gate")

    operator.execute(context(CLUSTER, scene.state, xcoms={("gate", "reason"): "open"}))

    assert BundleHarm.last(scene.storage.state, (move["bundle"] for move in moves)) == harms(run)
    written = BundleHarm.read(scene.storage.state)
    operator.execute(context(CLUSTER, scene.state, xcoms={("gate", "reason"): "open"}))
    assert BundleHarm.read(scene.storage.state) == written
    assert Outcome.read(run).harm is not None


@pytest.mark.parametrize(("content", "kept"), [(b"{", True), (b'{"version": 1, "bundles": 3}', True), (b"{}", False)])
def test_what_moves_cost_is_kept_again_after_the_file_was_damaged(
    scene: UnloadScene, capsys: pytest.CaptureFixture[str], content: bytes, kept: bool
) -> None:
    file = scene.storage.state / BundleHarm.FILE
    file.write_bytes(content)
    run = scene.run(scene.moves(1))
    scene.unload(run)

    operator = ReportOperator(task_id="report", cluster=CLUSTER, run=run.uri, gate="gate")
    operator.execute(context(CLUSTER, scene.state, xcoms={("gate", "reason"): "open"}))

    assert BundleHarm.last(scene.storage.state, harms(run)) == (harms(run) if kept else {})
    assert ("is lost" if kept else "is not kept") in capsys.readouterr().out
    assert kept or file.read_bytes() == content, "another release wrote it"


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        (FaultKind.SILENT, "/stats"),
        (FaultKind.SILENT, "/broker-stats/topics"),
        (FaultKind.GARBAGE, "/stats"),
        (FaultKind.FORBIDDEN, "/stats"),
        (FaultKind.NULL_ANSWER, "/broker-stats/topics"),
        (FaultKind.HALF_JSON, "/broker-stats/topics"),
    ],
)
def test_statistics_that_do_not_answer_leave_the_harm_unknown_and_the_wave_unharmed(
    scene: UnloadScene, kind: FaultKind, path: str
) -> None:
    scene.monkeypatch.setattr(harm_meter, "BEFORE_S", 0.3)
    scene.cluster.faults.add(kind, path=path)
    moves = scene.moves(6)
    run = scene.run(moves)

    assert scene.unload(run) == {"moved": 6}

    assert scene.all_on(moves, "destination")
    for harm in harms(run).values():
        assert harm.unknown
        assert harm.owner_seconds is not None
        figures = (harm.clients_seconds, harm.clients_before, harm.clients_back, harm.errors, harm.watched_seconds)
        assert figures == (None,) * 5
    summary = conclude(run, Reason.OPEN, datetime.now(UTC)).harm
    assert summary is not None
    assert summary.sentence == "6 of 6 moves could not be measured"
    assert not BundleHarm().added(harms(run), datetime.now(UTC)).bundles


def test_producers_that_brokers_only_count_are_clients_too(scene: UnloadScene) -> None:
    scene.cluster.configuration._file["exposePublisherStats"] = "false"
    scene.cluster.reporter.consumers[:] = 0
    scene.cluster.ownership.reconnect_delay = DELAY
    moves = scene.moves(3)
    run = scene.run(moves)

    scene.unload(run)

    for bundle, harm in harms(run).items():
        assert harm.clients_before == harm.clients_back == Truth(scene).clients(bundle) > 0
        assert harm.clients_seconds is not None
        assert harm.clients_seconds >= DELAY


def test_statistics_that_come_late_serve_the_moves_that_begin_afterwards(scene: UnloadScene) -> None:
    scene.monkeypatch.setattr(harm_meter, "BEFORE_S", 0.3)
    moves = scene.moves(40)
    moves = [move for move in moves if move["source"] == moves[0]["source"]]
    scene.cluster.faults.add(FaultKind.SLOW, path="/broker-stats/topics", amount=0.9)
    scene.cluster.faults.add(FaultKind.SLOW, path="/unload", amount=0.5)
    scene.before_unloads(lambda _: scene.monkeypatch.setattr(harm_meter, "BEFORE_S", 60.0))  # for the other moves
    run = scene.run(moves)

    scene.unload(run, unload_concurrency=1)

    found = harms(run)
    assert len(moves) >= 4
    assert "did not say within" in found[moves[0]["bundle"]].unknown
    assert found[moves[-1]["bundle"]].clients_back


def test_a_source_that_is_silent_is_asked_once(scene: UnloadScene) -> None:
    scene.monkeypatch.setattr(harm_meter, "BEFORE_S", 0.3)
    moves = scene.moves(40)
    moves = [move for move in moves if move["source"] == moves[0]["source"]]
    scene.cluster.faults.add(FaultKind.SILENT, path="/stats", times=1000)
    run = scene.run(moves)

    scene.unload(run, unload_concurrency=1)

    (fault,) = scene.cluster.faults.all()
    assert len(moves) >= 3
    assert fault.times is not None
    assert 0 < 1000 - fault.times <= harm_meter.MOST_TOPICS
    assert {"did not say within" in harm.unknown for harm in harms(run).values()} == {True}


def test_owners_that_answer_nothing_afterwards_leave_the_harm_unknown(scene: UnloadScene) -> None:
    scene.monkeypatch.setattr(harm_meter, "WATCHED_S", 0.8)
    (move,) = scene.moves(1)
    scene.cluster.faults.add(FaultKind.SILENT, move["destination"], path="/stats")
    run = scene.run([move])

    assert scene.unload(run) == {"moved": 1}

    harm = harms(run)[move["bundle"]]
    assert "did not answer" in harm.unknown
    assert harm.clients_before == Truth(scene).clients(move["bundle"])
    assert (harm.clients_seconds, harm.clients_back, harm.errors) == (None, None, None)


def test_a_topic_that_returns_an_error_afterwards_is_counted(scene: UnloadScene) -> None:
    scene.monkeypatch.setattr(harm_meter, "WATCHED_S", 3.0)
    move = next(move for move in scene.moves(40) if _busy_topics(scene, move["bundle"]) > 1)
    topology = scene.cluster.topology
    broken = topology.topics(topology.index(move["bundle"]))[0]
    path = broken.partition("://")[2] + "/stats"
    scene.cluster.faults.add(FaultKind.ERROR_500, move["destination"], path=path)
    run = scene.run([move])

    assert scene.unload(run) == {"moved": 1}

    harm = harms(run)[move["bundle"]]
    assert (harm.errors, harm.clients_seconds, harm.unknown) == (1, None, "")
    assert harm.clients_before is not None
    assert harm.clients_back is not None
    assert 0 < harm.clients_back < harm.clients_before
    assert "1 topic returned an error" in harm.text


def test_clients_that_never_come_back_are_reported_and_end_the_wave_in_time(scene: UnloadScene) -> None:
    scene.monkeypatch.setattr(harm_meter, "WATCHED_S", 3.0)
    moves = scene.moves(4)
    scene.cluster.faults.add(FaultKind.CLIENTS_GONE, bundle=moves[0]["bundle"])
    run = scene.run(moves)

    assert scene.unload(run) == {"moved": 4}

    found = harms(run)
    gone = found.pop(moves[0]["bundle"])
    assert gone.clients_before
    assert (gone.clients_back, gone.clients_seconds, gone.unknown) == (0, None, "")
    assert all(harm.clients_back == harm.clients_before for harm in found.values())
    summary = conclude(run, Reason.OPEN, datetime.now(UTC)).harm
    assert summary is not None
    assert (summary.not_back, summary.unknown) == (1, 0)


def test_thousands_of_topics_are_sampled(scene: UnloadScene) -> None:
    cluster = scene.cluster
    move = scene.moves(1)[0]
    index = cluster.topology.index(move["bundle"])
    name = cluster.topology.namespace_of(index).name
    cluster.topology.namespaces[name] = replace(cluster.topology.namespaces[name], topics_per_bundle=3000)
    cluster.topology._topics.clear()  # names of topics are found again
    cluster.reporter.producers[index] = 3000
    truth, run = Truth(scene), scene.run([move])

    assert scene.unload(run) == {"moved": 1}

    harm = harms(run)[move["bundle"]]
    assert (harm.topics, harm.topics_measured) == (3000, harm_meter.MOST_TOPICS)
    assert harm.clients_back == harm.clients_before
    assert harm.clients_seconds is not None
    assert "(10 of 3000 topics)" in harm.text
    # Once before, and until they are back: a few times afterwards, but never all topics.
    assert truth.asked[move["bundle"]] < 100


def test_a_stop_does_not_wait_for_clients(scene: UnloadScene) -> None:
    scene.monkeypatch.setattr(harm_meter, "WATCHED_S", 600.0)
    moves = scene.moves(2)
    scene.cluster.faults.add(FaultKind.CLIENTS_GONE)
    run = scene.run(moves)

    def stop(_: str) -> None:
        order = Order(at=datetime.now(UTC), by="bob", reason="enough")
        StateStore(scene.state).put_control(scene.storage, Control(stop=order))

    scene.before_unloads(stop)
    scene.unload(run)  # the moves have ended: the stop came too late for them

    for harm in harms(run).values():
        assert harm.unknown == "the task ended before its clients were counted"
        assert harm.owner_seconds is not None


@pytest.mark.parametrize(("away", "gap", "most"), [(0.0, 15.0, 2), (DELAY, DELAY / 2, 1)], ids=["in time", "late"])
def test_brokers_determine_how_many_bundles_are_under_way(
    scene: UnloadScene, caplog: pytest.LogCaptureFixture, away: float, gap: float, most: int
) -> None:
    caplog.set_level("INFO")
    scene.cluster.ownership.reconnect_delay = away
    moves = [move for move in scene.moves(40) if move["source"] == scene.moves(1)[0]["source"]][:8]
    under_way: set[str] = set()
    seen = 0

    def unloading(bundle: str) -> None:
        nonlocal seen
        under_way.add(bundle)
        seen = max(seen, len(under_way))

    scene.before_unloads(unloading)
    real = BundleMove.outcome

    async def outcome(move: BundleMove) -> MoveOutcome:
        ended = await real(move)
        under_way.discard(ended.bundle)
        return ended

    scene.monkeypatch.setattr(BundleMove, "outcome", outcome)
    run = scene.run(moves, unload_concurrency="auto")

    assert scene.unload(run, unload_concurrency="auto", max_client_gap_seconds=gap) == {"moved": 8}

    assert len(moves) == 8
    assert min(seen, 2) == most
    assert ("were late" in caplog.text) is (most == 1)


def test_a_bundle_that_is_unloaded_again_counts_as_late(scene: UnloadScene, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    # Otherwise a client may look the bundle up before the lookup that leads it astray.
    scene.cluster.ownership.reconnect_delay = DELAY
    (move,) = scene.moves(1)
    scene.cluster.faults.add(FaultKind.STRAY, bundle=move["bundle"], times=1)
    run = scene.run([move], unload_concurrency="auto")

    assert scene.unload(run, unload_concurrency="auto", max_client_gap_seconds=15.0) == {"moved": 1}

    assert harms(run)[move["bundle"]].clients_seconds is not None
    assert read_waves(run)[move["bundle"]].attempts == 2
    assert caplog.text.count("were late") == 2


@pytest.mark.parametrize(("planned", "present"), [("auto", 2), (2, "auto")])
def test_a_fixed_number_limits_the_adaptive_pace(scene: UnloadScene, planned: int | str, present: int | str) -> None:
    given: list[tuple[int, bool]] = []

    async def carry_out(*_: Any, concurrency: int, pace: AdaptivePace | None, **__: Any) -> list[MoveOutcome]:
        given.append((concurrency, pace is not None))
        return []

    scene.monkeypatch.setattr(unload, "carry_out_moves", carry_out)
    with pytest.raises(KeyError):  # no move has an outcome
        scene.unload(scene.run(scene.moves(1), unload_concurrency=planned), unload_concurrency=present)
    assert given == [(2, True)]


def _busy_topics(scene: UnloadScene, bundle: str) -> int:
    index = scene.cluster.topology.index(bundle)
    return min(2, int(scene.cluster.reporter.producers[index]))
