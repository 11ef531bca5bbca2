import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from pulsar_simulator import __main__ as command

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
def test_simulator_runs_alone_and_stops_when_told(process, tmp_path, number):
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
