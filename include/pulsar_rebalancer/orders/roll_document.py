"""The `roll` document: a rolling restart. Only the *roll* task of `pulsar_roll__<cluster>` writes it.

A reset or restore of the state does not change the document, unless it is lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from typing import ClassVar, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, computed_field, model_validator

from pulsar_rebalancer.config.clusters_file import PLAN_HASH
from pulsar_rebalancer.config.field_types import Overrule
from pulsar_rebalancer.config.settings import parse_form_values
from pulsar_rebalancer.errors import FieldsError, field_error
from pulsar_rebalancer.names import Brokers
from pulsar_rebalancer.orders.manual_plans import Drain, Drains
from pulsar_rebalancer.orders.order import Control, FormAction, GivenOrder, OrderKind, OrdersInForce, Situation
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.state import StateDocument
from pulsar_rebalancer.texts import number_of, one_line

_MAX_NAMES_CHARS = 500


class Phase(StrEnum):
    """The phases of a broker's turn in a rolling restart."""

    WAITING = "waiting"
    DRAINING = "draining"
    RESTARTING = "restarting"
    RETURNING = "returning"


class ShownRoll(BaseModel):
    """A rolling restart as shown by a dry run; `id` is the hash of order, brokers and start times."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    order: tuple[str, ...]
    at: AwareDatetime
    by: str
    reason: str


class BrokerRestart(BaseModel):
    """The predicted turn of one broker.

    Score is in percent, traffic in bytes/s; the bundles move away and back in `minutes`, without the restart
    itself. `why_not` says why the broker could not restart now; empty if it could.
    """

    model_config = ConfigDict(frozen=True)

    broker: str
    score: float
    traffic: float
    bundles: int
    minutes: float
    why_not: str


class ShownRestarts(BaseModel):
    """The dry run of a rolling restart, as the *roll* task returns it; `plan` is the id for carrying it out.

    `refused` and `waits` say why it would be refused now, and what it would wait for; empty if nothing.
    """

    model_config = ConfigDict(frozen=True)

    plan: str
    refused: str
    waits: str
    restarts: tuple[BrokerRestart, ...]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def minutes(self) -> float:
        return sum(turn.minutes for turn in self.restarts)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def moves_twice(self) -> int:
        return sum(turn.bundles for turn in self.restarts)


class Roll(StateDocument):
    """The `roll` document.

    Attributes:
        shown: the last dry run.
        id: id of the roll; empty if there has been no roll yet.
        order: the brokers, in the order in which they restart.
        listed: all brokers that the cluster listed when the roll started.
        done: outcome of each broker whose turn is over, `rolled` or `roll_stopped`.
        turn_at: when the current broker's turn started.
        sample: run whose sample was the latest when the current phase started.
        since: when the current phase started.
        progress_at: when the roll last made progress or was held up by orders, plus time without steps.
        looked_at: when the roll took a step, to the minute.
        started: the broker's start time before the restart; updated once the broker is empty.
        home: bundles that the broker owned before it was drained.
        restarted: the broker's start time after the restart.
        left: number of bundles that must still leave the broker, or return to it; None if unknown.
        fewest: the smallest value of `left` in the current phase.
        seen: times of the samples in a row in which the drained broker was empty or, later, the new process
            sent a load report; before a turn, that of the sample in which the others had no room.
        may_restart: True while the current broker is known to be empty and all others to be well.
        outcome: outcome of the broker's turn, once its bundles are back.
        elsewhere: why bundles are not on a broker whose turn is over or was stopped, by broker.
        asked: broker that operators were asked to restart; set once the message has been delivered.
        ended: why the roll is over; empty if it is not over.
        stranded: broker that the roll left drained when it stopped; may be empty.
        untold: True if no receiver accepted the message about the end; the *report* task then sends it.
    """

    KEY: ClassVar[str] = "roll"

    shown: ShownRoll | None = None
    id: str = ""
    run_id: str = ""
    at: AwareDatetime | None = None
    by: str = ""
    reason: str = ""
    order: tuple[str, ...] = ()
    listed: tuple[str, ...] = ()
    done: dict[str, Reason] = {}
    phase: Phase = Phase.WAITING
    turn_at: AwareDatetime | None = None
    sample: str = ""
    since: AwareDatetime | None = None
    progress_at: AwareDatetime | None = None
    looked_at: AwareDatetime | None = None
    started: AwareDatetime | None = None
    home: tuple[str, ...] = ()
    restarted: AwareDatetime | None = None
    left: int | None = None
    fewest: int | None = None
    seen: tuple[AwareDatetime, ...] = ()
    may_restart: bool = False
    outcome: Reason = Reason.ROLLED
    elsewhere: dict[str, str] = {}
    waits: str = ""
    asked: str = ""
    ended: Reason | None = None
    ended_at: AwareDatetime | None = None
    stranded: str = ""
    untold: bool = False

    @property
    def is_active(self) -> bool:
        return bool(self.id) and self.ended is None

    @property
    def broker(self) -> str:
        return next((name for name in self.order if name not in self.done), "") if self.is_active else ""

    @property
    def is_under_way(self) -> bool:
        """Return whether a broker's turn has begun; it is completed even outside the windows."""
        return self.is_active and self.phase is not Phase.WAITING

    def has_same_phase(self, other: Roll | None) -> bool:
        return other is not None and (other.id, other.turn_at, other.phase) == (self.id, self.turn_at, self.phase)

    def stop_order(self, control: Control) -> GivenOrder | None:
        order = control.last_order("stop_roll")
        return order if order and self.at and order.at >= self.at else None

    def displayed_roll(self, control: Control) -> Self:
        """Return the roll as operators see it: once it is to stop, nobody is asked to restart a broker."""
        if not (self.is_active and self.stop_order(control)):
            return self
        return self.model_copy(update={"may_restart": False, "waits": "the next step, in which the roll stops"})

    def skip_order(self, control: Control) -> GivenOrder | None:
        """Return the order, given in the current phase, to end the broker's turn; None if there is none."""
        order = control.last_order("skip_broker")
        ends = order and order.subject == self.broker and self.since and order.at >= self.since
        return order if ends else None

    def roll_drains(self) -> dict[str, Drain]:
        drained = self.broker if self.phase in (Phase.DRAINING, Phase.RESTARTING) else ""
        drained = drained or self.stranded
        if not drained or self.turn_at is None:
            return {}
        # Moves within the grace period are allowed: the bundles of the last broker have just moved back.
        reason = f"rolling restart: {self.reason}"
        return {drained: Drain(at=self.turn_at, by=self.by, reason=reason, overrule=(Overrule.GRACE_PERIOD,))}

    def add_roll_drain(self, drains: Drains) -> Drains:
        """Return drains with that of the roll, unless a person has released the broker since."""
        own = {
            name: drain
            for name, drain in self.roll_drains().items()
            if name not in drains.released or drains.released[name] < drain.at
        }
        return drains.model_copy(update={"brokers": own | drains.brokers})

    def started_roll(
        self, shown_roll: ShownRoll, run_id: str, brokers: tuple[str, ...], now: datetime, user: str, sample: str
    ) -> Self:
        return type(self)(
            shown=shown_roll,
            id=shown_roll.id,
            run_id=run_id,
            at=now,
            by=user,
            reason=shown_roll.reason,
            order=shown_roll.order,
            listed=brokers,
            turn_at=now,
            sample=sample,
            since=now,
            progress_at=now,
        )

    def with_phase(self, phase: Phase, now: datetime, waits_for: str) -> Self:
        anew = {"left": None, "fewest": None, "seen": (), "may_restart": False, "restarted": None}
        return self.model_copy(update={"phase": phase, "since": now, "progress_at": now, "waits": waits_for} | anew)

    def end_turn(self, outcome: Reason, now: datetime, why_elsewhere: str = "") -> Self:
        """Return the document after a broker's turn; `why_elsewhere` says why bundles are not back."""
        done = self.done | {self.broker: outcome}
        over = len(done) == len(self.order)
        ended = {"ended": Reason.ROLLED, "ended_at": now} if over else {}
        ended |= {"elsewhere": self.elsewhere | {self.broker: why_elsewhere}} if why_elsewhere else {}
        update = {"done": done, "turn_at": now, "started": None, "home": (), "outcome": Reason.ROLLED} | ended
        return self.with_phase(Phase.WAITING, now, "").model_copy(update=update)

    def stopped_roll(self, reason: Reason, reason_text: str, now: datetime, *, is_stranded: bool) -> Self:
        """Return the document of a roll that stops now; if `is_stranded`, the broker stays drained."""
        left = self.broker if is_stranded else ""
        return self.model_copy(update={"ended": reason, "ended_at": now, "waits": reason_text, "stranded": left})

    @property
    def progress(self) -> str:
        count = f"{len(self.done)} of {number_of(len(self.order), 'broker')} done"
        waits = f"; {'waits for ' if self.is_active else ''}{self.waits}" if self.waits else ""
        broker_and_phase = f"{self.broker} {self.phase}" if self.is_active else str(self.ended)
        stranded = f"; {self.stranded} stays drained until a person releases it" if self.stranded else ""
        apart = ", ".join(f"{broker} ({why})" for broker, why in self.elsewhere.items())
        elsewhere = one_line(f"; bundles have not returned to {apart}", _MAX_NAMES_CHARS) if apart else ""
        return f"rolling restart by {self.by or 'unknown'}: {broker_and_phase}, {count}{waits}{stranded}{elsewhere}"


