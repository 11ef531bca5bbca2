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
    from datetime import datetime, timedelta


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


class Awaiting(StateDocument):
    """The `awaiting` document: the plan that waits for a person in mode `approve`; the gate is its only writer.

    Attributes:
        plan_id: name of the run's folder that it lies in; empty: none waits.
        hash: of the plan.
        at: when its snapshot was taken.
        asked: the run of `pulsar_apply__<cluster>` that shows it, and no other plan: Airflow keeps the text of a
            question that nobody answered when its task is cleared.
        older: runs that show plans whose place it took, the oldest first: they are to end.
        identity: of what it does (`Actions.identity`).
    """

    KEY: ClassVar[str] = "awaiting"

    plan_id: str = ""
    hash: str = ""
    at: AwareDatetime | None = None
    asked: str = ""
    older: tuple[str, ...] = ()
    identity: str = ""

    def stands(self, identity: str, now: datetime, least: timedelta, most: timedelta) -> bool:
        """Return whether it is kept in spite of a newer plan: people have time to answer.

        Args:
            identity: of what the newer plan does; the same moves take nobody's place.
            now: the present.
            least: how long it stands whatever comes.
            most: how long it may wait.
        """
        age = now - self.at if self.at is not None else most
        return age < (most if identity == self.identity else min(least, most))

    def older_than(self, run_id: str) -> tuple[str, ...]:
        """Return the runs that show plans older than that of a run; none when it shows no plan that is known."""
        if run_id == self.asked:
            return self.older
        return self.older[: self.older.index(run_id)] if run_id in self.older else ()


class Rejection(Order):
    """Moves that a person rejected; the reason may be empty.

    Attributes:
        plan_id: of the plan that was shown.
    """

    plan_id: str


class Rejections(StateDocument):
    """The `rejected` document, written by the task *approve* alone: what people rejected, by `Actions.identity`."""

    KEY: ClassVar[str] = "rejected"

    moves: dict[str, Rejection] = {}

    def added(self, identity: str, rejection: Rejection, kept: timedelta) -> Self:
        """Return it with one more rejection, without those that no longer hold."""
        return self.model_copy(update={"moves": self.young(rejection.at, kept) | {identity: rejection}})

    def young(self, now: datetime, kept: timedelta) -> dict[str, Rejection]:
        """Return the rejections that hold: those moves are not asked for again.

        Args:
            now: the present.
            kept: how long one holds, which is how long a plan may wait (`max_awaiting_minutes`).
        """
        return {identity: found for identity, found in self.moves.items() if now - found.at < kept}


class Approvals(StateDocument):
    """The `answers` document, written by the task *approve* alone: who approved which plan, by its plan_id.

    Airflow gives the answer to that very task. What a later one finds in an XCom somebody may have written.
    """

    KEY: ClassVar[str] = "answers"

    plans: dict[str, Order] = {}

    def noted(self, plan_id: str, approval: Order | None, now: datetime, kept: timedelta) -> Self:
        """Return it with this answer, None for a rejection, without approvals that are older than `kept`."""
        young = {name: each for name, each in self.plans.items() if now - each.at < kept and name != plan_id}
        return self.model_copy(update={"plans": young | ({plan_id: approval} if approval else {})})


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
