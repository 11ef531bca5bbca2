"""Build a cluster's page from its files."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from pulsar_rebalancer.config.clusters_file import ClusterEntry
from pulsar_rebalancer.errors import RebalancerError
from pulsar_rebalancer.orders.roll_document import Phase, Roll
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.findings import explain_validation
from pulsar_rebalancer.show import words
from pulsar_rebalancer.show.measurements import Scores
from pulsar_rebalancer.show.page.brokers import (
    broker_views,
    cluster_hits,
    judged_pairs,
    pair_views,
    pairs_worth_listing,
    shedder_state_of,
)
from pulsar_rebalancer.show.page.bundles import drain_views
from pulsar_rebalancer.show.page.facts import AirflowContext
from pulsar_rebalancer.show.page.page_model import Overview, PlanView, RollView, State, Status, Tone, TurnView, UndoView
from pulsar_rebalancer.show.page.page_plan import make_plan_view, predicted_broker_scores
from pulsar_rebalancer.show.page.recent_runs import (
    Run,
    RunChange,
    known_scores,
    latest_changes,
    latest_runs,
    read_run,
    rounded_or_none,
    run_change,
)
from pulsar_rebalancer.show.page.status import Headline, current_headline, headline_of_run
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer.strategies.shedders.registry import safe_profile_of
from pulsar_rebalancer.texts import capitalized, number_of

_ENDED_ROLL_SHOWN = timedelta(days=1)
"""How long the page shows a rolling restart that has ended."""


def cluster_status(storage: ClusterStorage, entry: ClusterEntry, facts: AirflowContext, now: datetime) -> Status:
    """Return the strip at the top of the page. Raises SnapshotError `storage_failed`."""
    shown, measured, said = _current_runs(storage, entry, facts, now)
    return _make_status(entry, facts, shown, said, now, measured)


def unreadable_status(entry: ClusterEntry, facts: AirflowContext, error: RebalancerError, now: datetime) -> Status:
    said = Headline(State.UNREADABLE, f"{error.message} ({error.reason}). {error.reason.action}".rstrip())
    return _make_status(entry, facts, None, said, now)


def current_overview(storage: ClusterStorage, entry: ClusterEntry, facts: AirflowContext, now: datetime) -> Overview:
    """Return a cluster's page. The arguments and errors are those of `cluster_status`."""
    shown, measured, said = _current_runs(storage, entry, facts, now)
    strip = _make_status(entry, facts, shown, said, now, measured)
    awaiting = _plan_awaiting_approval(storage, entry, facts, shown, now)
    if shown is None:
        return overview_without_run(strip, facts, now).model_copy(update={"awaiting": awaiting})
    latest, moved = latest_changes(storage, now)
    page = _overview_of(storage, shown, strip, facts, now).model_copy(update=_last_change_fields(latest, moved))
    begun = page.plan is not None and page.plan.done > 0
    last = make_plan_view(storage, read_run(latest.folder)) if latest and not begun else None
    return page.model_copy(update={"firing": said.firing_text, "awaiting": awaiting, "last": last})


def overview_without_run(status_strip: Status, facts: AirflowContext, now: datetime) -> Overview:
    """Return a cluster's page if no run can be shown: only orders and their progress."""
    return Overview(status=status_strip, drains=tuple(drain_views(None, facts.drains)), roll=_roll_view(facts, now))


def _current_runs(
    storage: ClusterStorage, entry: ClusterEntry, facts: AirflowContext, now: datetime
) -> tuple[Run | None, Run | None, Headline]:
    """Return the run to show, the run with the latest sample, and the cluster's state.

    The run to show is the one that is moving bundles, else the latest run that has ended.
    """
    begun, ended = latest_runs(storage, now, facts.opened_run_id)
    shown = begun if begun is not None and begun.is_under_way else ended or begun
    return shown, begun or shown, current_headline(entry, facts, begun, ended, now)


def _plan_awaiting_approval(
    storage: ClusterStorage, entry: ClusterEntry, facts: AirflowContext, shown_run: Run | None, now: datetime
) -> PlanView | None:
    """Return the plan awaiting approval; None if there is no such plan, or if the run on the page made it."""
    folder = storage.run_folder(facts.question.plan_id) if facts.answer_deadline(entry.settings, now) else None
    if folder is None or (shown_run is not None and shown_run.folder.name == folder.name):
        return None
    return make_plan_view(storage, read_run(folder))


def run_overview(storage: ClusterStorage, entry: ClusterEntry, folder: StoragePath, now: datetime) -> Overview | None:
    """Return the page as it was at the time of one run; None if the run has no readable request."""
    run = read_run(folder)
    if run is None:
        return None
    settings = run.request.resolved.settings
    # The page of a past run does not say when pairs will fire.
    said = headline_of_run(run, "", (now - run.request.collected_at).total_seconds())
    entry = entry.model_copy(update={"settings": settings})
    in_force = run.request.in_force if run.request.closed else ""
    past = {"in_force": in_force, "tone": said.state.tone, "sentence": said.sentence, "fresh_until": None}
    strip = _make_status(entry, AirflowContext(), run, said, now).model_copy(update=past)
    own = run_change(folder, run.request.collected_at)
    changed = _last_change_fields(latest_changes(storage, now)[0], own.undo_view if own else None)
    return _overview_of(storage, run, strip, AirflowContext(), now).model_copy(update=changed | {"of_one_run": True})


