"""What a person may ask a replay for, and what is refused before anything is started."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from tests.airflow_context import context
from tests.airflow_runs import CLUSTER, make_run

from pulsar_rebalancer.config.clusters_file import ClusterEntry
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.maintenance.compaction import compact, days_before
from pulsar_rebalancer.replay.replay_request import ANSWER, ReplayRequest
from pulsar_rebalancer_airflow.failures import FAILURE
from pulsar_rebalancer_airflow.operators import ReplayOperator

if TYPE_CHECKING:
    from pulsar_rebalancer.storage.documents import ClusterStorage
    from pulsar_rebalancer.storage.path import StoragePath

SUBMIT = "airflow.providers.apache.spark.hooks.spark_submit.subprocess.Popen"
OUTSIDE = "tests.lab.test_experiments:every_third"


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
    (name,) = storage.replays.names()
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
    assert asked.settings_from == f"those of run {run.name}"
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
    assert (asked.settings.low_threshold, asked.settings_from) == (12.5, f"those of run {plain.name}")


def test_a_spark_connect_server_replays_nothing(storage: ClusterStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_TEST", '{"conn_type": "spark_connect", "host": "localhost"}')
    with pytest.raises(AirflowFailException, match=r"needs a connection of type spark.*\[wrong_setting\]"):
        replay(storage)
    assert not storage.replays.exists()


def test_a_strategy_from_outside_has_to_be_listed(storage: ClusterStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    grid = [{"strategy": [OUTSIDE, "OverloadShedder"]}]
    with pytest.raises(AirflowFailException, match=f"{OUTSIDE} is not listed in the option strategies"):
        replay(storage, grid=grid)
    monkeypatch.setenv("AIRFLOW__PULSAR_REBALANCER__STRATEGIES", f"other:one, {OUTSIDE}")
    replay(storage, grid=grid)
    assert [variant.settings.strategy for variant in request(storage).variants.variants[1:]] == [
        OUTSIDE,
        "OverloadShedder",
    ]


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"grid": [{"strategy": "AvgSheder"}]}, "strategy: Input should be AvgShedder"),
        ({"grid": [{"low_threshold": list(range(999)), "high_threshold": list(range(999))}]}, "998,001 variants"),
        ({"grid": [{"strategy_settings": [{"\ud800": 1}]}]}, "grid: it has NaN, an infinity or a lone surrogate"),
        ({"end": "yesterday"}, "end: 'yesterday' is not a time"),
        ({"end": "0001-01-01T00:00:00Z"}, "end: '0001-01-01T00:00:00Z' is not a time"),
        ({"start": "9999-12-30T00:00:00Z", "end": "9999-12-31T00:00:00Z"}, "between the years 2 and 9998"),
        ({"start": "0001-01-01T00:00:00+14:00", "end": "0001-01-02T00:00:00Z"}, "between the years 2 and 9998"),
        ({"start": "2026-03-02T00:00:00Z", "end": "2026-03-01T00:00:00Z"}, "must end after it starts"),
        ({"start": "2026-03-02T00:00:00"}, "start: Input should have timezone info"),
        ({"worth": -1}, "worth: Input should be greater than or equal to 0"),
    ],
)
def test_what_cannot_be_compared_starts_nothing(storage: ClusterStorage, params: dict[str, Any], words: str) -> None:
    with pytest.raises(AirflowFailException, match=re.escape(words)):
        replay(storage, **params)
    assert not storage.replays.names()


def test_the_reason_of_a_failed_application_is_known(storage: ClusterStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_DRIVER_PYTHON", raising=False)
    seen: Any = context(CLUSTER, None)
    line = "not replayed: /a/b: no sample [file_missing]"
    with pytest.raises(AirflowException):
        replay(storage, says=(line,), seen=seen)
    assert seen["ti"].pushed[FAILURE] == "file_missing"
    assert os.environ.get("PYSPARK_DRIVER_PYTHON") is None
