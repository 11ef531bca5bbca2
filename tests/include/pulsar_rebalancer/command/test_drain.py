"""The command against scripted answers; `test_approve.py` runs it against a real Airflow."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from tests.include.pulsar_rebalancer.pulsar.scripted_broker import closed_port

from pulsar_rebalancer.command import drain
from pulsar_rebalancer.command.__main__ import main
from pulsar_rebalancer.command.drain import EMPTY, NOT_YET, REFUSED

BROKER = "broker-3:8080"
BEGUN, RUNNING = {"dag_run_id": "manual__1"}, {"state": "running", "text": ""}
SHOWN, DONE = {"state": "done", "text": "", "plan": "abc"}, {"state": "done", "text": "", "plan": ""}


def page(movable: int | None, broker: str = BROKER) -> dict[str, Any]:
    return {"sampled_at": "2026-11-22T12:00:00Z", "drains": [{"broker": broker, "movable": movable}]}


def refused(code: str) -> dict[str, Any]:
    return {"state": "refused", "text": f"in carry_out ({code}): it says why."}


class Script(ThreadingHTTPServer):
    answers: list[Any]
    asked: list[tuple[str, str, Any]]


class Handler(BaseHTTPRequestHandler):
    server: Script

    def do_GET(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        self.server.asked.append((self.path, self.headers["Authorization"], body))
        answer = self.server.answers.pop(0) if len(self.server.answers) > 1 else self.server.answers[0]
        self.send_response(answer if isinstance(answer, int) else 200)
        if answer == 307:
            self.send_header("Location", "/elsewhere")
        self.end_headers()
        self.wfile.write(b"<html>" if isinstance(answer, int) else json.dumps(answer).encode())

    do_POST = do_GET

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Script]:
    server = Script(("127.0.0.1", 0), Handler)
    server.asked = []
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    monkeypatch.setenv("AIRFLOW_URL", f"http://127.0.0.1:{server.server_port}/base")
    monkeypatch.setenv("AIRFLOW_TOKEN", "secret")
    monkeypatch.setattr(drain, "PAUSE_SECONDS", 0.01)
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def drained(seconds: float = 60) -> int:
    return main(["drain", BROKER, "--cluster", "east", "--seconds", str(seconds)])


def test_drain_command_plans_orders_and_waits(script, capsys):
    script.answers = [BEGUN, RUNNING, SHOWN, BEGUN, DONE, page(None), page(2), 503, page(0)]

    assert drained() == EMPTY

    assert capsys.readouterr().out == f"{BROKER} has no bundle that can move\n"
    paths = [path for path, _, _ in script.asked]
    dag = "dags/pulsar_by_hand__east"
    assert paths[:2] == [f"/base/api/v2/{dag}/dagRuns", f"/base/pulsar_rebalancer/{dag}/runs/manual__1/answer"]
    assert paths[5:] == [f"/base/pulsar_rebalancer/{dag}/overview"] * 4
    assert {token for _, token, _ in script.asked} == {"Bearer secret"}
    forms = [body["conf"] for _, _, body in script.asked if body]
    assert forms == [{"action": "drain", "broker": [BROKER], "reason": "pulsar-rebalancer drain"}, {"plan": "abc"}]


@pytest.mark.parametrize("code", ["other_plan", "plan_expired"])
def test_drain_command_plans_again_after_another_drain(script, code):
    later = SHOWN | {"plan": "def"}
    script.answers = [BEGUN, SHOWN, BEGUN, refused(code), BEGUN, later, BEGUN, DONE, page(0)]

    assert drained() == EMPTY

    forms = [body["conf"] for _, _, body in script.asked if body]
    assert forms[2:] == [forms[0], {"plan": "def"}]


@pytest.mark.parametrize(
    ("answers", "seconds", "code", "said"),
    [
        ([401], 60, REFUSED, "Airflow answered 401 to /api/v2/dags/pulsar_by_hand__east/dagRuns"),
        ([503], 60, REFUSED, "Airflow answered 503 to"),
        ([307], 60, REFUSED, "Airflow answered 307 to"),
        ([200], 60, REFUSED, "is not JSON"),
        ([{}], 60, REFUSED, "another release of the rebalancer (KeyError('dag_run_id'))"),
        ([[]], 60, REFUSED, "another release of the rebalancer (TypeError("),
        ([BEGUN, {"state": "refused", "text": "last_broker"}], 60, REFUSED, "refused: last_broker"),
        ([BEGUN, RUNNING], 0.1, NOT_YET, "Airflow has not yet planned or ordered the drain: the DAG run is running"),
        ([BEGUN, 502], 0.1, NOT_YET, "Airflow does not answer"),
        ([BEGUN, SHOWN, BEGUN, refused("same_person")], 60, REFUSED, "same_person"),
        ([BEGUN, SHOWN, BEGUN, refused("other_plan")], 0, NOT_YET, "other_plan"),
        ([BEGUN, SHOWN, BEGUN, DONE, page(8)], 0.1, NOT_YET, "bundles that can move: 8"),
        ([BEGUN, SHOWN, BEGUN, DONE, page(None)], 0.1, NOT_YET, "its bundles are not known yet"),
        ([BEGUN, SHOWN, BEGUN, DONE, page(1, "b:1")], 60, REFUSED, f"{BROKER} is no longer drained"),
    ],
)
def test_drain_command_explains_other_ends(script, capsys, answers, seconds, code, said):
    script.answers = answers

    assert drained(seconds) == code

    printed = capsys.readouterr().out
    assert said in printed
    assert "secret" not in printed
    assert not any(path == "/elsewhere" for path, _, _ in script.asked)


@pytest.mark.parametrize(("url", "token"), [("", "t"), ("ftp://airflow", "t"), ("http://airflow", " ")])
def test_address_and_token_are_needed(monkeypatch, capsys, url, token):
    monkeypatch.setenv("AIRFLOW_URL", url)
    monkeypatch.setenv("AIRFLOW_TOKEN", token)

    assert drained() == REFUSED
    assert "AIRFLOW_URL (http or https) and AIRFLOW_TOKEN are needed" in capsys.readouterr().out


def test_nobody_answers(script, monkeypatch, capsys):
    monkeypatch.setenv("AIRFLOW_URL", f"http://{closed_port()}")

    assert drained() == REFUSED
    assert "Airflow did not answer" in capsys.readouterr().out


def test_the_file_needs_nothing_but_python(script):
    script.answers = [BEGUN, SHOWN, BEGUN, DONE, page(0)]
    program = [sys.executable, "-I", "-S", str(drain.__file__), BROKER, "--cluster", "east", "--seconds", "60"]

    done = subprocess.run(program, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (EMPTY, f"{BROKER} has no bundle that can move\n", "")
