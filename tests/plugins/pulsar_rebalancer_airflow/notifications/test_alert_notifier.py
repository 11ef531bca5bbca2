from pulsar_rebalancer_airflow.notifications import AlertNotifier


def notify() -> None:
    AlertNotifier(title="{{ cluster }} failed", body="since {{ cluster }}")({"cluster": "east"})


def test_title_and_body_are_templates(hook):
    notify()
    assert [(message["title"], message["message"], message["type"]) for message in hook.messages] == [
        ("east failed", "since east", "failure")
    ]
