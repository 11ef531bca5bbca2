"""A rolling restart of one of three real brokers, which comes back with the next version of Pulsar.

Each of its bundles moves twice, and no message is lost. The next broker never comes back, which stops its roll.
"""

import tests.airflow_home  # noqa: F401 - before anything of Airflow

# isort: split

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.integration.airflow_world import World, dags
from tests.integration.conftest import _database, one_session  # noqa: F401 - fixtures
from tests.patience import awaited
from tests.pulsar.admin import Admin
from tests.pulsar.cluster import PulsarCluster
from tests.pulsar.conftest import ClusterFactory
from tests.pulsar.distribution import Distribution
from tests.pulsar.load import Load
from tests.pulsar.rebalancing import connection, load_broker_zero

from pulsar_rebalancer.orders.roll_document import Phase, Roll
from pulsar_rebalancer.run.outcome import Outcome as Written

BUNDLES = 6
WAIT_MINUTES = 60
SETTINGS: dict[str, Any] = {
    "mode": "auto",
    "interval_seconds": 5,
    "state_max_gap": 1000,
    "max_plan_age_seconds": 3600,
    "move_timeout_seconds": 90,
    # The machine is as busy as it is.
    "overloaded_threshold": 100,
    "roll_wait_minutes": WAIT_MINUTES,
}


def one_that_never_comes_back(world: World, cluster: PulsarCluster) -> None:
    broker = cluster.broker_ids[1]
    plan = world.run("roll", brokers=[broker], reason="a new disk").xcom("roll")["plan"]
    roll = world.begin(world.start("roll", plan=plan), "roll", last="roll")
    for _ in range(20):
        if world.document(Roll).phase is Phase.RESTARTING:
            break
        world.run()
        roll = world.go_on(roll, last="roll")
    cluster.stop_broker(1)
    world.run()
    roll = world.go_on(roll, last="roll")
    assert (roll.state, world.document(Roll).waits) == ("running", f"a person: restart {broker} now")
    # An hour has passed.
    then = datetime.now(UTC) - timedelta(minutes=WAIT_MINUTES + 1)
    world.put(world.document(Roll).model_copy(update={"progress_at": then}))
    failed = world.go_on(roll, last="roll")
    assert failed.xcom("roll", "failure") == "broker_not_back"
    assert world.go_on(failed).state == "failed"
    assert world.document(Roll).stranded == broker


@pytest.mark.usefixtures("one_session")
def test_a_broker_is_upgraded(
    pulsar_424: Distribution, pulsar_501: Distribution, clusters: ClusterFactory, tmp_path: Path
) -> None:
    cluster = clusters(pulsar_424, bookie=True, cgroups=True)
    zero, *others = cluster.broker_ids
    with Admin(cluster, broker=2) as admin, dags("rolled", tmp_path, connection(cluster), **SETTINGS) as root:
        topics = load_broker_zero(admin, ["tests/roll"], BUNDLES, "persistent")
        rates = dict.fromkeys(topics.values(), 20.0)
        with Load(cluster, rates, tmp_path / "load.log", subscribed=True) as load:
            load.start()
            awaited(lambda: len(admin.get("broker-stats/topics", broker=0).get("tests/roll", ())) == BUNDLES)
            world = World("rolled", root)

            def planned() -> Any:
                world.run_until_valid()  # on a busy machine, its sample may be too old for a roll when it ends
                return world.run("roll", brokers=[zero], reason="a new kernel").xcom("roll")

            plan = awaited(planned)["plan"]

            roll, moves, done = world.begin(world.start("roll", plan=plan), "roll", last="roll"), Counter[str](), False
            while roll.state == "running":
                if not done and world.document(Roll).phase is Phase.RESTARTING:
                    awaited(lambda: admin.owners(topics) <= set(others))
                    cluster.stop_broker(0)
                    cluster.start_broker(0, pulsar_501)
                    done = True
                run = world.run()
                if run.state == "success" and (written := Written.read_if_exists(run.folder)):
                    # Those that left the broker, and those that came back to it.
                    across = (end for end in written.moves if end.owner and (end.source == zero) != (end.owner == zero))
                    moves.update(end.bundle for end in across)
                roll = world.go_on(roll, last="roll")

            assert (roll.state, roll.xcom("roll")) == ("success", {zero: "rolled"})
            awaited(lambda: admin.owners(topics) == {zero})
            assert admin.load_report(0)["brokerVersionString"] == pulsar_501.version
            one_that_never_comes_back(world, cluster)
            assert admin.owners(topics) == {zero}
            report = load.report()
    assert {bundle: moves[bundle] for bundle in topics} == dict.fromkeys(topics, 2)
    assert report.keys() == rates.keys()
    for counts in report.values():
        assert counts.errors == 0
        assert counts.received == counts.acked == counts.sent > 0
