from datetime import UTC, datetime
from unittest import mock

import pytest
from tests.airflow_runs import make_run

from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.outcome import conclude_run
from pulsar_rebalancer.run.plan import Summary
from pulsar_rebalancer_airflow.embedded.__main__ import describe_run
from pulsar_rebalancer_airflow.embedded.local_airflow import DagRun

ENDED: DagRun = {
    "dag_run_id": "run",
    "state": "success",
    "start_date": "2026-11-21T10:00:00+00:00",
    "end_date": "2026-11-21T10:00:12.34+00:00",
}
FIRED = {"pairs_fired": 1, "reasons": {"fired": 1}}
STUCK = {"pairs_fired": 1, "reasons": {"no_fitting_bundle": 1}}
MOVED_A_MOMENT_AGO = {"bundle_skip_reasons": {"recently_unloaded": 3}}


@pytest.mark.parametrize(
    ("strategy", "found", "verdict", "balanced"),
    [
        ("UniformLoadShedder", {"reasons": {"balanced": 2}}, "balanced: nothing to do", True),
        ("UniformLoadShedder", FIRED | MOVED_A_MOMENT_AGO, "fired, but nothing to move", False),
        ("UniformLoadShedder", STUCK, "unbalanced, but no move helps", True),
        ("AvgShedder", STUCK | {"score_max": 70.0}, "unbalanced, but no move helps", False),
        (
            "UniformLoadShedder",
            FIRED | {"bundles_taken": 2},
            "would move 2 bundles. Nothing is moved, because the mode is observe.",
            False,
        ),
        ("UniformLoadShedder", {"reasons": {"cool_down": 1}}, "waiting", False),
        ("AvgShedder", {"score_max": 20.0}, "balanced: nothing to do", True),
        ("AvgShedder", {"score_max": 70.0}, "balanced: nothing to do", False),
        ("AvgShedder", FIRED | MOVED_A_MOMENT_AGO | {"score_max": 20.0}, "fired, but nothing to move", False),
    ],
)
def test_balanced_when_no_broker_sheds(storage, strategy, found, verdict, balanced):
    run = make_run(storage, strategy=strategy)
    changed = {"score_min": 10.0, "sentence": "all is said"} | found
    Summary.model_validate(Summary.read(run).model_dump() | changed).write(run)
    conclude_run(run, Reason.OBSERVE, datetime.now(UTC)).write(run)

    line = describe_run(mock.Mock(xcom=mock.Mock(return_value=run.uri)), "dag", ENDED, 7)

    assert line.is_balanced is balanced
    assert f"  {verdict}  12.3 s" in line.text
    assert ("UniformLoadShedder: all is said" in line.text) is (strategy != "AvgShedder")
