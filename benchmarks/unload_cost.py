"""What an unload costs real brokers and their clients: `python -m benchmarks.unload_cost`, half an hour.

Prints a Markdown table: seconds that clients wait, CPU milliseconds of source, destination and leader. CPU is from
control groups, so that other work on the machine does not count.
"""

from __future__ import annotations

import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np
from tests.pulsar.admin import Admin, topics_in_bundles
from tests.pulsar.cluster import PulsarCluster
from tests.pulsar.distribution import from_dependencies, from_server_distribution

import pulsar
from benchmarks.conditions import commit, machine
from benchmarks.trials import options_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import numpy.typing as npt

DISTRIBUTIONS = {"4.0.8": from_server_distribution, "4.2.4": from_dependencies}
BROKERS, NAMESPACE, BUNDLES = 3, "tests/cost", 32
CLIENTS = (1, 17)
"""Producers of each bundle, each of a client with its own connections: the difference is the cost of 16."""

DESTINATION = "CPU of destination"
SUBJECTS = ("pause", "pause, looked up by clients", "CPU of source", DESTINATION, "CPU of leader")
_PACE_SECONDS = 0.25
"""From one unload, or new client, to the next: longer than clients wait."""

_PROBE_SECONDS = 0.005
_WARM_UP = 2


def main() -> None:
    """Measure every version, and print a row for each number of clients."""
    parser = options_of("benchmarks.unload_cost", __doc__ or "")
    parser.add_argument("--repetitions", type=int, default=4, help="number of repetitions of all unloads (4)")
    repetitions = parser.parse_args().repetitions
    print(f"| | {' | '.join(SUBJECTS)} | times |\n|{' --- |' * (len(SUBJECTS) + 2)}")
    for version, fetch in DISTRIBUTIONS.items():
        with (
            tempfile.TemporaryDirectory() as folder,
            PulsarCluster(fetch(version), Path(folder), BROKERS, cgroups=True) as cluster,
            Admin(cluster) as admin,
        ):
            scene = _Scene(cluster, admin)
            rows = {f"{clients} a bundle": taken for clients, taken in scene.unloads(repetitions).items()}
            rows["a new client"] = {DESTINATION: scene.new_clients(repetitions)}
        for name, taken in rows.items():
            cells = [_figure(taken.get(subject, [])) for subject in SUBJECTS]
            print(f"| {version}, {name} | {' | '.join(cells)} | {BUNDLES * len(taken[DESTINATION])} |", flush=True)
    print(f"\n{commit()}, {machine()}")


def _figure(seconds: list[float]) -> str:
    """Return median and range in milliseconds."""
    return f"{1000 * median(seconds):.0f} ({1000 * min(seconds):.0f}-{1000 * max(seconds):.0f})" if seconds else ""


class _Probe(threading.Thread):
    """Sends to one topic, each message as soon as the one before is acknowledged."""

    def __init__(self, producers: dict[str, Any]) -> None:
        super().__init__(daemon=True)
        self.topic = next(iter(producers))
        self._longest = 0.0
        self._producers = producers
        self._sending = threading.Lock()
        self._stopped = threading.Event()

    def run(self) -> None:
        """Send until stopped."""
        while not self._stopped.wait(_PROBE_SECONDS):
            with self._sending:
                begun = time.monotonic()
                self._producers[self.topic].send(b"x" * 100)
                self._longest = max(self._longest, time.monotonic() - begun)

    def longest(self) -> float:
        """Return the longest time until a message was acknowledged since the last call, seconds."""
        with self._sending:
            longest, self._longest = self._longest, 0.0
        return longest

    def stop(self) -> None:
        """Send no more."""
        self._stopped.set()
        self.join()


