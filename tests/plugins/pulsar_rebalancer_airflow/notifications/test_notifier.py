import logging

from tests.plugins.pulsar_rebalancer_airflow.notifications.receivers import connect, silent

from pulsar_rebalancer.show.incidents import AlertMessage
from pulsar_rebalancer_airflow import notifications
from pulsar_rebalancer_airflow.notifications import send_messages

SECRETS = ("S3cretUser", "S3cretPass", "S3cretPath", "S3cretKey")
FIRST = AlertMessage("Pulsar east: validation failed", "Cluster: east\nRun: {{ not.a.template }} <b>&", "failure")
SECOND = AlertMessage("[Resolved] Pulsar east: a run failed", "Cluster: east", "success")


def with_secrets(address: str, more: str = "") -> str:
    user, password, path, key = SECRETS
    return f"json://{user}:{password}@{address}/{path}?+X-Key={key}{more}"


def secrets_in(shown: str) -> list[str]:
    return [secret for secret in SECRETS if secret in shown]


def test_a_webhook_gets_every_message_in_order(hook):
    sent = send_messages("alerts", [FIRST, SECOND])

    assert [(m["title"], m["message"], m["type"]) for m in hook.messages] == [
        (FIRST.title, FIRST.body, "failure"),
        (SECOND.title, SECOND.body, "success"),
    ]
    assert sent == ([True, True], [])


def test_a_receiver_that_never_answers_is_waited_for_no_longer_than_the_limit(monkeypatch, hook, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    with silent() as port:
        connect(monkeypatch, with_secrets(f"127.0.0.1:{port}", "&rto=900&cto=900"), hook.url)
        monkeypatch.setattr(notifications, "SEND_TIMEOUT_SECONDS", 5)
        sent = send_messages("alerts", [FIRST, SECOND])

    assert sent == ([True], ["JSON"])
    assert hook.titles == [FIRST.title]
    assert secrets_in(caplog.text + "".join(capfd.readouterr())) == []