class RollRequest(BaseModel):
    """The fields of the form. If `plan` is empty, the roll is only shown, not carried out."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    brokers: Brokers = Field((), description="brokers (host:port) in the order of their restart; if empty, all brokers")
    reason: str = Field("", max_length=500, description="reason for the rolling restart; the reason is recorded")
    plan: str = Field("", pattern=f"^({PLAN_HASH})?$", description="id from the dry run, to begin or continue the roll")

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        if self.plan and (self.brokers or self.reason):
            raise FieldsError({"plan": "Give only the id: the dry run already has the brokers and the reason."})
        if not self.plan and not self.reason:
            raise FieldsError({"reason": "Give a reason, or the id from a dry run."})
        if len(set(self.brokers)) < len(self.brokers):
            raise FieldsError({"brokers": "Give each broker only once."})
        return self


def parse_roll_form(values: Mapping[str, object]) -> RollRequest:
    """Return the validated fields; raise SettingsError (`wrong_setting`)."""
    return parse_form_values(RollRequest, values, "form")


def _roll_texts(situation: Situation) -> Iterator[str]:
    roll = situation.orders.get(Roll).displayed_roll(situation.orders.get(Control))
    if roll.is_active or roll.stranded in situation.orders.get(Drains).brokers:
        yield roll.progress


def _add_skip_order(orders: OrdersInForce, order: GivenOrder) -> Control:
    # The order names the broker, lest the next one be skipped.
    turn = orders.get(Roll).broker
    if order.subject != turn:
        text = f"It is not the turn of {order.subject}; current broker: {turn or 'none'}."
        raise field_error(Reason.CONTRADICTION, "subject", text)
    return orders.get(Control).with_order(order)


ROLL = OrderKind(
    actions=(
        FormAction(
            "skip_broker",
            "Skip the current broker",
            "The rolling restart continues with the next broker.",
            subject="the current broker (host:port)",
            subject_pattern=".+",
            apply=_add_skip_order,
            button="Skip broker",
            group="Brokers",
            is_shown=lambda situation: situation.orders.get(Roll).is_active,
            propose_value=lambda situation: situation.orders.get(Roll).broker,
        ),
        FormAction(
            "stop_roll",
            "Stop the rolling restart",
            "The current broker is released; if it is restarting, it stays drained until a person releases it.",
            button="Stop roll",
            group="Brokers",
            is_shown=lambda situation: situation.orders.get(Roll).is_active,
        ),
    ),
    order_texts=_roll_texts,
)
