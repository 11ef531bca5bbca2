"""`comparison.json`: the predicted effect of a run's moves on the brokers' scores, and the scores measured later."""

from __future__ import annotations

from typing import ClassVar

from pydantic import AwareDatetime, BaseModel, ConfigDict

from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.storage.documents import VersionedDocument


class ComparedBroker(BaseModel):
    """A broker that gave up or received bundles. Scores are in percent.

    Attributes:
        before: score in the sample from which the moves were planned.
        predicted: predicted score after the moves that were carried out.
        measured: score in the first counted sample at least ten minutes after the moves; None until then, or if the
            broker is not compared.
        error: measured minus predicted score, in points, excluding the change common to all brokers.
        dropped: why the broker is not compared; None if it is compared.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    before: float
    predicted: float
    measured: float | None = None
    error: float | None = None
    dropped: Reason | None = None

    @property
    def awaited(self) -> bool:
        """Return whether the broker is still to be compared."""
        return self.error is None and self.dropped is None


class ComparedRun(VersionedDocument):
    """The comparison of a run's predicted scores with the measured scores.

    Attributes:
        moved_at: time by which all moves had ended.
        compared_at: time of the sample with the measured scores; None if there is none yet.
        brokers: the brokers that gave up or received bundles, by name.
    """

    FILE: ClassVar[str] = "comparison.json"

    plan_id: str
    moved_at: AwareDatetime
    compared_at: AwareDatetime | None = None
    brokers: dict[str, ComparedBroker]

    @property
    def awaited(self) -> frozenset[str]:
        """Return the brokers that are still to be compared."""
        return frozenset(name for name, broker in self.brokers.items() if broker.awaited)
