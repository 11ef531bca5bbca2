"""`make run`: the embedded default balances its simulated cluster and leaves no process behind."""

import contextlib
import json
import re
import subprocess
import sys
import threading
import time
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from tests.patience import PATIENCE
from tests.private_files import leaks, open_to_others, texts_below
from tests.project.documentation import shape, terminal

pytestmark = pytest.mark.integration


class Watched:
    """The embedded default as a child, all processes below it, and the addresses that these listened on."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        command = [sys.executable, "-m", "pulsar_rebalancer_airflow.embedded", "--folder", str(folder), *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.lines: list[str] = []
        self.family: set[psutil.Process] = set()
        self.listening: dict[str, set[str]] = {}
        self._ended = threading.Event()
        self._looking = threading.Thread(target=self._look)
        self._looking.start()

    def __iter__(self):
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            yield line
        self._ended.set()
        self._looking.join()

    def _look(self) -> None:
        """Whatever is started lives a second at least: Spark's driver some seconds, everything else as long as all."""
        while not self._ended.wait(0.5):
            with contextlib.suppress(psutil.NoSuchProcess):
                self.family |= set(psutil.Process(self.process.pid).children(recursive=True))
            for process in self.family:
                with contextlib.suppress(psutil.Error):
                    sockets = process.net_connections("inet")
                    addresses = {s.laddr.ip for s in sockets if s.laddr and s.status in (psutil.CONN_LISTEN, "NONE")}
                    self.listening.setdefault(process.name(), set()).update(addresses)

    def listens(self, name: str) -> set[str]:
        return {address for process, found in self.listening.items() if name in process for address in found}

    def left_behind(self) -> list[psutil.Process]:
        return [p for p in self.family if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


def shown_meanwhile(watched: Watched, address: str, password: str) -> list[dict[str, Any]]:
    """What the page whose address was printed shows, look by look, until the first run has ended."""
    ((server, dag_id),) = re.findall(r"^(http://[\d.:]+)/plugin/pulsar-balance/pulsar_rebalancer/page/(\S+)$", address)
    user = {"username": "admin", "password": password}
    with httpx.Client(base_url=server, timeout=PATIENCE, trust_env=False) as client:
        token = client.post("/auth/token", json=user).raise_for_status().json()["access_token"]
        headers, shown = {"Authorization": f"Bearer {token}"}, []
        for _ in range(600):
            answer = client.get(f"/pulsar_rebalancer/dags/{dag_id}/overview", headers=headers)
            shown.append(answer.raise_for_status().json())
            if shown[-1]["plan"] or shown[-1]["pairs"] or watched.process.poll() is not None:
                break
            time.sleep(0.5)
    return shown


# What the lines say of every run, before its verdict.
PROGRESS = r"pairs over threshold: \d of 1(, hits \d/8 low \d/2 high)?"


# Two brokers: the fewest runs that lead from hot and empty to balanced.
def test_once_ends_when_the_cluster_is_balanced(tmp_path):
    watched = Watched(tmp_path / "run", "--once", "--interval", "5", "--brokers", "2")
    shown: list[dict[str, Any]] = []
    password = ""
    for line in watched:
        password = password or "".join(re.findall(r"password: (\S+)", line))
        page = re.search(r"cluster page in the same UI: (\S+)", line)
        shown += shown_meanwhile(watched, page[1], password) if page else []
    text = "".join(watched.lines)
    assert watched.process.wait() == 0, text
    # The page has something to show long before the first run ends, and no word of alarm.
    assert {each["status"]["tone"] for each in shown} <= {"idle", "busy", "good"}, shown
    assert any(each["brokers"] and not each["pairs"] for each in shown), shown
    assert shown[-1]["pairs"], shown
    runs = [line for line in watched.lines if re.match(r"[\d:]{8}  run ", line)]
    judged = rf"range +\d+\.\d \(\d+\.\d to \d+\.\d %\)  {PROGRESS}  \S.*  \d+\.\d s"
    assert all(re.search(rf"run {number} +{judged}$", line) for number, line in enumerate(runs, start=1)), text
    first, *_, last = (float(re.findall(r"range +(\S+)", line)[0]) for line in runs)
    assert first > 40 > 15 > last, text  # AvgShedder's two thresholds, in points: a gap that fires soon, and none
    assert re.search(r"fired: (\d+) of \1 bundles moved and verified", text), text
    assert "balanced: nothing to do" in runs[-1]
    # docs/runs.md shows what is really printed.
    assert set(map(shape, terminal())) <= set(map(shape, watched.lines)), text
    assert re.search(r"login: admin {2}password: \w+", text)
    assert watched.family
    assert watched.left_behind() == []
    assert watched.listens("java")
    assert {
        address for address in watched.listens("") if not ip_address(address.removeprefix("::ffff:")).is_loopback
    } == set()

    folder = tmp_path / "run"
    token, passwords = folder / "simulation" / "token", next(folder.glob("*/*passwords.json.generated"))
    secrets = {"token": token.read_text().strip(), "password": json.loads(passwords.read_text())["admin"]}
    assert leaks(secrets, texts_below(folder)) == {("token", str(token)), ("password", str(passwords))}
    assert open_to_others(folder) == []
