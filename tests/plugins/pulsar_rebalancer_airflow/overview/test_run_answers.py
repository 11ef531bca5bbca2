"""What the page says of a refused request."""

from __future__ import annotations

from typing import Any

import pytest

from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer_airflow.overview import run_answers


@pytest.mark.parametrize(
    "message", ["acme/x: no broker reports such a bundle", f"GET /brokers at a:1: 401. {Reason.UNAUTHORIZED.action}"]
)
def test_what_to_do_is_said_once(message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_answers, "failure_of", lambda *_: ("collect", "unauthorized"))
    monkeypatch.setattr(run_answers, "left_by", lambda *_, **__: message)
    session: Any = None

    text = run_answers._refused(session, "dag", "run", "").text

    assert text.count(Reason.UNAUTHORIZED.action) == 1
    assert ".." not in text
