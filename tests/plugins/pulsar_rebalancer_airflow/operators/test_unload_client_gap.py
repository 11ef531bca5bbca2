import time
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.airflow_context import context
from tests.airflow_runs import CLUSTER
from tests.plugins.pulsar_rebalancer_airflow.operators.unload_scene import UnloadScene

from pulsar_rebalancer.carry_out import client_gap_meter
from pulsar_rebalancer.carry_out.bundle_move import BundleMove
from pulsar_rebalancer.carry_out.move_executor import AdaptivePace
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.outcome import BundleClientGaps, ClientGap, Outcome, conclude_run, read_move_outcomes
from pulsar_rebalancer.show.measurements import outcome_text
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer_airflow.operators import ReportOperator, unload
from pulsar_simulator.faults import FaultKind

DELAY = 1.5  # seconds that clients of the simulated cluster are away


class Truth:
    """The simulation's own record: when bundles were unloaded, and when all clients were first seen again."""

    def __init__(self, scene: UnloadScene) -> None:
        self.asked: Counter[str] = Counter()
        self.unloaded: dict[str, float] = {}
        self.back: dict[str, float] = {}
        self._scene = scene
        scene.before_unloads(lambda bundle: self.unloaded.setdefault(bundle, time.monotonic()))
        self._real = scene.cluster.topic_stats_via
        scene.monkeypatch.setattr(scene.cluster, "topic_stats_via", self._watched)

    def _watched(self, at: int, topic: str) -> Any:
        answer = self._real(at, topic)
        topology = self._scene.cluster.topology
        bundle = topology.bundles[topology.bundle_of_topic(topic)]
        self.asked[bundle] += 1
        if bundle in self.unloaded and isinstance(answer, dict) and answer["publishers"]:
            self.back[bundle] = time.monotonic()
        return answer

    def clients(self, bundle: str) -> int:
        cluster = self._scene.cluster
        index = cluster.topology.index(bundle)
        return int(cluster.reporter.producers[index] + cluster.reporter.consumers[index])


def gaps(run: StoragePath) -> dict[str, ClientGap]:
    found = {name: ended.client_gap for name, ended in read_move_outcomes(run).items() if ended.client_gap is not None}
    assert found.keys() == read_move_outcomes(run).keys()
    return found


def test_clients_that_come_back_are_timed(scene):
    scene.cluster.ownership.reconnect_delay = DELAY
    truth, moves = Truth(scene), scene.moves(5)
    run = scene.run(moves)
    begun = time.monotonic()

    assert scene.unload(run) == {"moved": 5}

    took = time.monotonic() - begun
    for bundle, client_gap in gaps(run).items():
        assert client_gap.clients_before == client_gap.clients_back == truth.clients(bundle) > 0
        assert (client_gap.unknown, client_gap.errors) == ("", 0)
        assert client_gap.topics == client_gap.topics_measured > 0
        assert client_gap.owner_seconds is not None
        assert client_gap.clients_seconds is not None
        # Never less than clients were away, and no more than the wave took, which waited for them.
        assert DELAY <= truth.back[bundle] - truth.unloaded[bundle] <= client_gap.clients_seconds <= took
        assert 0 < client_gap.owner_seconds < client_gap.clients_seconds

    outcome = conclude_run(run, Reason.OPEN, datetime.now(UTC))
    assert outcome.client_gap is not None
    assert (outcome.client_gap.moves, outcome.client_gap.unknown, outcome.client_gap.not_back) == (5, 0, 0)
    assert "clients were away for" in outcome_text(outcome, run)


def test_a_report_keeps_what_each_bundles_move_cost(scene):
    moves = scene.moves(2)
    run = scene.run(moves)
    scene.unload(run)
    operator = ReportOperator(task_id="report", cluster=CLUSTER, run=run.uri, gate="gate")

    operator.execute(context(CLUSTER, scene.state, xcoms={("gate", "reason"): "open"}))

    assert BundleClientGaps.last_gaps(scene.storage.state, (move["bundle"] for move in moves)) == gaps(run)
    written = BundleClientGaps.read(scene.storage.state)
    operator.execute(context(CLUSTER, scene.state, xcoms={("gate", "reason"): "open"}))
    assert BundleClientGaps.read(scene.storage.state) == written
    assert Outcome.read(run).client_gap is not None


