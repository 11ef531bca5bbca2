import os
import signal
import socket
import subprocess
import sys

import psutil
import pytest

from pulsar_rebalancer_airflow.embedded import EmbeddedError
from pulsar_rebalancer_airflow.embedded import child_processes as embedded_processes
from pulsar_rebalancer_airflow.embedded.child_processes import Processes

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


def test_a_process_that_ended_is_told_with_its_last_lines(tmp_path):
    with Processes() as processes:
        pid = processes.start("broken", [sys.executable, "-c", "exit('no way')"], os.environ, tmp_path / "log")
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(EmbeddedError, match=r"broken ended with status 1(.|\n)*no way"):
            processes.check()


LISTENING = """
import socket, signal
listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
signal.pause()
"""


def test_whose_port_it_is(tmp_path):
    log = tmp_path / "log"
    with socket.create_server(("127.0.0.1", 0)) as foreign, Processes() as processes:
        processes.start("server", [sys.executable, "-c", LISTENING], os.environ, log)
        while not log.read_text().endswith("\n"):
            os.sched_yield()
        assert processes.listens(int(log.read_text()))
        assert not processes.listens(foreign.getsockname()[1])


def test_what_ends_by_itself_is_waited_for(tmp_path):
    with Processes() as processes:
        processes.run("short", [sys.executable, "-c", "print('done')"], os.environ, tmp_path / "log")
        assert (tmp_path / "log").read_text() == "done\n"
        processes.check()
        with pytest.raises(EmbeddedError, match=r"broken ended with status 1(.|\n)*no way"):
            processes.run("broken", [sys.executable, "-c", "exit('no way')"], os.environ, tmp_path / "log")


STUBBORN = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
signal.pause()
"""


def interrupt(*_):
    raise KeyboardInterrupt


@pytest.fixture(params=[signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def number(request):
    """A signal that interrupts, whatever handler other tests left: a Spark context, for one, leaves its own."""
    before = signal.signal(request.param, interrupt)
    yield request.param
    signal.signal(request.param, before)


def run_stubborn(tmp_path, pids):
    log = tmp_path / "log"
    with Processes() as processes:
        pids.append(processes.start("stubborn", [sys.executable, "-c", STUBBORN], os.environ, log))
        while "ready" not in log.read_text():
            os.sched_yield()


def test_a_signal_while_all_is_being_ended_leaves_nothing_behind(tmp_path, monkeypatch, number):
    wait_procs = psutil.wait_procs

    def signalled(family, timeout):
        signal.raise_signal(number)
        return wait_procs(family, timeout=timeout)

    monkeypatch.setattr(embedded_processes, "_GRACE_SECONDS", 0)
    monkeypatch.setattr(psutil, "wait_procs", signalled)
    pids: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        run_stubborn(tmp_path, pids)
    assert gone(pids[0])


def test_a_signal_during_a_start_finds_what_was_started(tmp_path, monkeypatch, number):
    started = []

    def popen(*arguments, **options):
        started.append(subprocess_popen(*arguments, **options))
        signal.raise_signal(number)
        return started[-1]

    subprocess_popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", popen)
    with pytest.raises(KeyboardInterrupt), Processes() as processes:
        processes.start("slow", [sys.executable, "-c", "import signal; signal.pause()"], os.environ, tmp_path / "log")
    assert started[0].poll() is not None
