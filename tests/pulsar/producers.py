"""Child process of `load.Load`: one Pulsar client that sends to many topics, each at its own rate, and may read them.

Reads one line of JSON (the order) from standard input, prints a line ``ready`` when every producer is connected, sends
until standard input is closed or SIGTERM comes, and prints one line of JSON: the report. Each further line on standard
input sets new rates by topic.
"""

import gc
import heapq
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import pulsar

_TICK_SECONDS = 0.05
_STEADY_TICK_SECONDS = 0.0005
_READ_SECONDS = 300
"""For the subscriber to see the last message; only a lost one takes that long."""

_GAPS = 16
"""Longest gaps that are kept of each producer."""

_MINE = b"%d:" % time.time_ns()
"""Begin of this process's messages: a subscription may still hold those of an earlier one."""


@dataclass
class Counts:
    """What became of one topic's messages; gaps are the longest times between two acknowledgements, in seconds."""

    sent: int = 0
    acked: int = 0
    errors: int = 0
    ack_gaps: list[float] = field(default_factory=lambda: [0.0] * _GAPS)
    received: int = 0


class Topic:
    """One producer with its counts, and perhaps a consumer. Acknowledgements arrive on the client's own thread."""

    def __init__(self, producer: Any, rate: float, due: float) -> None:
        self.producer = producer
        self.rate = rate
        self.counts = Counts()
        # A consumer that nothing refers to is closed by the next garbage collection.
        self.consumer: Any = None
        self._due = due
        self._last_ack: float | None = None
        self._seen: set[bytes] = set()

    def send(self, seconds: float, body: bytes) -> None:
        self._due += self.rate * seconds
        while self._due >= 1:
            self._due -= 1
            self.counts.sent += 1
            try:
                self.producer.send_async(_MINE + b"%d " % self.counts.sent + body, self._acknowledged)
            except pulsar.PulsarException:
                self.counts.errors += 1

    def _acknowledged(self, result: Any, _message: Any) -> None:
        if result != pulsar.Result.Ok:
            self.counts.errors += 1
            return
        now = time.monotonic()
        if self._last_ack is not None:
            heapq.heappushpop(self.counts.ack_gaps, now - self._last_ack)
        self._last_ack = now
        self.counts.acked += 1

    def receive(self, consumer: Any, message: Any) -> None:
        """Note a message; what a producer sends again after an outage has the same number."""
        if message.data().startswith(_MINE):
            self._seen.add(message.data().partition(b" ")[0])
        self.counts.received = len(self._seen)
        consumer.acknowledge(message)


def connect(order: dict[str, Any]) -> dict[str, Topic]:
    quiet = logging.getLogger("pulsar-client")
    quiet.addHandler(logging.StreamHandler(sys.stderr))
    quiet.setLevel(logging.ERROR)
    options: dict[str, Any] = {"io_threads": 1, "message_listener_threads": 1, "logger": quiet}
    if order["token"]:
        options["authentication"] = pulsar.AuthenticationToken(order["token"])
    if order["ca_file"]:
        options |= {"tls_trust_certs_file_path": order["ca_file"], "tls_validate_hostname": True}
    client = pulsar.Client(order["service_url"], operation_timeout_seconds=30, **options)
    rates = order["rates"]
    # One after the other, so that topics of equal rate do not send together.
    topics = {
        topic: Topic(_producer(client, topic, order["batching"]), rate, number / len(rates))
        for number, (topic, rate) in enumerate(rates.items())
    }
    if order["subscribed"]:
        for name, topic in topics.items():
            topic.consumer = client.subscribe(
                name, "tests", message_listener=topic.receive, initial_position=pulsar.InitialPosition.Earliest
            )
    return topics


def _producer(client: Any, topic: str, batching: bool) -> Any:
    # Longer than any outage: of a broker that dies, and of a busy machine on which the client waits to connect again.
    return client.create_producer(
        topic,
        batching_enabled=batching,
        batching_max_publish_delay_ms=10,
        send_timeout_millis=300_000,
        max_pending_messages=50_000,
        block_if_queue_full=False,
    )


def send_until(stopped: Callable[[float], bool], topics: dict[str, Topic], tick: float, body: bytes) -> None:
    """Send at the ordered rates, then wait until every message is acknowledged or given up."""
    last = time.monotonic()
    while not stopped(tick):
        now = time.monotonic()
        for topic in topics.values():
            # A process that was held up does not make up for it in one burst.
            topic.send(min(now - last, 0.5), body)
        last = now
    for topic in topics.values():
        try:
            topic.producer.flush()
        except pulsar.PulsarException as error:
            print(f"flush failed: {error}", file=sys.stderr)


def main() -> None:
    order = json.loads(sys.stdin.readline())
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda _signal, _frame: stop.set())
    topics = connect(order)
    # A collection now, so that one finds little to do while it sends.
    gc.collect()
    print("ready", flush=True)

    def watch_input() -> None:
        for line in sys.stdin:
            for name, rate in json.loads(line).items():
                topics[name].rate = rate
        stop.set()

    threading.Thread(target=watch_input, daemon=True).start()
    tick = _STEADY_TICK_SECONDS if order["steady"] else _TICK_SECONDS
    send_until(stop.wait, topics, tick, b"x" * order["size"])
    limit = time.monotonic() + (_READ_SECONDS if order["subscribed"] else 0)
    while any(topic.counts.received < topic.counts.acked for topic in topics.values()) and time.monotonic() < limit:
        time.sleep(_TICK_SECONDS)
    print(json.dumps({name: asdict(topic.counts) for name, topic in topics.items()}), flush=True)
    # Taking the client apart can outlast the brokers; everything is acknowledged and told.
    os._exit(0)


if __name__ == "__main__":
    main()
