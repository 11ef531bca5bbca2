import os
import random
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path


class ProcessError(RuntimeError):
    """A process died or did not come up; the message holds the tail of its log."""


class LoggedProcess:
    """A running child whose output goes to a file."""

    def __init__(self, name: str, command: list[str], log: Path) -> None:
        self.name = name
        self._log = log
        with log.open("ab") as output:
            # A session of its own: Ctrl-C reaches the test run, which then ends its children in order.
            self._child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def running(self) -> bool:
        return self._child.poll() is None

    def log_tail(self, lines: int = 20) -> str:
        """The last lines of the log, and before them the errors it names: a broker says much after its last error."""
        logged = self._log.read_text(errors="replace").splitlines()
        earlier, tail = logged[:-lines], logged[-lines:]
        errors = [line for line in earlier if " ERROR " in line or "Caused by: " in line]
        return "\n".join([*errors[-10:], *tail])

    def await_that(self, condition: Callable[[], bool], what: str, seconds: float) -> None:
        """Poll until the condition holds while the process lives."""
        deadline = time.monotonic() + seconds
        while not condition():
            if not self.running:
                raise ProcessError(f"{self.name} ended ({self._child.returncode}) before {what}:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                raise ProcessError(f"{self.name} lives, but not {what} after {seconds} s:\n{self.log_tail()}")
            time.sleep(0.1)

    def await_end(self, seconds: float) -> None:
        """Wait for a process that ends by itself."""
        try:
            code = self._child.wait(seconds)
        except subprocess.TimeoutExpired as error:
            self.kill()
            raise ProcessError(f"{self.name} did not end within {seconds} s:\n{self.log_tail()}") from error
        if code != 0:
            raise ProcessError(f"{self.name} failed with {code}:\n{self.log_tail()}")

    def terminate(self, seconds: float) -> None:
        """SIGTERM, and wait until it has ended, whatever its exit code."""
        self._child.terminate()
        try:
            self._child.wait(seconds)
        except subprocess.TimeoutExpired as error:
            self.kill()
            raise ProcessError(f"{self.name} did not end within {seconds} s:\n{self.log_tail()}") from error

    def kill(self) -> None:
        self._child.kill()
        self._child.wait()


def port_answers(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def free_ports(count: int) -> list[int]:
    """Distinct loopback ports nothing is bound to.

    They lie below the range the kernel takes for outgoing connections: a killed broker must find its port free when
    it comes back, since the port is part of its name. Workers that test at the same time share none.
    """
    found: list[int] = []
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    ports = range(20_000, 32_000)[worker::workers]
    for port in random.sample(ports, len(ports)):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise ProcessError(f"found only {len(found)} of {count} free ports between 20000 and 32000")
