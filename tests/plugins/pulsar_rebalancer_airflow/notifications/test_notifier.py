from __future__ import annotations

import logging
import subprocess
from typing import Any

import pytest
from tests.plugins.pulsar_rebalancer_airflow.notifications.receivers import (
    Webhook,
    closed_port,
    connect,
    mail_server,
    silent,
    webhook,
)

from pulsar_rebalancer.alerts.messages import AlertMessage
from pulsar_rebalancer_airflow.notifications import notifier
from pulsar_rebalancer_airflow.notifications.notifier import send

SECRETS = ("S3cretUser", "S3cretPass", "S3cretPath", "S3cretKey")
FIRST = AlertMessage("Pulsar east: validation failed", "Cluster: east\nRun: {{ not.a.template }} <b>&", "failure")
SECOND = AlertMessage("Pulsar east: over: a run failed", "Cluster: east", "success")
BOTH = [(FIRST, ()), (SECOND, ())]


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """The processes that are started; how is in their attribute `given`."""
    started: list[subprocess.Popen[bytes]] = []

    class Noted(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.given = repr((args, kwargs["env"]))
            started.append(self)

    monkeypatch.setattr(subprocess, "Popen", Noted)
    return started


def with_secrets(port: int, more: str = "") -> str:
    user, password, path, key = SECRETS
    return f"json://{user}:{password}@127.0.0.1:{port}/{path}?+X-Key={key}{more}"


def secrets_in(shown: str) -> list[str]:
    return [secret for secret in SECRETS if secret in shown]


def test_a_webhook_gets_every_message_in_order(hook: Webhook) -> None:
    sent = send("alerts", BOTH)

    assert [(m["title"], m["message"], m["type"]) for m in hook.messages] == [
        (FIRST.title, FIRST.body, "failure"),
        (SECOND.title, SECOND.body, "success"),
    ]
    assert sent == ([{0}, {0}], "", 1)


def test_a_mail_server_gets_it_after_a_log_in(monkeypatch: pytest.MonkeyPatch) -> None:
    with mail_server() as server:
        address = f"ada:pass@127.0.0.1:{server.port}"
        connect(monkeypatch, f"mailto://{address}?from=airflow@pulsar.example&to=ops@pulsar.example&mode=insecure")
        send("alerts", [(FIRST, ())])

    (mail,) = server.mails
    assert mail["Subject"] == FIRST.title
    assert "ops@pulsar.example" in mail["To"]
    assert "Cluster: east" in mail.as_string()
    assert server.logins == ["\0ada\0pass"]


def test_only_receivers_that_do_not_have_a_message_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with webhook() as hook, webhook() as other:
        connect(monkeypatch, hook.url, other.url)
        sent = send("alerts", [(FIRST, {0}), (SECOND, ())])

    assert hook.titles == [SECOND.title]
    assert other.titles == [FIRST.title, SECOND.title]
    assert sent == ([{0, 1}, {0, 1}], "", 2)


def test_a_receiver_that_is_down_keeps_nothing_from_the_others(
    monkeypatch: pytest.MonkeyPatch, hook: Webhook, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    connect(monkeypatch, with_secrets(closed_port()), with_secrets(hook.port), "S3cretKey")

    sent = send("alerts", [(FIRST, ())])

    assert sent == ([{1}], "receiver 1 (json) refused; receiver 3 (no URL) unusable", 3)
    assert "S3cretPath" in hook.paths[0]  # it was really sent there
    assert secrets_in(caplog.text + "".join(capfd.readouterr()) + sent.missed) == []


def test_a_receiver_that_refuses_gets_no_further_message(hook: Webhook) -> None:
    hook.status = 503

    assert send("alerts", BOTH) == ([set(), set()], "receiver 1 (json) refused", 1)
    assert len(hook.paths) == 1


def test_a_receiver_that_never_answers_is_waited_for_no_longer_than_the_limit(
    monkeypatch: pytest.MonkeyPatch,
    hook: Webhook,
    processes: list[subprocess.Popen[bytes]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    with silent() as port:
        connect(monkeypatch, with_secrets(port, "&rto=900&cto=900"), hook.url)
        monkeypatch.setattr(notifier, "TIMEOUT_SECONDS", 20)
        sent = send("alerts", [(FIRST, ())])

    assert sent == ([{1}], "receiver 1 (json) did not answer in time", 2)
    assert hook.titles == [FIRST.title]
    assert [process.poll() is not None for process in processes] == [True]
    assert secrets_in(caplog.text) == []


def test_the_url_reaches_the_sending_process_by_its_input_alone(
    monkeypatch: pytest.MonkeyPatch, hook: Webhook, processes: list[Any]
) -> None:
    connect(monkeypatch, with_secrets(hook.port))

    send("alerts", [(FIRST, ())])

    assert len(hook.messages) == 1
    assert secrets_in("".join(process.given for process in processes)) == []


def test_a_connection_without_receivers_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch)

    assert send("alerts", [(FIRST, ())]) == ([set()], "the connection names no receiver", 0)
