"""`python -m pulsar_simulator`, as a process of its own, and https."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
from tests.certificates import Authority

from pulsar_simulator import __main__ as command
from pulsar_simulator.cluster import Cluster
from pulsar_simulator.faults import FaultKind
from pulsar_simulator.scenario import spec
from pulsar_simulator.serve import running

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(command.__file__).parents[2]


@pytest.fixture
def process(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], dict[str, object]]]:
    arguments = ["--brokers", "3", "--bundles", "30", "--token-file", str(tmp_path / "token")]
    arguments += ["--ready-file", str(tmp_path / "run" / "ready.json"), "--user-token-file", str(tmp_path / "user")]
    started = subprocess.Popen(
        [sys.executable, "-m", "pulsar_simulator", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert started.stdout is not None
        line = started.stdout.readline()  # printed once all brokers answer
        yield started, json.loads(line)
    finally:
        started.kill()
        started.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_runs_alone_and_stops_when_told(
    process: tuple[subprocess.Popen[str], dict[str, list[str]]], tmp_path: Path, number: signal.Signals
) -> None:
    started, said = process
    ready = json.loads((tmp_path / "run" / "ready.json").read_text())
    assert ready == said
    assert ready["cluster"] == "simulated"
    assert ready["pid"] == started.pid
    for name in ("token", "user"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    token = (tmp_path / "token").read_text()
    headers = {"Authorization": f"Bearer {token}"}
    assert [f"http://{broker}" for broker in ready["brokers"]] == ready["urls"]
    for url in ready["urls"]:
        report = httpx.get(f"{url}/admin/v2/broker-stats/load-report", headers=headers, timeout=30)
        assert report.json()["webServiceUrl"] == url
    # A call that hangs by a fault does not keep the process from stopping.
    httpx.post(f"{ready['urls'][0]}/simulation/faults", json={"kind": "silent"}, headers=headers, timeout=30)
    with httpx.Client(timeout=0.3) as client, pytest.raises(httpx.ReadTimeout):
        client.get(f"{ready['urls'][1]}/admin/v2/brokers", headers=headers)
    started.send_signal(number)
    assert started.wait(60) == 0
    assert not (tmp_path / "run" / "ready.json").exists()


def test_help_documents_every_fault(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        command.main(["--help"])
    assert caught.value.code == 0
    said = capsys.readouterr().out
    assert all(kind.value in said for kind in FaultKind)
    assert command.TOKEN_VARIABLE in said


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "--token-file"),
        (["--brokers", "1"], "needs 2 brokers"),
        (["--placement", "x"], "--placement"),
        (["--stats-period", "0"], "stats_period must be more than 0"),
        (["--version", "new"], "new"),
        (["--port", "65534"], "--port 65534"),
    ],
)
def test_wrong_arguments_are_named(
    arguments: list[str], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [*arguments, "--token-file", str(tmp_path / "t")] if arguments else []
    with pytest.raises(SystemExit) as caught:
        command.main(given)
    assert caught.value.code == 2
    assert complaint in capsys.readouterr().err


def test_a_token_is_taken_from_the_file_else_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(command.TOKEN_VARIABLE, "from-environment")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for name in ("new", "old", "empty"):
            file = tmp_path / name
            if name != "new":
                file.write_text({"old": "kept\n", "empty": ""}[name])
            with pytest.raises(SystemExit):  # stops here: the port is taken
                command.main(["--token-file", str(file), "--port", port])
    assert (tmp_path / "new").read_text() == "from-environment"
    assert (tmp_path / "old").read_text() == "kept\n"
    said = capsys.readouterr().err
    assert "the file is empty" in said
    assert f"--port {port}" in said
    assert "from-environment" not in said


def test_https(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "private")
    certificate, key = authority.issue("127.0.0.1")
    shape = spec(brokers=2, bundles=8)
    shape.tls = True
    with running(Cluster(shape), ssl_certfile=certificate, ssl_keyfile=key) as served:
        trust = ssl.create_default_context(cafile=str(authority.file))
        with httpx.Client(headers=served.headers, verify=trust, timeout=30) as client:
            report = client.get(f"{served.urls[0]}/admin/v2/broker-stats/load-report").json()
            assert report["webServiceUrlTls"] == served.urls[0]
            assert served.urls[0].startswith("https://")
            other = served.urls[1].removeprefix("https://")
            owned = client.get(f"{served.urls[0]}/admin/v2/brokers/simulated/{other}/ownedNamespaces")
            assert owned.headers["location"].startswith(served.urls[1])
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{served.urls[0]}/admin/v2/brokers", headers=served.headers)
