"""The plan of a rolling restart, as shown by a dry run, and its progress as of the latest run."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_rebalancer.config.field_types import Overrule
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.decide.planning import assign_destinations, to_candidates
from pulsar_rebalancer.decide.planning_sample import PlanningSample, SpareCapacity
from pulsar_rebalancer.decide.rolling import REQUIRED_SAMPLES, RollSample, why_roll_waits
from pulsar_rebalancer.decide.sources import requested
from pulsar_rebalancer.decide.sources.drains import NEVER_MOVE_REASONS
from pulsar_rebalancer.decide.sources.filling import recent_arrivals, recent_unloads
from pulsar_rebalancer.decide.sources.returns import parent_by_bundle
from pulsar_rebalancer.errors import PlanError, field_error
from pulsar_rebalancer.names import is_system_bundle
from pulsar_rebalancer.orders.roll_document import BrokerRestart, Phase, Roll, ShownRestarts, ShownRoll
from pulsar_rebalancer.reasons import Reason, Trait, reasons_text
from pulsar_rebalancer.run.outcome import Outcome
from pulsar_rebalancer.run.plan import Summary, candidate_rows
from pulsar_rebalancer.run.snapshot import Snapshot
from pulsar_rebalancer.run.tables import Measure, Row
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer.strategies.sample import amount_text
from pulsar_rebalancer.strategies.scoring import SCORED, score, weighted_usage
from pulsar_rebalancer.texts import number_of


class Removal(NamedTuple):
    """The predicted effect of removing a broker.

    `limit` is the highest score that a remaining broker may reach, in percent; `stay_counts` counts the bundles that
    cannot move.
    """

    bundle_count: int
    limit: float
    stay_counts: Counter[Reason]


def removal_sample(snapshot: Snapshot) -> PlanningSample:
    """Return the input for `predict_removal`, without the grace period, which only slows a drain down."""
    sample = PlanningSample.read(snapshot, {Overrule.GRACE_PERIOD}).without_version_preference()
    # A dry run asks for all brokers' usage at each of their turns.
    brokers = [each._replace(weighted={SCORED: weighted_usage(each, sample.settings)}) for each in sample.brokers]
    return replace(sample, cluster_sample=replace(sample.cluster_sample, brokers=brokers))


def predict_removal(sample: PlanningSample, broker: str) -> Removal:
    """Predict the removal of a broker: its bundles are placed as by a drain; those that never move are ignored.

    Raises PlanError: `unknown_name`, `last_broker`, or why the removal cannot be predicted.
    """
    sample = sample.with_drained_brokers([broker])
    room, ends = SpareCapacity({broker: sample}), Counter[Reason]()
    for wanted in assign_destinations(sample, to_candidates(sample, requested.drain_moves(sample, [broker]))):
        move = room.fit_to_capacity([wanted])[0] if wanted.is_taken else wanted
        if move.is_taken:
            room.record_taken_moves([move])
        if move.reason not in NEVER_MOVE_REASONS:
            ends[move.reason] += 1
    # Callers ask about many brokers, whose bundles together would not fit into memory.
    sample.bundles.forget_broker(broker)
    bundles = ends.total()
    del ends[Reason.TAKEN]
    return Removal(bundles, sample.settings.overloaded_threshold, ends)


_LEFT_OUT_HOST_SAMPLES = 2
"""Number of host samples during which validation leaves out a broker that has just started."""


def roll_preview(snapshot: Snapshot, brokers: Sequence[str], user: str, reason: str) -> ShownRoll:
    """Return the requested roll: the named brokers, or all of them by name, with the leader last.

    Raises SettingsError `unknown_name`, or PlanError `last_broker` if the cluster has only one broker.
    """
    started = snapshot.start_times
    unknown = [name for name in brokers if name not in started]
    if unknown:
        roll_text = f"These are not among the {len(started)} active brokers: {', '.join(unknown)[:500]}."
        raise field_error(Reason.UNKNOWN_NAME, "brokers", roll_text)
    if len(started) < 2:
        raise PlanError(Reason.LAST_BROKER, f"{', '.join(started)} is the cluster's only broker")
    (leader,) = snapshot.read_table("cluster", ["leader"])["leader"].to_pylist()
    order = tuple(brokers) or tuple(sorted(started, key=lambda name: (name == leader, name)))
    known = {name: at.isoformat() if at else "" for name, at in started.items()}
    identity = hashlib.sha256(json.dumps([order, known], sort_keys=True).encode()).hexdigest()
    return ShownRoll(id=identity, order=order, at=snapshot.request.collected_at, by=user, reason=reason)


def predict_restarts(snapshot: Snapshot, brokers: Sequence[str]) -> list[BrokerRestart]:
    settings = snapshot.settings
    known = {broker.broker: broker for broker in snapshot.read_broker_samples({})}
    sample = removal_sample(snapshot)
    result = []
    for name in brokers:
        try:
            fit = predict_removal(sample, name)
        except PlanError as error:
            bundles, why_not = len(sample.bundles.of_broker(name)), error.message
        else:
            bundles, why_not = fit.bundle_count, f"no {_missing_room_text(fit)}" if fit.stay_counts else ""
        runs = 2 * _run_count(bundles, settings) + REQUIRED_SAMPLES
        minutes = runs * settings.interval_seconds / 60 + _LEFT_OUT_HOST_SAMPLES * settings.host_usage_interval_minutes
        broker, silent = known[name], name in snapshot.silent_brokers
        turn = BrokerRestart(
            broker=name,
            score=0.0 if silent else score(broker, settings),
            traffic=broker.traffic(Measure.THROUGHPUT),
            bundles=bundles,
            minutes=minutes,
            why_not=why_not or ("" if broker.started_at else "the broker does not report its start time"),
        )
        result.append(turn)
    return result


def _run_count(bundle_count: int, settings: Settings) -> int:
    """Return the runs in which a broker's bundles move away or back, plus one that sees the result."""
    caps = (settings.max_bundles_per_run, settings.max_bundles_per_broker)
    return math.ceil(bundle_count / min((cap for cap in caps if cap is not None), default=max(bundle_count, 1))) + 1


