from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from tests.accessibility import assert_accessible
from tests.browser import browser
from tests.include.pulsar_rebalancer.replay.recorded import FOUR, Run
from tests.include.pulsar_rebalancer.run_folders import stored_run
from tests.integration.airflow_world import World, world

from pulsar_rebalancer.run.compacted_tables import compacted_runs
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer_airflow.overview.run_answers import stored_report

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def north(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world("north", tmp_path_factory.mktemp("north")) as made:
        yield made


HOT = Run({"a:80": 80, "b:80": 20}, {"a:80": dict.fromkeys(FOUR, 200), "b:80": {"t/o/0x00000000_0xffffffff": 200}})


def test_a_day_that_is_over_is_compacted_and_can_be_replayed(north, tmp_path):
    long_ago = (datetime.now(UTC) - timedelta(days=3)).replace(hour=9)
    run = stored_run(ClusterStorage(north.storage.root, "north"), long_ago)
    noon = long_ago.replace(hour=12, minute=0, second=0)
    hot = [HOT.write(north.storage, noon + timedelta(minutes=number)).name for number in range(3)]

    planned = north.run("maintenance")
    assert planned.state == "success"
    assert planned.xcom("maintain")["dry_run"]
    assert run.exists()
    done = north.run("maintenance", dry_run=False)

    assert done.state == "success"
    assert done.xcom("maintain")["steps"] == planned.xcom("maintain")["steps"]
    assert not run.exists()
    assert compacted_runs(north.storage, long_ago.date()) == {run.name, *hot}

    stretch = {"start": noon.isoformat(), "end": (noon + timedelta(minutes=6)).isoformat()}
    eager = {"strategy": "AvgShedder", "hit_count_high": 1, "min_unload_message": 10}
    asked = north.run("replay", **stretch, worth=1000, grid=[eager, {"strategy": "OverloadShedder"}])
    assert asked.state == "success"
    answer = asked.xcom("replay")
    assert (answer["variants"], answer["coverage"]["samples"], answer["coverage"]["expected"]) == (3, 3, 6)
    assert answer["picked"] == "AvgShedder, hit_count_high 1, min_unload_message 10"
    (name,) = north.storage.replays.entry_names()
    report = stored_report(north.storage.root, "pulsar_replay__north", asked.run.run_id, name)
    assert report is not None
    assert "3 of 6 samples (50.0%)" in report.decode()
    page = tmp_path / "report.html"
    page.write_bytes(report)
    with browser() as chromium:
        chromium.open(page.as_uri())
        chromium.until("document.querySelector('main h2')")
        assert_accessible(chromium)
    assert stored_report(north.storage.root, "pulsar_replay__north", "another run", name) is None


def test_an_order_without_a_reason_fails(north):
    assert north.run("control", action="skip").state == "failed"
    assert north.run("control").state == "success"