def _make_status(
    entry: ClusterEntry,
    facts: AirflowContext,
    shown_run: Run | None,
    headline: Headline,
    now: datetime,
    measured_run: Run | None = None,
) -> Status:
    scores, predicted = known_scores(shown_run.folder) if shown_run else Scores(), None
    if measured_run is not None and shown_run is not None and shown_run.outcome is not None and shown_run.has_moved:
        # The run's own scores are those before its moves.
        scores = known_scores(measured_run.folder) if measured_run.folder != shown_run.folder else Scores()
        if not scores.compared and shown_run.summary and all(move.ok for move in shown_run.move_outcomes.values()):
            predicted = rounded_or_none(shown_run.summary.predicted_range)
    collected_at = shown_run.request.collected_at if shown_run else None
    fresh_until = collected_at + shown_run.max_data_age(entry.settings) if shown_run and collected_at else None
    old = fresh_until is not None and now > fresh_until and headline.state.tone is Tone.GOOD
    return Status(
        cluster=entry.name,
        mode=entry.settings.mode,
        strategy=entry.settings.strategy,
        pairing=bool(safe_profile_of(entry.settings).thresholds(entry.settings)),
        state=headline.state,
        tone=Tone.IDLE if old else headline.state.tone,
        sentence=f"At {collected_at:%H:%M:%S %Z}: {headline.sentence}" if old else headline.sentence,
        attention=tuple(facts.attention(entry.settings, drain_views(shown_run, facts.drains), now)),
        in_force=facts.orders_text(entry.settings, shown_run, now),
        now=now,
        collected_at=collected_at,
        fresh_until=fresh_until,
        running_since=facts.running_since,
        interval_seconds=entry.settings.interval_seconds,
        next_run_at=facts.next_run_at if facts.scheduled and not (facts.paused or facts.running_since) else None,
        score_range=rounded_or_none(scores.score_range) if predicted is None else predicted,
        predicted=predicted is not None,
    )


def _last_change_fields(change: RunChange | None, undo: UndoView | None) -> dict[str, object]:
    return {"moved": undo, "changed_at": change.ended_at if change else None}


def _overview_of(
    storage: ClusterStorage, run: Run, status_strip: Status, facts: AirflowContext, now: datetime
) -> Overview:
    mean, settings = known_scores(run.folder).mean, run.request.resolved.settings
    pairs = judged_pairs(pair_views(run), facts.drains)
    shown, kept = pairs_worth_listing(pairs), shedder_state_of(run)
    return Overview(
        run_id=run.request.airflow_run_id,
        folder=run.folder.name,
        sampled_at=run.request.collected_at,
        status=status_strip,
        middle=rounded_or_none(mean),
        lines=safe_profile_of(settings).lines(settings, mean),
        brokers=tuple(broker_views(storage, run, predicted_broker_scores(run), pairs, facts.drains, kept)),
        pairs=tuple(shown),
        close_pairs=len(pairs) - len(shown),
        hits=cluster_hits(run, kept),
        plan=_plan_view(storage, run),
        drains=tuple(drain_views(run, facts.drains)),
        roll=_roll_view(facts, now),
        findings=explain_validation(run.validation).reasons if run.validation else (),
        validated=run.validation is not None,
    )


def _roll_view(facts: AirflowContext, now: datetime) -> RollView | None:
    roll = facts.roll
    if roll.stranded not in facts.drains:  # released since the roll ended
        roll = roll.model_copy(update={"stranded": ""})
    if not roll.is_active and (roll.ended_at is None or now - roll.ended_at >= _ENDED_ROLL_SHOWN):
        return None
    stop = words.STOPPED_IN[roll.phase].format(roll.broker) if roll.is_active else ""
    return RollView(text=f"{capitalized(roll.progress)}.", turns=tuple(_turn_views(roll)), stop=stop)


def _turn_views(roll: Roll) -> Iterator[TurnView]:
    for name in roll.order:
        detail = roll.elsewhere.get(name, "")
        if name in roll.done:
            skipped = roll.done[name] is not Reason.ROLLED
            yield TurnView(broker=name, state="skipped" if skipped else "done", detail=detail)
        elif name == roll.broker:
            now = roll.phase is Phase.RESTARTING and roll.may_restart
            left = f"{number_of(roll.left, 'bundle')} to move" if roll.left else ""
            state = "restart now" if now else str(roll.phase)
            yield TurnView(broker=name, state=state, detail=f"waits for {roll.waits}" if roll.waits else left)
        else:
            state = "waiting" if roll.is_active else "still drained" if name == roll.stranded else "not restarted"
            yield TurnView(broker=name, state=state, detail=detail)


def _plan_view(storage: ClusterStorage, run: Run) -> PlanView | None:
    summary = run.summary
    considered = summary and (summary.has_effect or summary.bundle_skip_reasons or summary.splits_told)
    return make_plan_view(storage, run) if considered else None
