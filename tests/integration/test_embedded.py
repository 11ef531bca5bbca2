"""`make run`: the embedded default balances its simulated cluster and leaves no process behind."""

import contextlib
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from tests.private_files import leaks, open_to_others, texts_below

pytestmark = pytest.mark.integration


class Watched:
    """The embedded default as a child, and every process that was seen below it."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        command = [sys.executable, "-m", "pulsar_rebalancer_airflow.embedded", "--folder", str(folder), *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.lines: list[str] = []
        self.family: set[psutil.Process] = set()

    def __iter__(self):
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            with contextlib.suppress(psutil.NoSuchProcess):
                self.family |= set(psutil.Process(self.process.pid).children(recursive=True))
            yield line

    def left_behind(self) -> list[psutil.Process]:
        return [p for p in self.family if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


def test_once_ends_when_the_cluster_is_balanced(tmp_path):
    watched = Watched(tmp_path / "run", "--once", "--interval", "5")
    for _ in watched:
        pass
    text = "".join(watched.lines)
    assert watched.process.wait() == 0, text
    assert re.search(r"range 8\d\.\d", text), text
    assert re.search(r"fired: (\d+) of \1 bundles moved and verified", text), text
    assert "balanced: nothing to do" in watched.lines[-2]
    assert re.search(r"login: admin {2}password: \w+", text)
    assert watched.family
    assert watched.left_behind() == []

    folder = tmp_path / "run"
    token, passwords = folder / "simulation" / "token", next(folder.glob("*/*passwords.json.generated"))
    secrets = {"token": token.read_text().strip(), "password": json.loads(passwords.read_text())["admin"]}
    assert leaks(secrets, texts_below(folder)) == {("token", str(token)), ("password", str(passwords))}
    assert open_to_others(folder) == []


def test_ctrl_c_ends_every_process_it_started(tmp_path):
    watched = Watched(tmp_path / "run", "--interval", "3600")
    for line in watched:
        if "Ctrl-C ends it all" in line:
            watched.process.send_signal(signal.SIGINT)
    assert watched.process.wait() == 130
    assert len(watched.family) > 5
    assert watched.left_behind() == []


def test_an_address_that_is_none_is_refused(tmp_path):
    watched = Watched(tmp_path / "run", "--pulsar", "broker:8080")
    assert any("http://broker:8080" in line for line in watched)
    assert watched.process.wait() == 1
