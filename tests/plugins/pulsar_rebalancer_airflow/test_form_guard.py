import json

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from pulsar_rebalancer_airflow.plugin import FormGuard

TRIGGER = "/airflow/api/v2/dags/pulsar_{}__east/dagRuns"


async def airflow(request: Request) -> JSONResponse:
    """Refuse strangers, then a body that is no object, as Airflow does."""
    body = await request.body()
    if "stranger" in request.headers:
        return JSONResponse({"detail": "sign in"}, 401)
    return JSONResponse({"taken": len(body)}, 422 if body == b"[]" else 200)


@pytest.fixture
def client() -> TestClient:
    return TestClient(FormGuard(Starlette(routes=[Route("/{path:path}", airflow, methods=["GET", "POST", "PATCH"])])))


@pytest.mark.parametrize(
    ("kind", "conf", "fields"),
    [
        ("by_hand", {"action": "release"}, {"broker", "reason"}),
        ("by_hand", {"action": "drain", "reason": "disks"}, {"broker"}),
        ("by_hand", {"action": "unload", "bundles": ["t/n"], "overrule": ["caps"]}, {"reason"}),
        ("by_hand", {"action": "unload"}, {"bundles"}),
        ("by_hand", {}, {"action"}),
        ("by_hand", None, {"action"}),
        ("control", {"action": "pause", "reason": "x"}, {"until"}),
        ("control", {"action": "stop"}, {"reason"}),
        ("rebalance", {"force_threshold": 5}, {"force"}),
        ("roll", {"brokers": ["a:1"]}, {"reason"}),
    ],
)
def test_a_wrong_form_gets_a_sentence_for_each_field_and_no_run(client, kind, conf, fields):
    answer = client.post(TRIGGER.format(kind), json={"logical_date": None, "conf": conf})

    assert answer.status_code == 422
    assert answer.json()["fields"].keys() == fields
    assert all(sentence in answer.json()["detail"] for sentence in answer.json()["fields"].values())


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", TRIGGER.format("by_hand"), {"conf": {"action": "release", "broker": "a:1", "reason": "x"}}),
        ("POST", TRIGGER.format("control"), {"conf": {}}),
        ("POST", TRIGGER.format("maintenance"), {"conf": {"nonsense": 1}}),
        ("POST", "/api/v2/dags/other/dagRuns", {"conf": {"action": "release"}}),
        ("GET", TRIGGER.format("by_hand"), {"conf": {"action": "release"}}),
        ("POST", TRIGGER.format("by_hand") + "/run/clear", {"dry_run": False}),
        ("POST", TRIGGER.format("by_hand") + "/list", {"page_limit": 1}),
        ("PATCH", TRIGGER.format("by_hand") + "/run", {"conf": {"action": "release"}}),
        ("POST", TRIGGER.format("by_hand"), {"conf": {"action": "release", "reason": "x" * (1 << 21)}}),
    ],
)
def test_everything_else_reaches_airflow_as_it_is(client, method, path, body):
    sent = json.dumps(body)

    answer = client.request(method, path, content=sent)

    assert (answer.status_code, answer.json()) == (200, {"taken": len(sent)})


def test_missing_right_is_answered_before_wrong_fields(client):
    answer = client.post(TRIGGER.format("by_hand"), json={"conf": {"action": "release"}}, headers={"stranger": "1"})

    assert (answer.status_code, answer.json()) == (401, {"detail": "sign in"})


@pytest.mark.parametrize("body", ["", "no JSON", "[]", '{"conf": "text"}', "[" * 100_000])
def test_other_requests_are_left_to_airflow(client, body):
    assert client.post(TRIGGER.format("by_hand"), content=body).json() == {"taken": len(body)}
