"""The gate's rules, which decide whether a plan may be carried out, and who may approve it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from pulsar_rebalancer.config.field_types import Mode, Overrule
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.errors import PlanError
from pulsar_rebalancer.names import namespace_of
from pulsar_rebalancer.orders.in_force import all_holds
from pulsar_rebalancer.orders.manual_plans import Answers
from pulsar_rebalancer.orders.order import JudgedRun, OrdersInForce
from pulsar_rebalancer.reasons import Effect, Reason
from pulsar_rebalancer.run.plan import Actions, Move, Split, Summary, verified_actions
from pulsar_rebalancer.run.request import Validation
from pulsar_rebalancer.run.snapshot import CLIENT_COLUMNS, Snapshot, StateBefore
from pulsar_rebalancer.state import DecisionState
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer.texts import capitalized, number_of, one_line


class Verdict(NamedTuple):
    """The gate's decision on a plan; moves and splits are empty unless the reason is `open`."""

    reason: Reason
    detail: str = ""
    moves: Sequence[Move] = ()
    splits: Sequence[Split] = ()


class Approval(NamedTuple):
    """The operators' answers in mode `approve`: whether this run's plan is approved, and answers for others."""

    is_approved: bool = False
    answers: Answers = Answers()


NO_APPROVAL = Approval()


def judge_plan(
    run: StoragePath,
    stored_state: DecisionState,
    present_settings: Settings,
    orders: OrdersInForce,
    now: datetime,
    deadline: datetime,
    approval: Approval = NO_APPROVAL,
) -> Verdict:
    """Decide whether a run's plan may be carried out by its own and by the current settings.

    After `deadline`, the plan is too old. Raises SnapshotError if one of the run's files cannot be read.
    """
    summary = Summary.read(run)
    # Files that were rewritten since the decision have another hash.
    if (stored_state.plan_id, stored_state.plan_hash) != (summary.plan_id, summary.hash):
        return Verdict(Reason.STALE_PLAN, f"recorded: {stored_state.plan_id or 'none'} {stored_state.plan_hash[:12]}")
    try:
        actions = moves, splits = verified_actions(run, summary)
    except PlanError as error:
        return Verdict(error.reason, error.message)
    if not moves and not splits:
        return Verdict(Reason.NOTHING_TO_DO)
    planned = summary.resolved.settings
    closed = (
        _order_verdict(run, summary, planned, orders, now)
        or _validation_verdict(Validation.read(run))
        or _age_verdict(now, deadline)
        or _order_verdict(run, summary, present_settings, orders, now)
        or _connection_verdict(planned, present_settings)
        or (None if _overrules_caps(summary) else _cap_verdict(moves, planned, present_settings))
        or _split_verdict(splits, present_settings)
        or _approval_verdict(summary, actions, (planned, present_settings), approval, now)
    )
    detail = number_of(len(moves), "bundle") + (f", {number_of(len(splits), 'split')}" if splits else "")
    return closed or Verdict(Reason.OPEN, detail, moves, splits)


def _order_verdict(
    run: StoragePath, summary: Summary, settings: Settings, orders: OrdersInForce, now: datetime
) -> Verdict | None:
    previous = StateBefore.read(run).decision.plan_id
    closed = all_holds(settings, orders, now, JudgedRun(summary.collected_at, previous))
    return Verdict(*closed[0]) if closed else None


def _validation_verdict(validation: Validation) -> Verdict | None:
    holds = validation.reason_counts(Effect.HOLD)
    return Verdict(Reason.ON_HOLD, ", ".join(holds)) if holds else None


def _age_verdict(now: datetime, deadline: datetime) -> Verdict | None:
    return Verdict(Reason.PLAN_TOO_OLD, f"{(now - deadline).total_seconds():.0f} s too old") if now > deadline else None


def _connection_verdict(planned_settings: Settings, present_settings: Settings) -> Verdict | None:
    if planned_settings.connection == present_settings.connection:
        return None
    return Verdict(Reason.SETTINGS_CHANGED, f"from {planned_settings.connection} to {present_settings.connection}")


def _split_verdict(splits: Sequence[Split], settings: Settings) -> Verdict | None:
    """Return why automatic splits are not allowed now. Manual splits ignore `split_mode`."""
    automatic = [split for split in splits if split.condition]
    if automatic and settings.split_mode is not Mode.AUTO:
        return Verdict(Reason.SPLIT_OBSERVED, f"split_mode is {settings.split_mode}")
    if len(automatic) > settings.max_splits_per_run:
        planned_splits = number_of(len(automatic), "automatic split")
        return Verdict(
            Reason.SETTINGS_CHANGED, f"{planned_splits}, but max_splits_per_run is now {settings.max_splits_per_run}"
        )
    return None


def _approval_verdict(
    summary: Summary, actions: Actions, both_settings: tuple[Settings, Settings], approval: Approval, now: datetime
) -> Verdict | None:
    planned, present = both_settings
    if approval.is_approved or Mode.APPROVE not in (planned.mode, present.mode):
        return None
    minutes = present.max_awaiting_minutes
    rejection = approval.answers.rejection_by_plan(now, minutes).get(actions.identity)
    # A person who requests rejected moves overrules the rejection.
    if rejection is not None and summary.by_hand is None:
        again = f"{rejection.at + timedelta(minutes=minutes):%Y-%m-%d %H:%M %Z}"
        return Verdict(Reason.REJECTED, f"rejected {rejection.by_text}; Airflow asks again after {again}")
    if present.two_people and "" in summary.requested_by:
        return Verdict(Reason.NO_USER)
    bundles = number_of(summary.bundles_taken, "bundle")
    return Verdict(Reason.AWAITING_APPROVAL, f"plan {summary.hash[:16]}, {bundles}")


