"""The `control` document: people's orders; `pulsar_control__<cluster>` is its only writer.

Neither a reset nor a restore of the state touches it. It has a copy below the storage root; the stricter of the two
holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Self, TypeVar

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from pulsar_rebalancer.state.orders.breaker import Breaker
from pulsar_rebalancer.state.state_documents import StateDocument
from pulsar_rebalancer.texts import one_line

if TYPE_CHECKING:
    from datetime import datetime


class Order(BaseModel):
    """An order of a person; `by` is the Airflow user."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    at: AwareDatetime
    by: str
    reason: str

    @property
    def because(self) -> str:
        """Return who ordered it, and why."""
        return one_line(f"by {self.by or 'unknown'}" + (f": {self.reason}" if self.reason else ""), 600)


class PauseOrder(Order):
    """Nothing is moved until a time."""

    until: AwareDatetime


_Ordered = TypeVar("_Ordered", bound=Order)


class Control(StateDocument):
    """The `control` document.

    Attributes:
        pause: nothing is moved until its end.
        skip: the first run that is collected after this order, and recorded, moves nothing.
        stop: runs that were under way at that time begin no further bundle; later ones do.
        breaker_closed: a circuit breaker that was open at that time is closed.
        breaker: the circuit breaker, from its own document. Never stored here.
        unreadable: why the document cannot be read; nothing is moved then. Never stored.
    """

    KEY: ClassVar[str] = "control"

    pause: PauseOrder | None = None
    skip: Order | None = None
    stop: Order | None = None
    breaker_closed: Order | None = None
    breaker: Breaker = Field(Breaker(), exclude=True)
    unreadable: str = Field("", exclude=True)

    def stricter(self, other: Self) -> Self:
        """Return the orders that hold of two copies: the pause that ends last, and the latest of each other order."""
        pauses = [pause for pause in (self.pause, other.pause) if pause is not None]
        return self.model_copy(
            update={
                "pause": max(pauses, key=lambda pause: pause.until, default=None),
                "skip": _latest(self.skip, other.skip),
                "stop": _latest(self.stop, other.stop),
                "breaker_closed": _latest(self.breaker_closed, other.breaker_closed),
            }
        )

    def stopped_since(self, started: datetime | None) -> bool:
        """Return whether a stop was ordered at or after a time; for None, whether there is one at all."""
        return self.stop is not None and (started is None or self.stop.at >= started)


def _latest(one: _Ordered | None, other: _Ordered | None) -> _Ordered | None:
    return max((order for order in (one, other) if order is not None), key=lambda order: order.at, default=None)
