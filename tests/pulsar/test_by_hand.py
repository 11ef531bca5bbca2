"""Plans made by hand on real brokers: a bundle to and fro, a drain, and a broker that dies while it is drained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import pytest
from tests.pulsar.admin import Admin
from tests.pulsar.events import await_that
from tests.pulsar.load import Load
from tests.pulsar.rebalancing import DAG_ID, Run, load_broker_zero, rebalancer
from tests.pulsar.throttling import await_host_samples

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.pulsar.conftest import ClusterFactory
    from tests.pulsar.distribution import Distribution

    from pulsar_rebalancer_airflow.embedded.local_airflow import LocalAirflow

BY_HAND = "pulsar_by_hand__real"
BUNDLES, CAP = 8, 5
# Nothing moves by itself. The machine is as busy as it is: what a prediction makes of that is tried elsewhere.
SETTINGS: dict[str, Any] = {
    "mode": "auto",
    "interval_seconds": 30,
    "hit_count_low": 10_000,
    "hit_count_high": 10_000,
    "max_bundles_per_broker": CAP,
    "unload_timeout_seconds": 90,
    "max_quarantined_brokers": 3,
}
OVERRULED = {"overrule": ["overload", "grace_period"], "reason": "new disks"}


def by_hand(airflow: LocalAirflow, **form: Any) -> str:
    """Have a plan made and carried out as a person does; returns its hash."""
    shown = airflow.wait(BY_HAND, airflow.trigger(BY_HAND, form))
    assert shown["state"] == "success", airflow.tasks(BY_HAND, shown["dag_run_id"])
    identity: str = airflow.xcom(BY_HAND, shown["dag_run_id"], "plan")["plan"]
    acted = airflow.wait(BY_HAND, airflow.trigger(BY_HAND, {"plan": identity}))
    assert acted["state"] == "success", airflow.tasks(BY_HAND, acted["dag_run_id"])
    return identity


def carried_out(airflow: LocalAirflow, identity: str) -> Run:
    run = Run(airflow, airflow.wait(DAG_ID, f"by_hand__{identity[:32]}"))
    assert run.state == "success", run.tasks
    assert [move.reason for move in run.outcome.moves] == ["moved"]
    assert run.summary.by_hand is not None
    assert run.summary.by_hand.by == "admin"
    return run


def owners(admin: Admin, bundles: Iterable[str]) -> set[str]:
    """The brokers that own these bundles; empty while one of them has no owner."""
    try:
        return {admin.owner(bundle) for bundle in bundles}
    except (httpx.HTTPError, KeyError):
        return {""}


@pytest.mark.parametrize("extensible", [False, True], ids=["modular", "extensible"])
def test_what_a_person_asks_for(
    pulsar_424: Distribution, clusters: ClusterFactory, tmp_path: Path, extensible: bool
) -> None:
    cluster = clusters(pulsar_424, bookie=True, extensible=extensible)
    zero, one, two = cluster.broker_ids
    with Admin(cluster, broker=2) as admin:
        topics = load_broker_zero(admin, ["tests/hand"], BUNDLES, "persistent")
        with Load(cluster, dict.fromkeys(topics.values(), 20.0), tmp_path / "load.log") as load:
            load.start()
            await_host_samples(admin, 1)
            with rebalancer(cluster, tmp_path / "airflow", SETTINGS) as airflow:
                airflow.wait_for_dag(BY_HAND)
                first = next(iter(topics))

                forth = carried_out(
                    airflow, by_hand(airflow, action="unload", bundles=[first], destination=one, **OVERRULED)
                )
                assert admin.owner(first) == one
                assert forth.folder is not None
                back = {"overrule": ["overload"], "reason": "to and fro"}
                carried_out(airflow, by_hand(airflow, action="undo", run=forth.folder.name, **back))
                assert admin.owner(first) == zero

                # More than the cap lets go at once: two intervals, the broker is left without bundles of these.
                by_hand(airflow, action="drain", broker=zero, **OVERRULED)
                await_that(lambda: owners(admin, topics) <= {one, two})

                # A broker that dies while it is drained: its bundles are placed by Pulsar, and nothing goes back there.
                by_hand(airflow, action="drain", broker=one, **OVERRULED)
                cluster.kill_broker(1)
                await_that(lambda: owners(admin, topics) == {two})
            report = load.report()
    assert report.keys() == set(topics.values())
    for counts in report.values():
        assert counts.errors == 0
        assert counts.acked == counts.sent > 0