@pytest.mark.parametrize(
    ("kind", "path"),
    [(FaultKind.SILENT, "/stats"), (FaultKind.SILENT, "/broker-stats/topics"), (FaultKind.FORBIDDEN, "/stats")],
)
def test_statistics_that_do_not_answer_leave_the_client_gap_unknown(scene, kind, path):
    scene.monkeypatch.setattr(client_gap_meter, "MAX_COUNT_BEFORE_S", 0.3)
    scene.cluster.faults.add(kind, path=path)
    moves = scene.moves(6)
    run = scene.run(moves)

    assert scene.unload(run) == {"moved": 6}

    assert scene.all_on(moves, "destination")
    for client_gap in gaps(run).values():
        assert client_gap.unknown
        assert client_gap.owner_seconds is not None
        values = (
            client_gap.clients_seconds,
            client_gap.clients_before,
            client_gap.clients_back,
            client_gap.errors,
            client_gap.watched_seconds,
        )
        assert values == (None,) * 5
    summary = conclude_run(run, Reason.OPEN, datetime.now(UTC)).client_gap
    assert summary is not None
    assert summary.sentence == "for 6 of 6 moves, clients could not be counted"
    assert not BundleClientGaps().with_gaps(gaps(run), datetime.now(UTC)).bundles


def test_clients_that_never_come_back_are_reported_and_end_the_wave_in_time(scene):
    scene.monkeypatch.setattr(client_gap_meter, "MAX_WATCH_S", 3.0)
    moves = scene.moves(4)
    scene.cluster.faults.add(FaultKind.CLIENTS_GONE, bundle=moves[0]["bundle"])
    run = scene.run(moves)

    assert scene.unload(run) == {"moved": 4}

    found = gaps(run)
    gone = found.pop(moves[0]["bundle"])
    assert gone.clients_before
    assert (gone.clients_back, gone.clients_seconds, gone.unknown) == (0, None, "")
    assert all(client_gap.clients_back == client_gap.clients_before for client_gap in found.values())
    summary = conclude_run(run, Reason.OPEN, datetime.now(UTC)).client_gap
    assert summary is not None
    assert (summary.not_back, summary.unknown) == (1, 0)


def test_thousands_of_topics_are_sampled(scene):
    cluster = scene.cluster
    move = scene.moves(1)[0]
    index = cluster.topology.index(move["bundle"])
    name = cluster.topology.namespace_of(index).name
    cluster.topology.namespaces[name] = replace(cluster.topology.namespaces[name], topics_per_bundle=3000)
    cluster.topology._topics.clear()  # names of topics are found again
    cluster.reporter.producers[index] = 3000
    truth, run = Truth(scene), scene.run([move])

    assert scene.unload(run) == {"moved": 1}

    client_gap = gaps(run)[move["bundle"]]
    assert (client_gap.topics, client_gap.topics_measured) == (3000, client_gap_meter.MAX_TOPICS)
    assert client_gap.clients_back == client_gap.clients_before
    assert client_gap.clients_seconds is not None
    assert "on 10 of 3000 topics" in client_gap.text
    # Once before, and until they are back: a few times afterwards, but never all topics.
    assert truth.asked[move["bundle"]] < 100


@pytest.mark.parametrize(("away", "gap", "most"), [(0.0, 15.0, 2), (DELAY, DELAY / 2, 1)], ids=["in time", "late"])
def test_brokers_determine_how_many_bundles_are_under_way(scene, caplog, away, gap, most):
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
    real = BundleMove.carry_out

    async def outcome(move: BundleMove) -> Any:
        ended = await real(move)
        under_way.discard(ended.bundle)
        return ended

    scene.monkeypatch.setattr(BundleMove, "carry_out", outcome)
    run = scene.run(moves, unload_concurrency="auto")

    assert scene.unload(run, unload_concurrency="auto", max_client_gap_seconds=gap) == {"moved": 8}

    assert len(moves) == 8
    assert min(seen, 2) == most
    assert ("were late" in caplog.text) is (most == 1)


@pytest.mark.parametrize(("planned", "present"), [("auto", 2), (2, "auto")])
def test_a_fixed_number_limits_the_adaptive_pace(scene, planned, present):
    given: list[tuple[int, bool]] = []

    async def carry_out(*_: Any, concurrency: int, pace: AdaptivePace | None, **__: Any) -> list[Any]:
        given.append((concurrency, pace is not None))
        return []

    scene.monkeypatch.setattr(unload, "carry_out_moves", carry_out)
    with pytest.raises(KeyError):  # no move has an outcome
        scene.unload(scene.run(scene.moves(1), unload_concurrency=planned), unload_concurrency=present)
    assert given == [(2, True)]