def _overrules_caps(summary: Summary) -> bool:
    return summary.by_hand is not None and Overrule.CAPS in summary.by_hand.request.overruled_rules


def _cap_verdict(moves: Sequence[Move], planned_settings: Settings, present_settings: Settings) -> Verdict | None:
    if not moves:
        return None
    capped = {
        "max_bundles_per_run": ("the run", len(moves)),
        "max_bundles_per_broker": _most_frequent_name(
            Counter(broker for move in moves for broker in (move.source, move.destination))
        ),
        "max_bundles_per_namespace": _most_frequent_name(Counter(namespace_of(move.bundle) for move in moves)),
        "max_bytes_per_run": ("the run", sum(move.msg_throughput for move in moves)),
    }
    for name, (where, value) in capped.items():
        for settings in (planned_settings, present_settings):
            cap = getattr(settings, name)
            # The last digits of a float sum depend on the order of the moves.
            if cap is not None and not value <= cap * (1 + 1e-9):
                return Verdict(Reason.SETTINGS_CHANGED, f"{value:.12g} for {where}, but {name} is {cap:g}")
    return None


def _most_frequent_name(counts: Counter[str]) -> tuple[str, int]:
    [(where, number)] = counts.most_common(1)
    return where, number


MAX_ROWS = 20
"""Maximum number of moves or splits listed on a page."""


def second_person_refusal(requesters: Collection[str], user_names: Collection[str]) -> PlanError | None:
    """Return why a person may not approve or carry out a plan in a cluster that requires two operators.

    Airflow records a person's id and login name for an answer, but only the login name for a run, so a match
    on either counts.
    """
    if "" in requesters or not any(user_names):
        return PlanError(Reason.NO_USER, "Airflow does not say who requested the plan or who now wants to carry it out")
    same = set(requesters).intersection(user_names)
    return PlanError(Reason.SAME_PERSON, f"{', '.join(same)} requested the plan") if same else None


def require_second_person(settings: Settings, requester: str, user: str, *, asks_second_person: bool) -> None:
    """Refuse to let a person carry out their own request in a cluster that requires two people.

    Args:
        asks_second_person: True if a person is asked about this request in mode `approve`, and may be the second one.

    Raises:
        PlanError: `same_person`, `no_user`.
    """
    requested = [] if asks_second_person and settings.mode is not Mode.AUTO else [requester]
    refusal = second_person_refusal(requested, [user]) if settings.two_people else None
    if refusal is not None:
        raise refusal


class ApprovalRequest(NamedTuple):
    subject: str
    body: str


def approval_request(
    summary: Summary, actions: Actions, run: StoragePath, deadline: datetime, requesters: Collection[str] = ()
) -> ApprovalRequest:
    """Return the plan as Markdown for the person who approves or rejects it. Names are escaped.

    Args:
        deadline: when the plan can no longer be approved.
        requesters: users who requested the plan and therefore may not approve it.
    """
    moves, splits = actions
    counts = zip(_topics_and_clients(run, actions.unloaded_bundles), ("topic", "producer", "consumer"), strict=True)
    disturbed = ", ".join(number_of(count, noun) for count, noun in counts)
    scores = f"{summary.score_min or 0:.1f} to {summary.score_max or 0:.1f} %"
    if summary.predicted_range is not None:
        scores += f", afterwards {summary.predicted_min:.1f} to {summary.predicted_max:.1f} % (predicted)"
    lines = [
        quoted(summary.sentence),
        "",
        f"* plan `{summary.hash[:16]}` of run `{summary.plan_id}`: approve it before {deadline:%Y-%m-%d %H:%M UTC}",
        *(f"* requested by {quoted(user)}, so another person has to approve the plan" for user in sorted(requesters)),
        f"* scores {scores}",
        f"* disturbs {disturbed}",
        *(
            f"* splits {quoted(split.bundle)} permanently {split.cut_text}{_excess_text(split)}"
            for split in splits[:MAX_ROWS]
        ),
        "",
        *(f"* {quoted(move.bundle)}: {quoted(move.source)} to {quoted(move.destination)}" for move in moves[:MAX_ROWS]),
    ]
    more = [
        number_of(len(part) - MAX_ROWS, f"more {name}")
        for name, part in (("move", moves), ("split", splits))
        if len(part) > MAX_ROWS
    ]
    if more:
        lines.append(f"* and {' and '.join(more)}: {quoted(run.uri)}")
    parts = [f"{verb} {number_of(len(part), 'bundle')}" for verb, part in (("move", moves), ("split", splits)) if part]
    return ApprovalRequest(f"{capitalized(' and '.join(parts))} in cluster {summary.cluster}?", "\n".join(lines))


def _excess_text(split: Split) -> str:
    return f" (it has {split.excess_text})" if split.excess_text else ""


def quoted(text: str) -> str:
    """Return text as a Markdown code span. Backticks in the text do not end the span."""
    shown = one_line(text, 500)
    fence = "`" * (max((len(backticks) for backticks in re.findall("`+", shown)), default=0) + 1)
    # The spaces separate a leading or trailing backtick from the fence; Markdown strips them.
    return f"{fence} {shown} {fence}" if shown else ""


def _topics_and_clients(run: StoragePath, bundles: list[str]) -> tuple[int, int, int]:
    clients = Snapshot(run).clients_by_bundle_and_kind(bundles).values()
    topics, producers, consumers = (sum(counts[name] for counts in clients) for name in CLIENT_COLUMNS)
    return topics, producers, consumers
