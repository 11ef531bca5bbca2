"""What Airflow's API answers on a busy machine, and what that comes to."""

from __future__ import annotations

import json
import os
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, TypeAlias

import httpx
import pytest
from tests.include.pulsar_rebalancer.pulsar.scripted_broker import closed_port

from pulsar_rebalancer_airflow.embedded import EmbeddedError, local_airflow
from pulsar_rebalancer_airflow.embedded.airflow_home import AirflowHome
from pulsar_rebalancer_airflow.embedded.child_processes import Processes
from pulsar_rebalancer_airflow.embedded.local_airflow import LocalAirflow

if TYPE_CHECKING:
    from pathlib import Path

OK = httpx.Response(200, json={"state": "success"})
REFUSED = httpx.ConnectError("refused")
Answer: TypeAlias = httpx.Response | Exception


class Server:
    """Gives its answers one after the other; the last one again and again."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.requests: list[str] = []
        self.bodies: list[bytes] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(f"{request.method} {request.url.path}")
        self.bodies.append(request.content)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def asked(server: Server, monkeypatch: pytest.MonkeyPatch, folder: Path) -> LocalAirflow:
    monkeypatch.setattr(httpx, "Client", partial(httpx.Client, transport=httpx.MockTransport(server)))
    monkeypatch.setattr(local_airflow, "_PAUSE_SECONDS", 0)
    home = AirflowHome(folder, clusters={}, connections={})
    home.prepare(keep=False)
    return LocalAirflow(home, Processes())


@pytest.mark.parametrize("failure", [httpx.Response(500), httpx.Response(503), REFUSED], ids=repr)
def test_a_question_is_asked_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, failure: Answer) -> None:
    airflow = asked(Server(failure, failure, OK), monkeypatch, tmp_path / "home")
    assert airflow.run("dag", "run") == {"state": "success"}


def test_so_is_a_login(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    token = httpx.Response(201, json={"access_token": "t"})
    server = Server(httpx.Response(401), httpx.Response(500), token, OK)
    monkeypatch.setattr(Processes, "listens", lambda *_: True)
    assert asked(server, monkeypatch, tmp_path / "home").get("/dags") == {"state": "success"}
    assert server.requests == ["GET /api/v2/dags", "POST /auth/token", "POST /auth/token", "GET /api/v2/dags"]


def test_the_password_is_for_a_server_that_was_started_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # It is not for a proxy either.
    monkeypatch.setenv("HTTP_PROXY", f"http://{closed_port()}")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    asked_for: list[str] = []

    class Stranger(BaseHTTPRequestHandler):
        """Took the port, and says that it knows no such user."""

        def answer(self) -> None:
            asked_for.append(f"{self.command} {self.path}")
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_error(401)

        do_GET = do_POST = answer

    with ThreadingHTTPServer(("127.0.0.1", 0), Stranger) as stranger:
        threading.Thread(target=stranger.serve_forever, daemon=True).start()
        home = AirflowHome(tmp_path / "home", clusters={}, connections={}, port=stranger.server_port)
        home.prepare(keep=False)
        with pytest.raises(EmbeddedError, match=f"another program answers on port {stranger.server_port}"):
            LocalAirflow(home, Processes()).get("/dags")
        stranger.shutdown()
    assert asked_for == ["GET /api/v2/dags"]


@pytest.mark.parametrize("failure", [httpx.Response(500, text="database is locked"), REFUSED], ids=repr)
def test_not_for_ever(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, failure: Answer) -> None:
    monkeypatch.setattr(local_airflow, "_START_SECONDS", 0)
    with pytest.raises(EmbeddedError, match=r"500 to GET .*database is locked|did not answer GET .*ConnectError"):
        asked(Server(failure), monkeypatch, tmp_path / "home").get("/dags")


@pytest.mark.parametrize("failure", [httpx.Response(500), REFUSED], ids=repr)
def test_a_run_that_has_perhaps_begun_is_asked_for_under_the_same_id(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, failure: Answer
) -> None:
    server = Server(failure, httpx.Response(409))
    run_id = asked(server, monkeypatch, tmp_path / "home").trigger("dag")
    assert [json.loads(body)["dag_run_id"] for body in server.bodies] == [run_id, run_id]


@pytest.mark.parametrize("status", [400, 404])
def test_a_run_that_is_refused_is_not_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, status: int
) -> None:
    server = Server(httpx.Response(status))
    with pytest.raises(EmbeddedError, match=f"{status} to POST"):
        asked(server, monkeypatch, tmp_path / "home").trigger("dag")
    assert len(server.requests) == 1


def test_a_run_that_does_not_end_shows_the_end_of_its_newest_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(local_airflow, "_RUN_SECONDS", 0)
    tasks = httpx.Response(200, json={"task_instances": [{"task_id": "record", "state": "running"}]})
    airflow = asked(Server(tasks), monkeypatch, tmp_path / "home")
    for age, task in enumerate(("record", "decide")):
        log = tmp_path / "home" / "logs" / "dag_id=d" / "run_id=r" / f"task_id={task}" / "attempt=1.log"
        log.parent.mkdir(parents=True)
        log.write_text(f"{task} waits\n")
        os.utime(log, (0, 100 - age))
    with pytest.raises(EmbeddedError, match=r"'record': 'running'}; the newest log ends with:\nrecord waits"):
        airflow.wait("d", "r")