def why_no_turn(snapshot: Snapshot) -> str:
    """Return why no broker's turn could begin now; empty if one could."""
    return why_roll_waits((), snapshot.start_times, snapshot.quarantined_brokers, ())


def roll_text(shown_restarts: ShownRestarts, reason: str, dag_id: str) -> str:
    """Return a shown roll as human-readable text."""
    lines = [
        f"{number} {turn.broker}: score {turn.score:.1f} %, {amount_text(Measure.THROUGHPUT, turn.traffic)}, "
        f"{number_of(turn.bundles, 'bundle')}, about {turn.minutes:.0f} minutes plus the restart"
        + (f"; not possible now: {turn.why_not}" if turn.why_not else "")
        for number, turn in enumerate(shown_restarts.restarts, 1)
    ]
    lines += [f"The rolling restart would be refused now: {shown_restarts.refused}."] if shown_restarts.refused else []
    lines += [f"First, the rolling restart would wait for {shown_restarts.waits}."] if shown_restarts.waits else []
    bundles_move_twice = f"{number_of(shown_restarts.moves_twice, 'bundle')} move twice: to other brokers and back"
    total = f"About {shown_restarts.minutes:.0f} minutes, not counting the restarts; {bundles_move_twice}."
    how = f"Nothing was done. To start the rolling restart, trigger {dag_id} with plan {shown_restarts.plan}"
    return "\n".join(
        [f"Rolling restart of {number_of(len(shown_restarts.restarts), 'broker')}: {reason}", *lines, total, how]
    )


def roll_sample(snapshot: Snapshot, roll: Roll, drained_brokers: Collection[str]) -> RollSample:
    """Return the state of an active roll as of a run's snapshot. `drained_brokers`: by operators, not by the roll."""
    active, sick, waits = snapshot.start_times, snapshot.quarantined_brokers, roll.phase is Phase.WAITING
    home = _current_bundles(snapshot, roll.broker) if waits else _drained_bundles(snapshot, roll)
    left, stay = _remaining_and_stay_counts(snapshot, roll)
    no_room = ""
    if waits and roll.broker in active and not why_roll_waits(roll.listed, active, sick, drained_brokers):
        known = snapshot.request.collected_at in roll.seen
        no_room = roll.waits if known else _why_no_room(snapshot, roll.broker)
    return RollSample(
        run=snapshot.folder.name,
        sampled_at=snapshot.request.collected_at,
        start_times=active,
        problems=sick,
        drained_brokers=tuple(sorted(drained_brokers)),
        home_bundles=home,
        fixed_bundles=_immovable_bundles(snapshot, roll.broker) if roll.phase is Phase.DRAINING and left == 0 else (),
        bundles_left=left,
        stay_counts=stay,
        outcome_text=_outcome_text(snapshot) if left else "",
        why_no_room=no_room,
    )


def add_arrived_bundles(
    sample: RollSample, storage: ClusterStorage, roll: Roll, owned_bundles: Collection[str]
) -> RollSample:
    """Add `owned_bundles`, as the drained broker itself says, that others owned when it was found empty."""
    found_empty = storage.run_folder(roll.sample)
    before = Snapshot(found_empty).owners(owned_bundles) if found_empty else {}
    arrived = sum(roll.broker not in owners for owners in before.values())
    return sample._replace(bundles_left=max(arrived, sample.bundles_left or 0)) if arrived else sample


def _immovable_bundles(snapshot: Snapshot, broker: str) -> tuple[str, ...]:
    rows = candidate_rows(snapshot.folder)
    return tuple(row["bundle"] for row in rows if row["source"] == broker and row["reason"] in NEVER_MOVE_REASONS)


def _outcome_text(snapshot: Snapshot) -> str:
    previous = ClusterStorage.of_run(snapshot.folder).run_folder(snapshot.state.decision.plan_id)
    outcome = Outcome.read_or_none(snapshot.folder) or (Outcome.read_or_none(previous) if previous else None)
    if outcome is None or outcome.verdict is Reason.NOTHING_TO_DO:
        return ""
    failed = {why: count for why, count in outcome.move_counts.items() if not why.has(Trait.ON_PLANNED_BROKER)}
    return reasons_text(failed) if outcome.verdict is Reason.OPEN else outcome.verdict.meaning.rstrip(".")


