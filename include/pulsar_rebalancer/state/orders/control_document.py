"""The `control` document: what people ordered; `pulsar_control__<cluster>` is its only writer.

Neither a reset nor a restore of the state touches it. It has a copy below the storage root: of both the stricter holds.
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
    """What a person ordered.

    Attributes:
        at: when.
        by: Airflow's user.
        reason: why.
    """

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
        skip: the first run that is collected after it, and recorded, moves nothing.
        stop: runs that were under way then begin no further bundle; later ones do.
        breaker_closed: a circuit breaker that was open then is closed.
        breaker: the circuit breaker, whose document is another one. Never stored here.
        unreadable: why the document cannot be read: nothing is moved then. Never stored.
    """

    KEY: ClassVar[str] = "control"

    pause: PauseOrder | None = None
    skip: Order | None = None
    stop: Order | None = None
    breaker_closed: Order | None = None
    breaker: Breaker = Field(Breaker(), exclude=True)
    unreadable: str = Field("", exclude=True)

    def stricter(self, other: Self) -> Self:
        """Return what holds of two copies: the pause that ends last, the latest of the other orders."""
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
        """Return whether somebody stopped what was under way then."""
        return self.stop is not None and (started is None or self.stop.at >= started)


def _latest(one: _Ordered | None, other: _Ordered | None) -> _Ordered | None:
    return max((order for order in (one, other) if order is not None), key=lambda order: order.at, default=None)
