"""Who ordered what a run does."""

from typing import Any

import pytest
from tests.airflow_context import MemoryState, context
from tests.airflow_runs import CLUSTER

from pulsar_rebalancer_airflow.operators.bases import requester


@pytest.mark.parametrize(
    ("run", "by"),
    [
        ({}, "ada"),
        ({"user": "ada\nGate open"}, "ada Gate open"),
        ({"user": None}, ""),
        ({"cleared": 1}, ""),
        *(({"run_type": started}, "") for started in ("scheduled", "operator_triggered", "backfill")),
    ],
)
def test_only_the_user_who_triggered_the_run_is_its_requester(state: MemoryState, run: dict[str, Any], by: str) -> None:
    assert requester(context(CLUSTER, state, **run)) == by