def _why_no_room(snapshot: Snapshot, broker: str) -> str:
    try:
        fit = predict_removal(removal_sample(snapshot), broker)
    except PlanError as error:
        return error.message
    return _missing_room_text(fit) if fit.stay_counts else ""


def _missing_room_text(attempt: Removal) -> str:
    stay, total = attempt.stay_counts, number_of(attempt.bundle_count, "bundle")
    bundles, reasons = f"{stay.total()} of {total}", reasons_text(stay)
    return f"room for {bundles} on brokers with scores below {attempt.limit:g} % (reasons: {reasons})"


def _remaining_and_stay_counts(snapshot: Snapshot, roll: Roll) -> tuple[int | None, Mapping[Reason, int]]:
    summary = Summary.read_or_none(snapshot.folder)
    if summary is None or summary.by_hand is not None:
        return None, {}
    if roll.phase is Phase.RETURNING:
        return _returns_and_stay_counts(snapshot, roll) if roll.has_same_phase(snapshot.state.roll) else (None, {})
    drain = summary.drains.get(roll.broker)
    if drain is None or drain.bundles is None or drain.since != roll.turn_at:
        return None, {}
    stay = {reason: count for reason, count in drain.stay.items() if reason not in NEVER_MOVE_REASONS}
    return drain.bundles - (sum(drain.stay.values()) - sum(stay.values())), stay


def _returns_and_stay_counts(snapshot: Snapshot, roll: Roll) -> tuple[int, Mapping[Reason, int]]:
    """Return how many bundles have yet to return; if none of them can, 0 and the number that stay, by reason.

    A bundle can return if the run moves it, if validation leaves out a broker of its move, if no report shows
    it yet, or if its home only seems full because bundles have just arrived there (`filling.unreported_gains`).
    """
    home, recent = set(roll.home), recent_unloads(snapshot)
    unreported = home - snapshot.owners(home).keys()
    parents = _parents_by_part(snapshot, unreported)
    home, unreported = home.union(parents).difference(parents.values()), unreported.difference(parents.values())
    # Their last owners may still report them.
    back = {name for name, last in recent.items() if last.destination == roll.broker and not last.missed(roll.broker)}
    # Pairs of the strategy, whose moves wait, are not negative.
    rows = [row for row in candidate_rows(snapshot.folder) if row["pair"] < 0 and row["bundle"] in home - back]
    unreported -= back
    hiding = snapshot.silent_brokers or set(roll.listed) - snapshot.start_times.keys()
    hidden = unreported if hiding else unreported & recent.keys()
    left_out = snapshot.validation.quarantine_reasons.keys()
    ready = roll.broker in snapshot.start_times and roll.broker not in left_out

    def may_arrive(row: Row) -> bool:
        seems_full = bool(back) and row["reason"] == Reason.WOULD_OVERLOAD
        return bool(row["taken"]) or not ready or row["source"] in left_out or seems_full

    if hidden or any(map(may_arrive, rows)):
        return len(rows) + len(hidden), {}
    stay = Counter(Reason(row["reason"]) for row in rows if row["reason"] not in NEVER_MOVE_REASONS)
    gone = sum(not is_system_bundle(name) for name in unreported)
    return 0, stay + Counter({Reason.UNKNOWN_NAME: gone})


def _parents_by_part(snapshot: Snapshot, bundles: Collection[str]) -> dict[str, str]:
    batches = snapshot.table_batches("bundles", ["bundle"]) if bundles else ()
    return parent_by_bundle((str(name) for batch in batches for name in batch["bundle"].to_pylist()), bundles)


def _current_bundles(snapshot: Snapshot, broker: str) -> tuple[str, ...]:
    """Return a broker's bundles: reported or just received, and not just moved away."""
    owners = {
        name: unload.owner or ("" if unload.missed(unload.destination) else unload.destination)
        for name, unload in recent_unloads(snapshot).items()
    }
    table = snapshot.read_table("bundles", ["broker", "bundle"])
    reported = table.filter(pc.equal(table["broker"], pa.scalar(broker)))["bundle"].to_pylist()
    known = {*map(str, reported), *recent_arrivals(snapshot, broker)}
    return tuple(sorted(name for name in known if owners.get(name, "") in ("", broker)))


def _drained_bundles(snapshot: Snapshot, roll: Roll) -> tuple[str, ...]:
    """Return the bundles that the drain has moved off the current broker, even if no report showed them."""
    unloads, begun = snapshot.state.moves.unloads, ClusterStorage.of_run(snapshot.folder).run_folder(roll.sample)
    gone = {name for name, each in unloads.items() if each.source == roll.broker and each.plan_id > roll.sample}
    owners = Snapshot(begun).owners(gone - {*roll.home}) if begun else {}
    return tuple(name for name in gone if roll.broker in owners.get(name, (roll.broker,)))
