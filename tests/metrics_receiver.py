"""What Airflow's metrics are sent to: OTLP over HTTP, or StatsD over UDP. A Prometheus scrapes what came in."""

import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import yaml
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from tests.monitoring import FOLDER

from pulsar_rebalancer_airflow.embedded.airflow_home import find_free_port

UNITS = {"ms": "_milliseconds"}
MAPPINGS = yaml.safe_load((FOLDER / "statsd-mapping.yaml").read_text())["mappings"]
_ADDED_UP = ("_total", "_sum", "_count")


def _known_as(name: str) -> str:
    return re.sub(r"\W", "_", name)


@dataclass(frozen=True)
class Series:
    """A point of a metric, named as Prometheus does; of a histogram, the value is its sum."""

    name: str
    labels: dict[str, str]
    value: float


@dataclass
class Received:
    """Everything that came in, in order; the port is one of TCP for OTLP, and of UDP for StatsD."""

    port: int
    series: list[Series] = field(default_factory=list)

    def add(self, metric: Metric) -> None:
        name = metric.name.replace(".", "_") + UNITS.get(metric.unit, "")
        kind = metric.WhichOneof("data")
        for point in getattr(metric, str(kind)).data_points:
            labels = {each.key: each.value.string_value for each in point.attributes}
            if kind in ("gauge", "sum"):
                total = "_total" if kind == "sum" and metric.sum.is_monotonic else ""
                value = point.as_double if point.HasField("as_double") else float(point.as_int)
                self.series.append(Series(name + total, labels, value))
            else:
                self.series.append(Series(f"{name}_sum", labels, point.sum))
                self.series.append(Series(f"{name}_count", labels, float(point.count)))

    def add_line(self, line: str) -> None:
        """Add a line of StatsD with tags in InfluxDB's form, under the name that statsd_exporter gives it."""
        before, _, after = line.rpartition(":")
        text, kind = after.split("|")[:2]
        stat, *tags = before.split(",")
        labels, value = dict(tag.split("=", 1) for tag in tags), float(text)
        name = _known_as(stat)
        for mapping in MAPPINGS:
            match = re.search(mapping["match"], stat)
            if match:
                name = match.expand(mapping["name"].replace("${1}", r"\1"))
                value *= mapping.get("scale", 1)
        if kind == "ms":
            self.series += [Series(f"{name}_sum", labels, value / 1000), Series(f"{name}_count", labels, 1)]
        else:
            self.series.append(Series(name, labels, value))

    def of(self, name: str, **labels: str) -> list[float]:
        return [each.value for each in self.series if each.name == name and labels.items() <= each.labels.items()]

    def exposed(self) -> str:
        """What a Prometheus scrapes: counters added up, and the last value of each gauge."""
        values: dict[str, float] = {}
        for each in list(self.series):
            labels = ",".join(f"{_known_as(name)}={json.dumps(text)}" for name, text in sorted(each.labels.items()))
            key = f"{_known_as(each.name)}{{{labels}}}"
            values[key] = each.value + (values.get(key, 0) if each.name.endswith(_ADDED_UP) else 0)
        return "".join(f"{key} {value!r}\n" for key, value in values.items())


@contextmanager
def receiving() -> Iterator[Received]:
    received = Received(0)
    server = ThreadingHTTPServer(("127.0.0.1", find_free_port()), partial(_Http, received))
    received.port = server.server_port
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as statsd:
        statsd.bind(("127.0.0.1", received.port))
        threads = [
            threading.Thread(target=server.serve_forever),
            threading.Thread(target=_datagrams, args=(received, statsd)),
        ]
        for thread in threads:
            thread.start()
        try:
            yield received
        finally:
            statsd.sendto(b"", statsd.getsockname())  # an empty datagram is the end
            server.shutdown()
            for thread in threads:
                thread.join()
            server.server_close()


class _Http(BaseHTTPRequestHandler):
    def __init__(self, received: Received, *args: Any) -> None:
        self._received = received
        super().__init__(*args)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        request = ExportMetricsServiceRequest.FromString(body)
        for scopes in request.resource_metrics:
            for scope in scopes.scope_metrics:
                for metric in scope.metrics:
                    self._received.add(metric)
        self.send_response(200)
        self.end_headers()

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(self._received.exposed().encode())

    def log_message(self, *_: object) -> None:
        pass


def _datagrams(received: Received, statsd: socket.socket) -> None:
    while data := statsd.recv(65535):
        for line in data.decode().splitlines():
            received.add_line(line)
