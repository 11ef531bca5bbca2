"""An uneven producer load on a real cluster, sent by one child process."""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.pulsar.cluster import PulsarCluster

_CHILD = Path(__file__).with_name("producers.py")


class LoadError(RuntimeError):
    """The producers could not connect or did not report; the message holds what they wrote."""


@dataclass(frozen=True)
class TopicReport:
    """What became of a topic's messages; `ack_gaps` are the longest times between two acknowledgements, in seconds."""

    sent: int
    acked: int
    errors: int
    ack_gaps: list[float]
    received: int


class Load:
    """Producers that send until told to stop. Use it as a context manager: leaving it ends the process.

    Args:
        rates: messages per second by topic.
        log: file for what the client complains about.
        batching: unbatched messages cost the broker far more CPU.
        steady: messages come one by one instead of in bursts, so that each costs a broker the same, however few or many
            it gets.
        size: bytes per message.
        subscribed: a subscriber reads what is sent; the report waits for it.
    """

    def __init__(
        self,
        cluster: PulsarCluster,
        rates: Mapping[str, float],
        log: Path,
        *,
        batching: bool = True,
        steady: bool = False,
        size: int = 100,
        subscribed: bool = False,
    ) -> None:
        self._order = {
            "service_url": cluster.service_url,
            "token": cluster.admin_token,
            "ca_file": str(cluster.ca_file) if cluster.ca_file else None,
            "rates": dict(rates),
            "batching": batching,
            "steady": steady,
            "size": size,
            "subscribed": subscribed,
        }
        self._log = log
        self._child: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Connect every producer and begin to send."""
        with self._log.open("ab") as log:
            self._child = subprocess.Popen(
                [sys.executable, str(_CHILD)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        child = self._child
        if child.stdout is None:
            raise LoadError("the child process has no pipes")
        self._write(self._order)
        if child.stdout.readline() != "ready\n":
            child.wait()
            raise LoadError(f"producers did not connect:\n{self._log.read_text(errors='replace')[-4000:]}")

    def change(self, rates: Mapping[str, float]) -> None:
        """Send on at other rates."""
        self._write(dict(rates))

    def _write(self, line: Mapping[str, Any]) -> None:
        if self._child is None or self._child.stdin is None:
            raise LoadError("the load was not started")
        try:
            self._child.stdin.write(json.dumps(line) + "\n")
            self._child.stdin.flush()
        except BrokenPipeError as error:
            raise self._died(self._child.wait()) from error

    def report(self) -> dict[str, TopicReport]:
        """Stop sending, wait for outstanding acknowledgements, and return what happened by topic."""
        if self._child is None:
            raise LoadError("the load was not started")
        output, _ = self._child.communicate()
        if self._child.returncode != 0:
            raise self._died(self._child.returncode)
        return {topic: TopicReport(**counts) for topic, counts in json.loads(output).items()}

    def _died(self, code: int) -> LoadError:
        return LoadError(f"producers died with {code}:\n{self._log.read_text(errors='replace')[-4000:]}")

    def signal(self, number: int) -> None:
        if self._child is None:
            raise LoadError("the load was not started")
        self._child.send_signal(number)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._child is not None and self._child.poll() is None:
            self._child.kill()
            self._child.communicate()
