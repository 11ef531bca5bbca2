import pytest
from tests.airflow_context import context
from tests.airflow_runs import CLUSTER

from pulsar_rebalancer_airflow.operators.bases import requesting_user


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
def test_only_the_user_who_triggered_the_run_is_its_requester(state, run, by):
    assert requesting_user(context(CLUSTER, state, **run)) == by
