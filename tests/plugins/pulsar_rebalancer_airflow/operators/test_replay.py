from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

import pytest
from airflow.sdk.exceptions import AirflowFailException
from tests.airflow_context import context
from tests.airflow_runs import CLUSTER, make_run

from pulsar_rebalancer.config.clusters_file import ClusterEntry
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.replay.variants import ANSWER, ReplayRequest
from pulsar_rebalancer.run.compaction import compact, days_before
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer_airflow.operators import ReplayOperator

SUBMIT = "airflow.providers.apache.spark.hooks.spark_submit.subprocess.Popen"


def replay(storage: ClusterStorage, *, says: tuple[str, ...] = (), **params: Any) -> tuple[ReplayOperator, Any]:
    """Runs the task beside a Spark that only says something; what it would be started with."""
    started: list[list[str]] = []

    def start(command: list[str], **_: Any) -> Any:
        started.append(command)
        (storage.replays / command[-1].rpartition("/")[2] / ANSWER).write_json({"picked": "it"})
        return mock.Mock(stdout=iter(says), wait=mock.Mock(return_value=int(bool(says))))

    entry = ClusterEntry(name=CLUSTER, given={}, settings=Settings(spark_connection="spark_test"))
    operator = ReplayOperator(task_id="replay", entry=entry, root=storage.root)
    with mock.patch(SUBMIT, side_effect=start):
        operator.execute(params.pop("seen", None) or context(CLUSTER, None, params=params))
    return operator, started


@pytest.fixture(autouse=True)
def connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_TEST", '{"conn_type": "spark", "host": "local[2]"}')


def request(storage: ClusterStorage) -> ReplayRequest:
    (name,) = storage.replays.entry_names()
    return ReplayRequest.read(storage.replays / name)


def test_without_a_word_the_last_day_is_taken_through_the_settings_of_the_last_run(storage: ClusterStorage) -> None:
    run = make_run(storage)
    settings = run / "input" / "settings.json"
    document = settings.read_json()
    document["resolved"]["settings"]["low_threshold"] = 12.5
    settings.write_json(document)

    operator, (command,) = replay(storage)

    asked = request(storage)
    assert asked.settings.low_threshold == 12.5
    assert asked.settings_from == f"taken from run {run.name}"
    assert asked.end - asked.start == timedelta(days=1)
    assert datetime.now(UTC) - asked.end < timedelta(minutes=5)
    assert len(asked.variants.variants) > 10
    assert command[command.index("--master") + 1] == "local[2]"
    folder: StoragePath = storage.replays / operator.report_of
    assert command[-5:-1] == [operator.application, "--root", storage.root, "--replay"]
    assert command[-1] == folder.uri


def test_the_current_settings_are_found_however_long_ago_a_run_had_them(storage: ClusterStorage) -> None:
    plain = make_run(storage, low_threshold=12.5, age=timedelta(days=3))
    (plain / "outcome.json").write_json({})
    (day,) = days_before(storage, datetime.now(UTC).date())
    assert not compact(storage, day.date, day.runs, dry_run=False)
    storage.runs.delete()
    for _ in range(51):
        by_hand = make_run(storage, low_threshold=9) / "input" / "settings.json"
        by_hand.write_json(by_hand.read_json() | {"params": {"force": "why"}})

    replay(storage)

    asked = request(storage)
    assert (asked.settings.low_threshold, asked.settings_from) == (12.5, f"taken from run {plain.name}")


def test_a_spark_connect_server_replays_nothing(storage: ClusterStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_TEST", '{"conn_type": "spark_connect", "host": "localhost"}')
    with pytest.raises(AirflowFailException, match=r"use a connection of type spark.*\[wrong_setting\]"):
        replay(storage)
    assert not storage.replays.exists()
