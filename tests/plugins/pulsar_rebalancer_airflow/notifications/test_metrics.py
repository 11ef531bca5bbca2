"""Measurements reach the metrics that Airflow is configured with; that they are received is an integration test."""

from __future__ import annotations

import tests.airflow_home  # noqa: F401 - before anything of Airflow

# isort: split

from typing import TYPE_CHECKING
from unittest import mock

import pytest
from airflow._shared.observability.metrics.validators import ALLOWED_CHARACTERS
from airflow.sdk.observability import stats
from tests.airflow_context import context
from tests.airflow_runs import CLUSTER

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.show.measurements import Measurement
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer_airflow.notifications import emit, emit_orders
from pulsar_rebalancer_airflow.options import CLUSTERS_VARIABLE, STORAGE_VARIABLE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.airflow_context import MemoryState

    from pulsar_rebalancer.storage.documents import ClusterStorage


def test_a_line_of_statsd_holds_whatever_a_broker_calls_itself() -> None:
    text = Measurement.of("score", 1.0, broker="[::1]:8080,x=y z|é\n").labels["broker"]

    assert set(text) <= ALLOWED_CHARACTERS


@pytest.mark.parametrize("on", [True, False])
def test_nothing_is_measured_without_a_metrics_system(monkeypatch: pytest.MonkeyPatch, on: bool) -> None:
    monkeypatch.setenv("AIRFLOW__METRICS__OTEL_ON", str(on))
    with mock.patch.object(stats, "incr") as incr:
        emit("east", None, None)

    labels = {"cluster": "east", "verdict": "unfinished"}
    assert incr.mock_calls == ([mock.call("pulsar_rebalancer.runs", 1, tags=labels)] if on else [])


def test_a_damaged_run_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AIRFLOW__METRICS__OTEL_ON", "True")

    emit("east", StoragePath(str(tmp_path)), None)

    assert "nothing more could be sent about this run (SnapshotError)" in caplog.text


@pytest.mark.parametrize(
    ("damaged", "unknown"),
    [("drains", {"brokers_drained"}), ("roll", {"brokers_drained", "roll_phase", "roll_brokers_left"})],
)
def test_orders_are_measured_while_drains_or_the_roll_cannot_be_read(
    storage: ClusterStorage, state: MemoryState, monkeypatch: pytest.MonkeyPatch, damaged: str, unknown: set[str]
) -> None:
    monkeypatch.setenv("AIRFLOW__METRICS__OTEL_ON", "True")

    def measured() -> set[str]:
        with mock.patch.object(stats, "gauge") as gauge:
            emit_orders(context(CLUSTER, state), CLUSTER, Settings())
        return {call.args[0].removeprefix("pulsar_rebalancer.") for call in gauge.mock_calls}

    known = measured()
    state.documents[damaged] = {"version": 99}

    assert known - measured() == unknown
    assert "breaker_open_until_timestamp_seconds" in measured()


def test_no_runs_are_waited_for_where_a_cluster_is_off_or_no_longer_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__METRICS__OTEL_ON", "True")
    monkeypatch.setenv(STORAGE_VARIABLE, str(tmp_path / "root"))
    monkeypatch.setenv(CLUSTERS_VARIABLE, str(tmp_path / "clusters.yaml"))
    (tmp_path / "clusters.yaml").write_text("clusters: {east: {}, west: {mode: 'off'}, broken: {moed: auto}, new: {}}")
    for name in ("east", "west", "broken", "removed"):
        (tmp_path / "root" / name).mkdir(parents=True)

    with mock.patch.object(stats, "gauge") as gauge:
        emit("east", None, None)

    sent = {(call.args, call.kwargs["tags"]["cluster"]) for call in gauge.mock_calls}
    assert sent == {(("pulsar_rebalancer.interval_seconds", 0), cluster) for cluster in ("west", "removed")}
