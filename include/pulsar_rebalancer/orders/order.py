"""What an order is, and what the module of each kind declares: form, button, gate, bundles that stay, and words."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar, NamedTuple, Self, TypeVar

from pydantic import AwareDatetime, BaseModel, ConfigDict

from pulsar_rebalancer.config.clusters_file import Origin
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.errors import field_error
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.state import StateDocument
from pulsar_rebalancer.texts import one_line

_Document = TypeVar("_Document", bound=StateDocument)


class Order(BaseModel):
    """An order from a person; `by` is the Airflow user."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    at: AwareDatetime
    by: str
    reason: str

    @property
    def giver(self) -> str:
        return one_line((self.by or "unknown") + (f": {self.reason}" if self.reason else ""), 600)

    @property
    def by_text(self) -> str:
        return f"by {self.giver}"


class GivenOrder(Order):
    """An order to the control DAG; `subject` is a broker or namespace, or empty for the whole cluster."""

    action: str
    subject: str = ""
    until: AwareDatetime | None = None


class Control(StateDocument):
    """The `control` document: the last order of each action about each subject. Only the control DAG writes it.

    A reset or restore of the state does not change the document, unless it is lost.
    """

    KEY: ClassVar[str] = "control"

    orders: tuple[GivenOrder, ...] = ()

    def last_order(self, action: str) -> GivenOrder | None:
        return next((order for order in reversed(self.orders) if order.action == action), None)

    def with_order(self, order: GivenOrder) -> Self:
        others = self.without_ended_orders(order.at).without_orders(order.action, subject=order.subject)
        return self.model_copy(update={"orders": (*others.orders, order)})

    def without_orders(self, *actions: str, subject: str = "") -> Self:
        rest = (order for order in self.orders if order.action not in actions or order.subject != subject)
        return self.model_copy(update={"orders": tuple(rest)})

    def without_ended_orders(self, now: datetime) -> Self:
        """Return the orders that have not ended."""
        rest = (order for order in self.orders if order.until is None or now < order.until)
        return self.model_copy(update={"orders": tuple(rest)})


@dataclass(frozen=True)
class OrdersInForce:
    """The documents with orders, by key.

    Attributes:
        lost_text: which documents of the state store are lost, and why; nothing is moved then. Empty if none is.
        run_started_at: when the run in progress started, to decide whether a stop affects it; None without one.
        setting_origins: source of each setting; those without an entry come from the clusters file.
    """

    document_by_key: Mapping[str, StateDocument] = field(default_factory=dict)
    lost_text: str = ""
    run_started_at: datetime | None = None
    setting_origins: Mapping[str, Origin] = field(default_factory=dict)

    @classmethod
    def build(cls, *documents: StateDocument, lost: str = "", started_at: datetime | None = None) -> Self:
        return cls({document.KEY: document for document in documents}, lost, started_at)

    def get(self, model: type[_Document]) -> _Document:
        document = self.document_by_key.get(model.KEY)
        return document if isinstance(document, model) else model()


class JudgedRun(NamedTuple):
    """The run that the orders apply to.

    Attributes:
        sampled_at: time of its sample; None if no order to skip a run applies.
        previous: run id of the last recorded plan, or empty.
        started_at: when the run started; None if no order to stop it applies.
    """

    sampled_at: datetime | None = None
    previous: str = ""
    started_at: datetime | None = None


NO_RUN = JudgedRun()


@dataclass(frozen=True)
class Situation:
    """All that decides what an order does now."""

    settings: Settings
    orders: OrdersInForce
    now: datetime
    run: JudgedRun = NO_RUN

    @property
    def control(self) -> Control:
        return self.orders.get(Control).without_ended_orders(self.now)


class Hold(NamedTuple):
    """A reason why nothing is moved. The detail gives the end time, the person and the person's reason."""

    reason: Reason
    detail: str


class Wording(NamedTuple):
    """The texts about a reason that closes the gate.

    Attributes:
        present: the beginning of the text about the present, before the detail.
        past: about a past run, whose reason says nothing about the present; empty if it does.
        next_run_text: about the next run, with {} for the detail; empty if the reason's meaning says it.
        lasting: True if the gate stays closed until a person changes something, False if it opens by itself.
    """

    present: str = ""
    past: str = ""
    next_run_text: str = ""
    lasting: bool = False


def end_text(until: datetime, giver: str, now: datetime) -> str:
    """Return when an order ends and who gave it; the date only if it is not today's."""
    date = "" if until.date() == now.astimezone(until.tzinfo).date() else f"{until:%Y-%m-%d} "
    return f"until {date}{until:%H:%M %Z} ({giver})"


def with_order(orders: OrdersInForce, order: GivenOrder) -> Control:
    return orders.get(Control).with_order(order)


def with_end(orders: OrdersInForce, order: GivenOrder) -> Control:
    """Return the document with an order that has an end.

    Raises SettingsError: `wrong_setting` if the end is past, `contradiction` if it is before the present one's.
    """
    if order.until is not None and order.until <= order.at:
        raise field_error(Reason.WRONG_SETTING, "until", "This time is in the past: give a future time.")
    for other in orders.get(Control).orders:
        same = (other.action, other.subject) == (order.action, order.subject)
        if same and other.until and order.until and other.until > order.until:
            why = f"End the {other.action} {end_text(other.until, other.giver, order.at)} first, because it ends later."
            raise field_error(Reason.CONTRADICTION, "until", why)
    return with_order(orders, order)


@dataclass(frozen=True)
class OrderButton:
    """A button of the page; its form asks for a reason, and for a subject or an end if the action has one.

    Attributes:
        title: what it does; `hint` says more.
        until: True if it needs an end.
        subject: what the field `subject` is, with which value it begins (`proposed`); empty if there is none.
        button: empty if there is none. Without a group, it is only next to what it helps against.
    """

    name: str
    title: str
    hint: str = ""
    until: bool = False
    subject: str = ""
    proposed: str = ""
    button: str = ""
    group: str = "Now"


@dataclass(frozen=True)
class FormAction(OrderButton):
    """An action that a person can choose in the form.

    Attributes:
        subject_pattern: of the subject.
        apply: returns the `control` document with the order; None if the action is no order.
        stops_run: True if it also stops a run under way.
        works_after_loss: True if it is accepted although orders are lost.
        is_shown: whether there is something to do at present.
        propose_value: returns the subject with which the button's form begins.
    """

    subject_pattern: str = ""
    needs_reason: bool = True
    apply: Callable[[OrdersInForce, GivenOrder], Control] | None = with_order
    stops_run: bool = False
    works_after_loss: bool = False
    is_shown: Callable[[Situation], object] = lambda _: True
    propose_value: Callable[[Situation], str] = lambda _: ""


@dataclass(frozen=True)
class OrderKind:
    """All that the other modules know of a kind of order.

    Attributes:
        setting_names: the settings of the clusters file that give the order; a run cannot change them.
        order_texts: yields texts about the order, in addition to those about a closed gate.
        kept_namespaces: returns the namespaces whose bundles stay, unless exclusions are overruled.
    """

    actions: tuple[FormAction, ...] = ()
    setting_names: tuple[str, ...] = ()
    hold_of: Callable[[Situation], Hold | None] = lambda _: None
    words: Mapping[Reason, Wording] = field(default_factory=dict)
    order_texts: Callable[[Situation], Iterable[str]] = lambda _: ()
    kept_namespaces: Callable[[Settings, Control], Collection[str]] = lambda *_: ()
