import json
import os
from collections.abc import Iterator

import pytest
from tests.integration.airflow_world import Outcome, World, world

from pulsar_rebalancer.run.plan import Summary

pytestmark = pytest.mark.integration

OWN = {"hit_count_low": 1, "hit_count_high": 1}
FORCED = {"force": "what if"}


@pytest.fixture(scope="module")
def north(tmp_path_factory: pytest.TempPathFactory, one_session: None) -> Iterator[World]:
    # A busy machine may take minutes: neither hits nor plans shall grow too old for that.
    patient = {"interval_seconds": 5, "state_max_gap": 1000, "max_plan_age_seconds": 3600, "hit_count_high": 8}
    with world("north", tmp_path_factory.mktemp("north"), mode="auto", **patient) as made:
        yield made


@pytest.fixture(scope="module")
def counted(north: World) -> Outcome:
    return north.run()


@pytest.mark.parametrize(
    ("asked", "closed"),
    [({"mode": "observe"} | OWN, "observe"), ({"mode": "observe"} | FORCED, "observe"), (FORCED, "read_only")],
    ids=["own thresholds", "forced", "read only"],
)
def test_a_plan_that_is_not_carried_out_leaves_the_hits(north, counted, asked, closed, monkeypatch):
    before = north.decision()
    if closed == "read_only":
        connection = json.loads(os.environ["AIRFLOW_CONN_PULSAR_NORTH"]) | {"extra": {"read_only": True}}
        monkeypatch.setenv("AIRFLOW_CONN_PULSAR_NORTH", json.dumps(connection))

    run = north.run(**asked)

    assert (run.state, run.xcom("gate", "reason")) == ("success", closed)
    assert Summary.read(run.folder).bundles_taken > 0
    after = north.decision()
    assert (after.hits, after.counted_at) == (before.hits, before.counted_at)
    # On a busy machine a sample may become too old to be repeated.
    assert after.samples.items() <= before.samples.items()
