"""The figures that a strategy has learned about a cluster's brokers, in their stored format."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

SETTLED = 25.0
"""Minutes without a move after which a broker's score again reflects only its current bundles."""


class LearnedBroker(NamedTuple):
    """The figures learned about one broker.

    Attributes:
        samples: number of counted samples since the broker joined.
        residual: the part of its score that its bundles do not explain, in points.
        score: moving average of its score over a quarter of an hour, in percent.
        variance: variance of the score changes that its bundles do not explain, in points squared.
        started: start time of its process in seconds since 1970; None if unknown.
    """

    samples: int = 0
    residual: float = 0.0
    score: float = 0.0
    variance: float = 4.0
    started: float | None = None

    def of_process(self, started_at: datetime | None) -> Self:
        """Return the record for a broker process with this start time; an empty record if the process is new."""
        started = started_at.timestamp() if started_at else None
        if started is None or started == self.started:
            return self
        return self._replace(started=started) if self.started is None else type(self)(started=started)


@dataclass(frozen=True, slots=True)
class Learned:
    """The figures learned about a cluster.

    Attributes:
        samples: number of counted samples.
        points: score points that 1 msg/s of average cost (1 kB/s if the network is the bottleneck) adds to a broker
            with the median number of cores.
        idle: score, in percent, of a broker without bundles.
        quiet: minutes since a broker last joined or left, at most `SETTLED`.
        brokers: figures learned about each broker that the cluster lists, by broker.
        bottleneck: the resource that determines the scores.
        others: number of consecutive counted samples in which a different resource determined the scores.
    """

    samples: int = 0
    points: float = 0.0
    idle: float = 5.0
    quiet: float = SETTLED
    brokers: Mapping[str, LearnedBroker] = field(default_factory=dict)
    bottleneck: str = "cpu"
    others: int = 0

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Self:
        """Parse a document that `document` returned."""
        brokers = {name: LearnedBroker(*figures) for name, figures in document.get("brokers", {}).items()}
        return cls(**{**document, "brokers": brokers})

    def document(self) -> dict[str, Any]:
        """Return the document to store; empty if nothing has been learned."""
        if not self.samples:
            return {}
        own = {of.name: getattr(self, of.name) for of in fields(self)}
        return own | {"brokers": {name: list(broker) for name, broker in sorted(self.brokers.items())}}


NOTHING = Learned()
