"""Daily upkeep and the hand-over, run by Airflow."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from tests.include.pulsar_rebalancer.run_folders import stored_run
from tests.integration.airflow_world import World, world

from pulsar_rebalancer.maintenance.history import complete_runs
from pulsar_rebalancer.storage.layout import ClusterStorage

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.integration

SHEDDING = "loadBalancerSheddingEnabled"


@pytest.fixture(scope="module")
def north(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world("north", tmp_path_factory.mktemp("north")) as made:
        yield made


def test_a_day_that_is_over_is_compacted(north: World) -> None:
    long_ago = datetime.now(UTC) - timedelta(days=3)
    run = stored_run(ClusterStorage(north.storage.root, "north"), long_ago)

    planned = north.run("maintenance")
    assert planned.state == "success"
    assert planned.xcom("maintain")["dry_run"]
    assert run.exists()
    done = north.run("maintenance", dry_run=False)

    assert done.state == "success"
    assert done.xcom("maintain")["steps"] == planned.xcom("maintain")["steps"]
    assert not run.exists()
    assert complete_runs(north.storage, long_ago.date()) == {run.name}


def test_the_balancing_goes_back_and_comes_again(north: World) -> None:
    brokers = north.served.cluster.active_brokers()

    back = north.run("control", action="hand_back", reason="new release")
    assert back.xcom("control")["shedding"] == dict.fromkeys(brokers, "true")
    assert north.served.cluster.configuration.values() == {SHEDDING: "true"}
    over = north.run("control", action="take_over", reason="release is fine")
    assert over.xcom("control")["shedding"] == dict.fromkeys(brokers, "false")

    records = [(north.storage.state / name).read_json() for name in north.storage.state.names()]
    assert [(r["action"], r["reason"], r["outcome"]) for r in records] == [
        ("hand_back", "new release", "taken"),
        ("take_over", "release is fine", "taken"),
    ]


def test_a_hand_over_without_a_reason_fails(north: World) -> None:
    assert north.run("control", action="take_over").state == "failed"
    assert north.run("control").state == "success"
