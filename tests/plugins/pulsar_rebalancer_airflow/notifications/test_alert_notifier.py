"""A message from a callback of somebody's own DAG."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tests.include.pulsar_rebalancer.pulsar.scripted_broker import closed_port
from tests.plugins.pulsar_rebalancer_airflow.notifications.receivers import Webhook, connect

from pulsar_rebalancer_airflow.notifications import AlertNotifier

if TYPE_CHECKING:
    import pytest


def notify() -> None:
    AlertNotifier(title="{{ cluster }} failed", body="since {{ cluster }}")({"cluster": "east"})


def test_title_and_body_are_templates(hook: Webhook) -> None:
    notify()
    assert [(message["title"], message["message"], message["type"]) for message in hook.messages] == [
        ("east failed", "since east", "failure")
    ]


def test_a_receiver_that_is_down_is_only_logged(
    hook: Webhook, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    connect(monkeypatch, hook.url.replace(f"127.0.0.1:{hook.port}", closed_port()))
    notify()
    assert "Alerts: 0 of 1 sent through connection alerts" in caplog.text
    assert "S3cret" not in caplog.text
