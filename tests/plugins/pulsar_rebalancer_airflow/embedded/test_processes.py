import os
import subprocess
import sys

import psutil
import pytest

from pulsar_rebalancer_airflow.embedded.local_airflow import Processes

# A parent that starts a child, tells its process id, and either waits for it or leaves it behind.
PARENT = """
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
print(child.pid, flush=True)
os._exit(0) if sys.argv[1] == "leave" else child.wait()
"""


def start(processes, tmp_path, how):
    log = tmp_path / f"{how}.log"
    pid = processes.start(how, [sys.executable, "-c", PARENT, how], os.environ, log)
    while not log.read_text().endswith("\n"):
        os.sched_yield()
    return pid, int(log.read_text())


def gone(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.fixture
def stranger():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.communicate()


def test_children_and_orphans_end_and_no_other(tmp_path, stranger):
    with Processes() as processes:
        leader, child = start(processes, tmp_path, "stay")
        _, orphan = start(processes, tmp_path, "leave")
        assert not gone(child)
        assert not gone(orphan)
    assert all(gone(pid) for pid in (leader, child, orphan))
    assert stranger.poll() is None
