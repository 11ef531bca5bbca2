"""A broker that comes back gets its bundles back: real Airflow tasks, real HTTP, real Spark."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from tests.integration.airflow_world import world
from tests.integration.test_counting import counted_again, measured

from pulsar_rebalancer.decide.by_hand import filling
from pulsar_rebalancer.run.plan import read_moves

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.integration

RETRIES = 1

SETTINGS = {
    "mode": "auto",
    "interval_seconds": 5,
    "state_max_gap": 1000,
    "max_plan_age_seconds": 3600,
    "low_threshold": 40,
    "high_threshold": 60,
    "hit_count_low": 100,
    "hit_count_high": 100,
    "restore_placement": True,
    "unload_retries": RETRIES,
}


def test_a_broker_that_comes_back_gets_its_bundles_back(
    tmp_path: Path, one_session: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # These brokers' reports show after a second what has moved.
    monkeypatch.setattr(filling, "_REPORTED", timedelta(seconds=2))
    with world("west", tmp_path, **SETTINGS) as west:
        cluster = west.served.cluster
        assert west.run(force="a start", force_threshold=1).state == "success"
        measured(west, cluster.active_brokers())
        while not west.decision().placement.file:
            counted_again(west)
        back = max(cluster.active_brokers(), key=cluster.true_scores().__getitem__)
        bundles = {bundle for bundle, owner in cluster.state()["owners"].items() if owner == back}
        assert bundles

        cluster.kill(back)
        while {cluster.owner(bundle) for bundle in bundles} & {None, back}:
            time.sleep(0.1)
        cluster.start_broker(back)
        stray = min(bundles)
        cluster.faults.add("stray", bundle=stray, times=1 + RETRIES)
        measured(west, cluster.active_brokers())
        # Validation leaves the broker out until it has reported twice.
        runs = (counted_again(west) for _ in range(6))
        moves = next(moves for run in runs if (moves := read_moves(run.folder)))

        assert {move.bundle for move in moves} == bundles
        assert cluster.owner(stray) != back
        again = next(moves for run in runs if (moves := read_moves(run.folder)))
        assert {move.bundle for move in again} == {stray}
        assert {bundle: cluster.owner(bundle) for bundle in bundles} == dict.fromkeys(bundles, back)
