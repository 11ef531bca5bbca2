"""An OpenTelemetry receiver over HTTP: what it got, under the names that Prometheus gives it."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

UNITS = {"ms": "_milliseconds"}


@dataclass(frozen=True)
class Series:
    """A point of a metric.

    Attributes:
        name: as Prometheus has it: underscores, the unit, `_total` for a counter.
        labels: by name.
        value: of a histogram, its sum.
    """

    name: str
    labels: dict[str, str]
    value: float


@dataclass
class Received:
    """Everything that came in, in order.

    Attributes:
        port: on loopback.
        series: grows while the receiver runs.
    """

    port: int
    series: list[Series] = field(default_factory=list)

    def add(self, metric: Metric) -> None:
        """Add the points of a metric."""
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

    def of(self, name: str, **labels: str) -> list[float]:
        """The values of a metric with these labels, in the order of their arrival."""
        return [each.value for each in self.series if each.name == name and labels.items() <= each.labels.items()]


@contextmanager
def receiving() -> Iterator[Received]:
    """Receive until the end of the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            request = ExportMetricsServiceRequest.FromString(body)
            for scopes in request.resource_metrics:
                for scope in scopes.scope_metrics:
                    for metric in scope.metrics:
                        received.add(metric)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    received = Received(server.server_port)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield received
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
