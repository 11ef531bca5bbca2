import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from tests.include.pulsar_rebalancer.pulsar.scripted_broker import closed_port

from pulsar_rebalancer_airflow.embedded import MakeRunError
from pulsar_rebalancer_airflow.embedded.airflow_home import AirflowHome
from pulsar_rebalancer_airflow.embedded.local_airflow import LocalAirflow, Processes


def test_the_password_is_for_a_server_that_was_started_here(monkeypatch, tmp_path):
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
        home = AirflowHome(tmp_path / "home", cluster_settings={}, connections={}, port=stranger.server_port)
        home.prepare(keep_data=False)
        with pytest.raises(MakeRunError, match=f"another program took port {stranger.server_port}"):
            LocalAirflow(home, Processes()).get("/dags")
        stranger.shutdown()
    assert asked_for == ["GET /api/v2/dags"]
