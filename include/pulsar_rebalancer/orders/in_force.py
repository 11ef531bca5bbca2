"""The list of all orders, and what follows from it: form, buttons, why nothing may be moved, and the texts about it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator

from pulsar_rebalancer.config.field_types import Mode
from pulsar_rebalancer.config.settings import Settings, parse_form_values
from pulsar_rebalancer.errors import FieldsError
from pulsar_rebalancer.names import namespace_of
from pulsar_rebalancer.orders.breaker import BREAKER
from pulsar_rebalancer.orders.calendar import CALENDAR
from pulsar_rebalancer.orders.freeze import FREEZE
from pulsar_rebalancer.orders.limits import LIMITS, MODE, exclusion_reason
from pulsar_rebalancer.orders.manual_plans import DRAIN, QUESTION
from pulsar_rebalancer.orders.order import (
    NO_RUN,
    Control,
    FormAction,
    Hold,
    JudgedRun,
    OrderButton,
    OrderKind,
    OrdersInForce,
    Situation,
    Wording,
)
from pulsar_rebalancer.orders.pause import PAUSE, SKIP, STOP
from pulsar_rebalancer.orders.roll_document import ROLL, Roll
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.texts import one_line

SHOW, EXPORT, RESET, RESTORE = "show", "export", "reset", "restore"

_STATE = OrderKind(
    actions=(
        FormAction(SHOW, "Show the state and the orders in force", needs_reason=False, apply=None),
        FormAction(EXPORT, "Export the state", needs_reason=False, apply=None),
        FormAction(
            RESET,
            "Start with an empty state",
            "Hits restart at zero. Repeat lost orders afterwards.",
            apply=None,
            button="Reset",
            group="",
            is_shown=lambda situation: situation.orders.lost_text,
        ),
        FormAction(
            RESTORE,
            "Restore the state",
            "Repeat lost orders afterwards.",
            subject="the name of an export, or nothing for the state of the last committed plan",
            subject_pattern=r"(export-[0-9]{8}T[0-9]{6}Z\.json)?",  # it matches no paths
            apply=None,
            button="Restore",
            group="",
            is_shown=lambda situation: situation.orders.lost_text,
        ),
    ),
    hold_of=lambda given: Hold(Reason.STATE_LOST, given.orders.lost_text) if given.orders.lost_text else None,
    words={Reason.STATE_LOST: Wording("the state and perhaps orders are lost:", "the state was lost.", lasting=True)},
)

ORDERS = (STOP, MODE, _STATE, BREAKER, PAUSE, CALENDAR, SKIP, DRAIN, ROLL, QUESTION, LIMITS, FREEZE)
"""All kinds of orders, by priority: the first order that closes the gate gives the reason."""

ACTIONS: Mapping[str, FormAction] = {action.name: action for kind in ORDERS for action in kind.actions}
WORDING_BY_REASON: Mapping[Reason, Wording] = {reason: words for kind in ORDERS for reason, words in kind.words.items()}
LASTING_REASONS = {reason for reason, words in WORDING_BY_REASON.items() if words.lasting}
FILE_ONLY_SETTINGS = tuple(name for kind in ORDERS for name in kind.setting_names)
"""Settings that only the clusters file can change, not the parameters of a run."""


class ControlRequest(BaseModel):
    """The fields of the form. Fields that the chosen action does not use must be empty."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    action: str = Field(SHOW, pattern=f"^({'|'.join(ACTIONS)})$", description="what to do; show changes nothing")
    reason: str = Field("", max_length=500, description="reason; required for all actions except show and export")
    until: AwareDatetime | None = Field(
        None,
        description=f"{', '.join(each.name for each in ACTIONS.values() if each.until)}: end time, with a time zone",
    )
    subject: str = Field(
        "",
        max_length=500,
        description="; ".join(f"{each.name}: {each.subject}" for each in ACTIONS.values() if each.subject),
    )

    @property
    def form_action(self) -> FormAction:
        return ACTIONS[self.action]

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        chosen, wrong = self.form_action, {}
        if chosen.needs_reason and not self.reason:
            wrong["reason"] = "Give a reason; it is recorded."
        if (self.until is not None) != chosen.until:
            wrong["until"] = "Give the end time." if chosen.until else f"Leave it empty: {self.action} has no end time."
        if re.fullmatch(chosen.subject_pattern, self.subject) is None:
            wrong["subject"] = f"Give {chosen.subject}." if chosen.subject else f"{self.action} takes no subject."
        if wrong:
            raise FieldsError(wrong)
        return self


def parse_control_form(values: Mapping[str, object]) -> ControlRequest:
    """Return the validated fields; raise SettingsError (`wrong_setting`)."""
    return parse_form_values(ControlRequest, values, "form")


def all_holds(settings: Settings, orders: OrdersInForce, now: datetime, run: JudgedRun = NO_RUN) -> list[Hold]:
    at = Situation(settings, orders, now, run)
    return [closed for kind in ORDERS if (closed := kind.hold_of(at))]


def immovable_namespaces(settings: Settings, control: Control) -> frozenset[str]:
    return frozenset(name for kind in ORDERS for name in kind.kept_namespaces(settings, control))


def new_exclusion(
    planned_orders: tuple[Settings, Control], current: tuple[Settings, Control], bundle: str, brokers: Collection[str]
) -> Reason | None:
    """Return why a planned move or split is now excluded; None if it is not excluded.

    Exclusions that already applied at the time of planning are ignored, because the plan overruled them.
    `brokers` are the bundle's current broker and any destination.
    """
    then, now = (
        exclusion_reason(settings, bundle, brokers)
        or (Reason.NAMESPACE_EXCLUDED if namespace_of(bundle) in immovable_namespaces(settings, control) else None)
        for settings, control in (planned_orders, current)
    )
    return None if then else now


def buttons(situation: Situation) -> tuple[OrderButton, ...]:
    """Return the page's buttons for the actions that do something now."""
    return tuple(
        replace(b, proposed=b.propose_value(situation)) for b in ACTIONS.values() if b.button and b.is_shown(situation)
    )


def orders_sentence(settings: Settings, holds: Sequence[Hold], orders: OrdersInForce, now: datetime) -> str:
    """Return the sentence about the current orders, given the effective settings and `holds`."""
    mode_and_orders = "; ".join([f"mode {settings.mode}", *order_texts(settings, holds, orders, now)])
    rolls = orders.get(Roll).is_active
    carried_out = "Only moves of the rolling restart are carried out" if rolls else "Moves are carried out"
    moved = carried_out if settings.mode is not Mode.APPROVE else "Moves wait for approval"
    return one_line(f"{'Nothing is moved' if holds else moved}: {mode_and_orders}")


def order_texts(settings: Settings, holds: Sequence[Hold], orders: OrdersInForce, now: datetime) -> list[str]:
    at = Situation(settings, orders, now)
    texts = [f"{words} {closing.detail}" for closing in holds if (words := WORDING_BY_REASON[closing.reason].present)]
    return texts + [text for kind in ORDERS for text in kind.order_texts(at)]
