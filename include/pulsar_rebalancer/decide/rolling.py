"""The steps of a rolling restart: one broker at a time is drained, restarts, and gets its bundles back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from pulsar_rebalancer.orders.order import Order
from pulsar_rebalancer.orders.roll_document import Phase, Roll
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.texts import number_of

_LOOK_INTERVAL = timedelta(minutes=1)
"""Interval at which the time of the latest step is stored."""

_MAX_COUNTED_GAP = timedelta(minutes=3)
"""If two steps are further apart, only this much of the time counts as time without progress."""

REQUIRED_SAMPLES = 2
"""Number of samples that must show that a drained broker is empty, or that a restarted broker reports."""


class RollSample(NamedTuple):
    """The state of a roll and its cluster in the latest run.

    Attributes:
        run: name of the run's folder.
        sampled_at: time of the run's sample.
        start_times: start time of each broker's process; None if unknown or without a report.
        problems: why validation leaves brokers out, by broker.
        drained_brokers: brokers drained by operators, not by the roll.
        home_bundles: the current broker's bundles while it waits for its turn; later, those that its drain has moved.
        fixed_bundles: bundles that never leave the current broker, once no others are left on it.
        bundles_left: number of bundles still to leave or return; None if unknown.
        stay_counts: number of bundles that do not leave or do not return, by reason.
        outcome_text: why the last run did not carry out its plan; empty if it did.
        why_no_room: why the other brokers cannot take the current broker's load; empty if they can.
    """

    run: str
    sampled_at: datetime
    start_times: Mapping[str, datetime | None]
    problems: Mapping[str, Reason] = {}
    drained_brokers: tuple[str, ...] = ()
    home_bundles: tuple[str, ...] = ()
    fixed_bundles: tuple[str, ...] = ()
    bundles_left: int | None = None
    stay_counts: Mapping[Reason, int] = {}
    outcome_text: str = ""
    why_no_room: str = ""


class RollFacts(NamedTuple):
    """Input for the next step.

    Attributes:
        max_wait_minutes: time without progress after which the roll stops.
        why_no_sample: why `sample` is None.
        why_held: orders or settings that pause the roll; empty if there are none.
        restart_state: state of the user's own DAG run that restarts the broker; empty before it starts; None if a
            person restarts the broker.
        dag_and_run: name of this DAG and of its run, for messages.
        why_no_restart: why this DAG cannot run now; empty if it can.
        min_gap: samples that are not further apart than this count as one.
    """

    now: datetime
    max_wait_minutes: float
    sample: RollSample | None
    why_no_sample: str = ""
    why_held: str = ""
    stop_order: Order | None = None
    skip_order: Order | None = None
    restart_state: str | None = None
    dag_and_run: str = ""
    why_no_restart: str = ""
    min_gap: timedelta = timedelta(0)


def advance(roll: Roll, facts: RollFacts) -> Roll:
    """Return an active roll after one step; the same document if nothing has changed within a minute.

    The roll stops if a step makes no progress for `facts.max_wait_minutes`; if only returns of bundles are stalled, it
    goes on to the next broker instead. Time without steps, because Airflow was down, or in which orders hold
    the roll does not count.
    """
    new = _take_step(_update_step_time(roll, facts.now), facts)
    return new.model_copy(update={"sample": facts.sample.run}) if facts.sample and not new.has_same_phase(roll) else new


def _take_step(roll: Roll, facts: RollFacts) -> Roll:
    if facts.sample and roll.phase is Phase.DRAINING:
        roll = roll.model_copy(update={"home": tuple(sorted({*roll.home, *facts.sample.home_bundles}))})
    if facts.stop_order is not None:
        return _stopped_roll(roll, facts, Reason.ROLL_STOPPED, facts.stop_order.by_text)
    if facts.skip_order is not None and _may_skip_turn(roll, facts):
        return _skip_turn(roll, facts)
    if facts.why_held:
        roll = roll.model_copy(update={"progress_at": facts.now})
        # A restart that has been asked for or triggered cannot be taken back.
        if roll.phase is not Phase.RESTARTING or facts.restart_state == "":
            return _set_wait_condition(roll, facts.why_held)
    after = (
        _STEP_BY_PHASE[roll.phase](roll, facts, facts.sample)
        if facts.sample
        else _set_wait_condition(roll, facts.why_no_sample)
    )
    if not after.is_active or facts.now - (after.progress_at or facts.now) <= timedelta(minutes=facts.max_wait_minutes):
        return after
    if after.phase is Phase.RETURNING:
        return after.end_turn(after.outcome, facts.now, _missing_bundles_text(after))
    reason = Reason.BROKER_NOT_BACK if after.phase is Phase.RESTARTING else Reason.ROLL_STUCK
    why = f"no progress for {facts.max_wait_minutes:g} minutes while waiting for {after.waits}"
    if reason is Reason.BROKER_NOT_BACK and facts.sample and (renamed := _new_broker_name(after, facts.sample)):
        why = f"{after.broker} may now have the name {renamed}"
    return _stopped_roll(after, facts, reason, why)


def _update_step_time(roll: Roll, now: datetime) -> Roll:
    if roll.looked_at is not None and abs(now - roll.looked_at) < _LOOK_INTERVAL:
        return roll
    changed: dict[str, datetime] = {"looked_at": now}
    down = now - (roll.looked_at or now) - _MAX_COUNTED_GAP
    if roll.progress_at is not None and down > timedelta(0):
        changed["progress_at"] = min(roll.progress_at + down, now)
    return roll.model_copy(update=changed)


def _waiting_step(roll: Roll, facts: RollFacts, sample: RollSample) -> Roll:
    why = _why_no_turn(roll, sample) or facts.why_no_restart
    if why:
        # `roll_plan.roll_sample` does not look for room in the same sample again.
        return roll.model_copy(update={"waits": why, "seen": (sample.sampled_at,) if why == sample.why_no_room else ()})
    begun = roll.model_copy(update={"started": sample.start_times[roll.broker], "home": sample.home_bundles})
    return begun.with_phase(Phase.DRAINING, facts.now, f"a run that drains {roll.broker}")


def _why_no_turn(roll: Roll, sample: RollSample) -> str:
    if sample.run <= roll.sample:
        return "the next run's sample"
    why = why_turn_unsafe(roll, sample)
    if not why and sample.start_times[roll.broker] is None:
        return f"{roll.broker} to report its start time"
    return why or sample.why_no_room


def why_turn_unsafe(roll: Roll, sample: RollSample, *, may_be_down: bool = False) -> str:
    """Return why the current broker's turn must not begin, and it not restart; empty if it is safe.

    All brokers must be known to be well and, once drained, the broker known to be empty. With `may_be_down`,
    the current broker may be restarting, so only the others have to be well.
    """
    rest = [name for name in roll.listed if not (may_be_down and name == roll.broker)]
    sick = {name: why for name, why in sample.problems.items() if not (may_be_down and name == roll.broker)}
    left = roll.left if sample.bundles_left is None else sample.bundles_left
    if (
        (why := why_roll_waits(rest, sample.start_times, sick, sample.drained_brokers))
        or roll.phase is not Phase.RESTARTING
        or left == 0
    ):
        return why
    return f"{number_of(left, 'bundle')} to leave {roll.broker}" if left else f"a run that finds {roll.broker} empty"


def why_roll_waits(
    roll_brokers: Iterable[str], active: Container[str], problems: Mapping[str, Reason], drained_names: Collection[str]
) -> str:
    """Return why no broker may be drained or restart now; empty if one may.

    `roll_brokers` must be among the `active` ones that the cluster lists; operators drained those in
    `drained_names`.
    """
    missing = [name for name in roll_brokers if name not in active]
    if missing:
        return f"{', '.join(missing[:3])} to return to the list of active brokers"
    if problems:
        return "; ".join(f"{name} to recover: {reason}" for name, reason in sorted(problems.items())[:3])
    return f"an operator to release {', '.join(sorted(drained_names)[:3])}" if drained_names else ""


def _drain_step(roll: Roll, facts: RollFacts, sample: RollSample) -> Roll:
    why, roll = why_turn_unsafe(roll, sample), _update_remaining_count(roll, facts, sample, f"to leave {roll.broker}")
    if why or sample.bundles_left:
        return roll.model_copy(update={"seen": (), "waits": why or roll.waits})
    if sample.bundles_left is None:
        return roll
    roll = _add_seen_sample(roll, facts, sample)
    if len(roll.seen) < REQUIRED_SAMPLES:
        return _set_wait_condition(roll, f"a second run that finds {roll.broker} empty")
    # If the broker crashed while it was drained, it has yet to restart.
    home = tuple(name for name in roll.home if name not in sample.fixed_bundles)
    empty = roll.model_copy(update={"started": sample.start_times[roll.broker] or roll.started, "home": home})
    restarting = empty.with_phase(Phase.RESTARTING, facts.now, _restart_wait_text(roll, facts))
    return restarting.model_copy(update={"left": 0, "may_restart": True})


def _add_seen_sample(roll: Roll, facts: RollFacts, sample: RollSample) -> Roll:
    """Add one more sample to `seen`, unless it follows the last one too soon, as that of a manual run may."""
    if roll.seen and abs(sample.sampled_at - roll.seen[-1]) <= facts.min_gap:
        return roll
    return roll.model_copy(update={"seen": (*roll.seen, sample.sampled_at)})


def _restart_step(roll: Roll, facts: RollFacts, sample: RollSample) -> Roll:
    broker, at = roll.broker, sample.start_times.get(roll.broker)
    if facts.restart_state == "failed":
        return _stopped_roll(roll, facts, Reason.RESTART_FAILED, f"{_restart_dag_text(roll, facts)} failed")
    if at is None or not _has_restarted(roll, sample):
        # Operators and the DAG take a while, in which the broker is down.
        why = why_turn_unsafe(roll, sample, may_be_down=facts.restart_state != "")
        known = {"may_restart": not why} | ({} if sample.bundles_left is None else {"left": sample.bundles_left})
        return _set_wait_condition(roll.model_copy(update=known), why or _restart_wait_text(roll, facts))
    roll = roll.model_copy(update={"may_restart": False})
    if at != roll.restarted:
        # A broker that restarts repeatedly reports once from each process, and makes no progress.
        first = {} if roll.restarted else {"progress_at": facts.now}
        roll = roll.model_copy(update={"restarted": at, "seen": ()} | first)
    if broker in sample.problems:
        return _set_wait_condition(roll, f"{broker} to be ready: {sample.problems[broker]}")
    roll = _add_seen_sample(roll, facts, sample)
    if len(roll.seen) < REQUIRED_SAMPLES:
        return _set_wait_condition(roll, f"the second report of {broker} since its restart")
    if facts.restart_state not in (None, "success"):
        return _set_wait_condition(roll, f"the end of {_restart_dag_text(roll, facts)}")
    return roll.with_phase(Phase.RETURNING, facts.now, f"a run that moves bundles back to {roll.broker}")


def _return_step(roll: Roll, facts: RollFacts, sample: RollSample) -> Roll:
    if sample.bundles_left == 0:
        return roll.end_turn(roll.outcome, facts.now, _counts_text(sample.stay_counts))
    return _update_remaining_count(roll, facts, sample, "to return")


_STEP_BY_PHASE: dict[Phase, Callable[[Roll, RollFacts, RollSample], Roll]] = {
    Phase.WAITING: _waiting_step,
    Phase.DRAINING: _drain_step,
    Phase.RESTARTING: _restart_step,
    Phase.RETURNING: _return_step,
}


def _set_wait_condition(roll: Roll, condition: str) -> Roll:
    # `seen` says that `waits` is about room in that sample.
    return roll.model_copy(update={"waits": condition, "seen": () if roll.phase is Phase.WAITING else roll.seen})


def _counts_text(count_by_reason: Mapping[Reason, int]) -> str:
    return ", ".join(f"{why} x{count}" for why, count in count_by_reason.items())


def _update_remaining_count(roll: Roll, facts: RollFacts, sample: RollSample, purpose_text: str) -> Roll:
    """Update the number of remaining bundles; fewer than ever in this phase are progress."""
    left = sample.bundles_left
    if left is None:
        return roll
    causes = "; ".join(
        filter(None, [_counts_text(sample.stay_counts), sample.outcome_text and f"the last run: {sample.outcome_text}"])
    )
    waits = f"{number_of(left, 'bundle')} {purpose_text}" + (f" ({causes})" if causes else "")
    fewer = roll.fewest is None or left < roll.fewest
    progress = {"progress_at": facts.now, "fewest": left} if fewer else {}
    return roll.model_copy(update={"left": left, "waits": waits} | progress)


def _restart_wait_text(roll: Roll, facts: RollFacts) -> str:
    if facts.skip_order is not None:
        end = (
            f"the end of {_restart_dag_text(roll, facts)}"
            if facts.restart_state == "running"
            else f"a report of {roll.broker}"
        )
        return f"{end} before the broker is skipped"
    if facts.restart_state is None:
        return f"a person: restart {roll.broker} now"
    return facts.why_no_restart or _restart_dag_text(roll, facts)


def _restart_dag_text(roll: Roll, facts: RollFacts) -> str:
    return f"the DAG that restarts {roll.broker}" + (f" ({facts.dag_and_run})" if facts.dag_and_run else "")


def _has_restarted(roll: Roll, sample: RollSample | None) -> bool:
    at = sample.start_times.get(roll.broker) if sample else None
    return at is not None and at != roll.started


def _may_skip_turn(roll: Roll, facts: RollFacts) -> bool:
    """Return whether the current broker's turn can end now.

    A broker that restarts is released only if it is up and nothing is about to restart it, so the order to
    skip waits for a sample, the broker's report and the end of the DAG that restarts it.
    """
    if roll.phase is not Phase.RESTARTING:
        return True
    has_ended, sample = facts.restart_state != "running", facts.sample
    return has_ended and sample is not None and (roll.broker not in sample.start_times or _is_broker_up(roll, sample))


def _skip_turn(roll: Roll, facts: RollFacts) -> Roll:
    up = roll.phase is Phase.RESTARTING and facts.sample is not None and _is_broker_up(roll, facts.sample)
    if up or roll.phase is Phase.DRAINING:
        skipped = roll.model_copy(update={"outcome": Reason.ROLL_STOPPED})
        return skipped.with_phase(Phase.RETURNING, facts.now, f"a run that moves bundles back to {roll.broker}")
    if roll.phase is Phase.RETURNING:
        return roll.end_turn(roll.outcome, facts.now, _missing_bundles_text(roll))
    return roll.end_turn(Reason.ROLL_STOPPED, facts.now, "the broker is down" if roll.phase is Phase.RESTARTING else "")


def _missing_bundles_text(roll: Roll) -> str:
    return "no run has tried to return bundles" if roll.left is None else number_of(roll.left, "bundle")


def _is_broker_up(roll: Roll, sample: RollSample) -> bool:
    return sample.start_times.get(roll.broker) is not None


def _stopped_roll(roll: Roll, facts: RollFacts, reason: Reason, detail: str) -> Roll:
    """Return the stopped roll. A broker that is to restart stays drained until it has restarted."""
    restarts = roll.phase is Phase.RESTARTING and facts.restart_state == "running"
    if restarts:
        detail = f"{detail}; {_restart_dag_text(roll, facts)} is still running: end it before you release {roll.broker}"
    ready = _has_restarted(roll, facts.sample) and facts.sample is not None and roll.broker not in facts.sample.problems
    stranded = restarts or (roll.phase is Phase.RESTARTING and not ready)
    stopped = roll.stopped_roll(reason, detail, facts.now, is_stranded=stranded)
    apart = _why_bundles_elsewhere(roll, reason)
    return stopped.model_copy(update={"elsewhere": roll.elsewhere | {roll.broker: apart}}) if apart else stopped


def _why_bundles_elsewhere(roll: Roll, reason: Reason) -> str:
    if roll.phase is Phase.RETURNING:
        return _missing_bundles_text(roll)
    if roll.phase is Phase.RESTARTING:
        return "the broker was drained" if roll.home else ""
    # An order may stop the roll while a run carries out the first moves, which `bundles_left` does not know yet.
    gone = reason is Reason.ROLL_STOPPED or roll.left is None or roll.left < len(roll.home)
    return "the broker was being drained" if roll.phase is Phase.DRAINING and roll.home and gone else ""


def _new_broker_name(roll: Roll, sample: RollSample) -> str:
    host = roll.broker.rpartition(":")[0]
    new = (name for name in sample.start_times if name not in roll.listed and name.rpartition(":")[0] == host)
    return "" if roll.broker in sample.start_times else next(new, "")
