"""Alerts of runs in a real Airflow, to a real webhook."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.integration.airflow_world import world
from tests.plugins.pulsar_rebalancer_airflow.notifications.receivers import connect, webhook

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.integration

SETTINGS = {"mode": "auto", "alert_connection": "alerts", "interval_seconds": 3600}


def test_brokers_that_refuse_the_credentials_are_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with webhook() as hook, world("alerted", tmp_path, **SETTINGS) as alerted:
        connect(monkeypatch, hook.url)
        host = ",".join(url.removeprefix("http://") for url in alerted.served.urls)
        wrong = {"conn_type": "pulsar_admin", "host": host, "password": "wrong"}
        monkeypatch.setenv("AIRFLOW_CONN_PULSAR_ALERTED", json.dumps(wrong))

        first, second = alerted.run(), alerted.run()
        watched = alerted.run("watch")

    assert [first.states["collect"], second.states["collect"]] == ["failed", "failed"]
    assert [first.states["report"], second.states["report"]] == ["success", "success"]
    (message,) = hook.messages
    assert message["title"] == "Pulsar alerted: a run failed"
    assert "unauthorized x1: The credentials were refused (401)." in message["message"]
    assert f"/dags/pulsar_rebalance__alerted/runs/{first.run.run_id[:6]}" in message["message"]
    assert watched.state == "success"
    assert watched.xcom("watch") < 3600 * 5
