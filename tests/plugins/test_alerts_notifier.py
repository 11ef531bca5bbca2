from __future__ import annotations

import json
import logging
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.plugins.receivers import Webhook, closed_port, mail_server, silent, webhook

from pulsar_rebalancer.alert_text import Message
from pulsar_rebalancer_airflow.alerts import notifier as notifier_module
from pulsar_rebalancer_airflow.alerts.notifier import AlertNotifier, UndeliveredError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

SECRETS = ("S3cretUser", "S3cretPass", "S3cretPath", "S3cretKey")
FIRST = Message("Pulsar east: validation failed", "Cluster: east\nRun: {{ not.a.template }} <b>&", "failure")
SECOND = Message("Pulsar east: over: a run failed", "Cluster: east", "success")


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is busy starts processes slowly; only the tests of the limit wait for it."""
    monkeypatch.setattr(notifier_module, "TIMEOUT_SECONDS", 120)


@pytest.fixture
def hook() -> Iterator[Webhook]:
    with webhook() as found:
        yield found


def with_secrets(port: int) -> str:
    user, password, path, key = SECRETS
    return f"json://{user}:{password}@127.0.0.1:{port}/{path}?+X-Key={key}"


def notifier(
    monkeypatch: pytest.MonkeyPatch, *urls: str, messages: Collection[tuple[Message, Collection[int]]] = ((FIRST, ()),)
) -> AlertNotifier:
    document = {"conn_type": "apprise", "extra": {"config": [{"path": url, "tag": "alerts"} for url in urls]}}
    monkeypatch.setenv("AIRFLOW_CONN_ALERTS", json.dumps(document))
    return AlertNotifier(connection="alerts", messages=list(messages))


def send(made: AlertNotifier) -> None:
    context: Any = {}
    made.notify(context)


def test_a_webhook_gets_every_message_in_order(monkeypatch: pytest.MonkeyPatch, hook: Webhook) -> None:
    made = notifier(monkeypatch, f"json://127.0.0.1:{hook.port}/", messages=[(FIRST, ()), (SECOND, ())])

    send(made)

    assert [(m["title"], m["message"], m["type"]) for m in hook.messages] == [
        (FIRST.title, FIRST.body, "failure"),
        (SECOND.title, SECOND.body, "success"),
    ]
    assert (made.receivers, made.reached) == (1, [{0}, {0}])
    assert made.complete(0)


def test_a_mail_server_gets_it_after_a_log_in(monkeypatch: pytest.MonkeyPatch) -> None:
    with mail_server() as server:
        url = (
            f"mailto://ada:pass@127.0.0.1:{server.port}?from=airflow@pulsar.example&to=ops@pulsar.example&mode=insecure"
        )
        send(notifier(monkeypatch, url))

    (mail,) = server.mails
    assert mail["Subject"] == FIRST.title
    assert "ops@pulsar.example" in mail["To"]
    assert "Cluster: east" in mail.as_string()
    assert server.logins == ["\0ada\0pass"]


def test_only_receivers_that_do_not_have_a_message_get_it(monkeypatch: pytest.MonkeyPatch, hook: Webhook) -> None:
    with webhook() as other:
        urls = [f"json://127.0.0.1:{port}/" for port in (hook.port, other.port)]
        made = notifier(monkeypatch, *urls, messages=[(FIRST, {0}), (SECOND, ())])
        send(made)

    assert hook.titles == [SECOND.title]
    assert other.titles == [FIRST.title, SECOND.title]
    assert made.complete(0)
    assert made.complete(1)


def test_a_receiver_that_is_down_keeps_nothing_from_the_others(
    monkeypatch: pytest.MonkeyPatch, hook: Webhook, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    made = notifier(monkeypatch, with_secrets(closed_port()), with_secrets(hook.port), "S3cretKey")

    with pytest.raises(UndeliveredError) as raised:
        send(made)

    assert str(raised.value) == "receiver 1 (json) refused; receiver 3 (no URL) unusable"
    assert made.reached == [{1}]
    assert not made.complete(0)
    assert "S3cretPath" in hook.paths[0]  # it was really sent there
    shown = caplog.text + "".join(capfd.readouterr()) + str(raised.value)
    assert [secret for secret in SECRETS if secret in shown] == []


def test_a_receiver_that_refuses_gets_no_further_message(monkeypatch: pytest.MonkeyPatch, hook: Webhook) -> None:
    hook.status = 503
    made = notifier(monkeypatch, f"json://127.0.0.1:{hook.port}/", messages=[(FIRST, ()), (SECOND, ())])

    with pytest.raises(UndeliveredError, match="receiver 1 \\(json\\) refused"):
        send(made)

    assert len(hook.paths) == 1
    assert made.reached == [set(), set()]


def test_a_receiver_that_never_answers_costs_no_more_than_the_limit(
    monkeypatch: pytest.MonkeyPatch, hook: Webhook, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    ended: list[subprocess.Popen[bytes]] = []
    start = subprocess.Popen

    def noted(*args: Any, **kwargs: Any) -> subprocess.Popen[bytes]:
        ended.append(start(*args, **kwargs))
        return ended[-1]

    monkeypatch.setattr(subprocess, "Popen", noted)
    with silent() as port:
        monkeypatch.setattr(notifier_module, "TIMEOUT_SECONDS", 20)
        made = notifier(monkeypatch, with_secrets(port) + "&rto=900&cto=900", f"json://127.0.0.1:{hook.port}/")
        began = time.monotonic()
        with pytest.raises(UndeliveredError, match="receiver 1 \\(json\\) did not answer in time"):
            send(made)

    assert time.monotonic() - began < 900
    assert [process.poll() is not None for process in ended] == [True]
    assert made.reached == [{1}]
    assert hook.titles == [FIRST.title]
    assert [secret for secret in SECRETS if secret in caplog.text] == []


def test_the_url_reaches_the_sending_process_by_its_input_alone(monkeypatch: pytest.MonkeyPatch, hook: Webhook) -> None:
    seen: list[Any] = []
    run = subprocess.run

    def noted(command: Any, **kwargs: Any) -> Any:
        seen.append((command, kwargs["env"]))
        return run(command, **kwargs)

    monkeypatch.setattr(subprocess, "run", noted)

    send(notifier(monkeypatch, with_secrets(hook.port)))

    assert len(hook.messages) == 1
    assert [secret for secret in SECRETS if secret in repr(seen)] == []


def test_a_connection_without_receivers_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    made = notifier(monkeypatch)

    with pytest.raises(UndeliveredError, match="names no receiver"):
        send(made)

    assert not made.complete(0)