class _Scene:
    """All bundles on one of the two brokers that do not lead."""

    def __init__(self, cluster: PulsarCluster, admin: Admin) -> None:
        self._cluster = cluster
        self._admin = admin
        leader = urlsplit(admin.get("brokers/leaderBroker")["serviceUrl"]).netloc
        self._leader = cluster.broker_ids.index(leader)
        self._source, self._destination = (broker for broker in range(BROKERS) if broker != self._leader)
        ranges = admin.create_namespace(NAMESPACE, BUNDLES)
        self._topics = {name: topic for name, (topic,) in topics_in_bundles(NAMESPACE, ranges, 1).items()}
        for name, topic in self._topics.items():
            admin.move(NAMESPACE, name, topic, self._source)
        self._probe: _Probe

    def unloads(self, repetitions: int) -> dict[int, dict[str, list[float]]]:
        """Return seconds per unload for each number of clients per bundle, which take turns."""
        taken: dict[int, dict[str, list[float]]] = {clients: {name: [] for name in SUBJECTS} for clients in CLIENTS}
        for repetition in range(_WARM_UP + repetitions):
            for clients, seconds in taken.items():
                with self._probing(clients):
                    roles = (self._source, self._destination, self._leader)
                    cpu, pauses = self._cpu_beyond_calm(self._unload_all)
                    self._gather()
                    late_pauses = self._unload_all(look_up=False)
                    self._gather()
                if repetition >= _WARM_UP:
                    values = (pauses, late_pauses, *([cpu[broker]] for broker in roles))
                    for name, of_name in zip(SUBJECTS, values, strict=True):
                        seconds[name] += of_name
        return taken

    def new_clients(self, repetitions: int) -> list[float]:
        """Return the CPU seconds of a broker for a client that connects for the first time and opens a producer."""
        seconds = []
        for _ in range(repetitions):
            with ExitStack() as opened:
                cpu, _none = self._cpu_beyond_calm(partial(self._connect_all, opened))
            seconds.append(cpu[self._source])
        return seconds

    @contextmanager
    def _probing(self, clients: int) -> Iterator[None]:
        with ExitStack() as opened:
            producers = [self._producers(opened, self._topics.values()) for _ in range(clients)]
            self._probe = _Probe(producers[0])
            self._probe.start()
            opened.callback(self._probe.stop)
            yield

    def _connect_all(self, opened: ExitStack) -> list[float]:
        for topic in self._topics.values():
            begun = time.monotonic()
            self._producers(opened, [topic])
            _await_pace(begun)
        return []

    def _producers(self, opened: ExitStack, topics: Iterable[str]) -> dict[str, Any]:
        """Return a new client's producers."""
        complaints = pulsar.FileLogger(pulsar.LoggerLevel.Error, str(self._cluster.run_dir / "clients.log"))
        client = pulsar.Client(self._cluster.service_url, io_threads=1, logger=complaints)
        opened.callback(client.close)
        return {topic: client.create_producer(topic, batching_enabled=False) for topic in topics}

    def _unload_all(self, *, look_up: bool = True) -> list[float]:
        """Unload every bundle to the other broker and return how long its client waited, seconds.

        Args:
            look_up: look each bundle up at once, as a rebalancer does; else its clients come first.
        """
        pauses = []
        self._probe.longest()
        for bundle, topic in self._topics.items():
            begun = time.monotonic()
            self._probe.topic = topic
            self._admin.unload(NAMESPACE, bundle, self._destination)
            if look_up:
                self._admin.look_up(topic)
            _await_pace(begun)
            pauses.append(self._probe.longest())
        self._source, self._destination = self._destination, self._source
        return pauses

    def _gather(self) -> None:
        """Bring back the bundles that went astray."""
        for bundle, topic in self._topics.items():
            self._admin.move(NAMESPACE, bundle, topic, self._source)

    def _cpu_beyond_calm(self, action: Callable[[], list[float]]) -> tuple[list[float], list[float]]:
        """Return the CPU seconds per bundle that an action costs every broker, and its result.

        They are those beyond the mean of the calm before and after it.
        """
        before = self._calm_usage()
        begun, used = time.monotonic(), self._cpu()
        result = action()
        seconds, used = time.monotonic() - begun, self._cpu() - used
        return list((used - seconds * (before + self._calm_usage()) / 2) / BUNDLES), result

    def _calm_usage(self) -> npt.NDArray[np.float64]:
        """Return the CPU seconds per second of every broker while nothing is unloaded."""
        begun, used = time.monotonic(), self._cpu()
        time.sleep(BUNDLES * _PACE_SECONDS)
        return (self._cpu() - used) / (time.monotonic() - begun)

    def _cpu(self) -> npt.NDArray[np.float64]:
        return np.array([self._cluster.cpu_seconds(broker) for broker in range(BROKERS)])


def _await_pace(begun: float) -> None:
    time.sleep(max(0.0, begun + _PACE_SECONDS - time.monotonic()))


if __name__ == "__main__":
    main()
