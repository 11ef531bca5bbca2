"""The plans of the *decide* task and of manual plans: who is asked, and what is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace

from pulsar_rebalancer.config.field_types import Action, Overrule
from pulsar_rebalancer.decide import plan_files
from pulsar_rebalancer.decide.planning import Arriving, Plan, Sources, plan
from pulsar_rebalancer.decide.planning_sample import PlanningSample, SpareCapacity
from pulsar_rebalancer.decide.run_input import RunInput
from pulsar_rebalancer.decide.run_lesson import RunLesson
from pulsar_rebalancer.decide.sources import approved, filling, requested, returns, strategy
from pulsar_rebalancer.decide.sources.drains import drains
from pulsar_rebalancer.decide.sources.wanted import Wanted, candidates_of, placed
from pulsar_rebalancer.errors import PlanError
from pulsar_rebalancer.orders.roll_document import Phase
from pulsar_rebalancer.reasons import Reason, counted
from pulsar_rebalancer.run.bundle_columns import Bundles
from pulsar_rebalancer.run.plan import Summary
from pulsar_rebalancer.run.request import ByHand, HandRequest
from pulsar_rebalancer.run.snapshot import Candidates, Snapshot
from pulsar_rebalancer.run.tables import Row
from pulsar_rebalancer.state.state_documents import CountedSample
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer.strategies.caps import CapacityCheck
from pulsar_rebalancer.strategies.learning import Lesson
from pulsar_rebalancer.strategies.sample import CandidateMove, Judge
from pulsar_rebalancer.strategies.scoring import scores_after
from pulsar_rebalancer.strategies.shedders.registry import force_threshold
from pulsar_rebalancer.texts import capitalized, number_of


def plan_run(run: RunInput, bundles: Bundles, learned: RunLesson | None = None, judge: Judge | None = None) -> Plan:
    """Return the plan of a run that decides by itself. Raises PlanError `bad_result` (see `planning.plan`)."""
    request = run.request
    given = strategy.StrategyInput(
        settings=run.settings,
        brokers=run.brokers,
        bundles=bundles,
        counting=run.counting,
        state=run.strategy_state,
        policies=run.policies,
        forced=request.forced,
        force_threshold=force_threshold(request),
        unloaded_brokers=run.unloaded_brokers,
        lesson=learned.lesson if learned else Lesson(),
        seed=run.folder.name,
        judge=judge,
    )
    return plan_with(run, lambda arriving: strategy.wanted(given, arriving))


def plan_with(run: RunInput, chosen: Callable[[Arriving], Wanted]) -> Plan:
    """Return the plan of a run whose strategy is given, with its drains, rolling restart and new brokers."""
    roll = run.before.roll

    def otherwise() -> Wanted | None:
        if roll is not None:
            returning = roll.home and roll.phase is Phase.RETURNING
            return returns.bring_back(run, roll.home, roll.broker, roll.sample) if returning else None
        return filling.fill_new(run) if run.settings.fill_new_brokers and run.counting.counts else None

    sources = Sources(
        drains=drains(run) if run.before.drains.brokers else None,
        strategy=chosen,
        rolling=capitalized(roll.progress) if roll else "",
        otherwise=otherwise,
    )
    return plan(sources, run.settings, run.policies, run.brokers)


def plan_request(storage: ClusterStorage, run: StoragePath, request: HandRequest, by: str) -> Summary:
    """Make and write the plan that a person requested through a form, for a run with a validated snapshot.

    Raises PlanError: `unknown_name`, `would_overload`, or why a broker is left out.
    """
    draining = request.broker if request.action is Action.DRAIN else ()
    sample = PlanningSample.read(Snapshot(run), request.overruled).draining(draining)
    record = ByHand(by=by, request=request)
    if request.action is Action.SPLIT:
        row = requested.split(sample, request, Candidates.find(run) or Candidates())
        return _by_hand(sample, requested.wanted(sample, (), record, [row]), record, splits=[row])
    moves = placed(sample, candidates_of(sample, requested.moves_of(sample, storage, request)))
    wanted = requested.wanted(sample, moves, record)
    if not draining:
        return _by_hand(sample, wanted, record)
    # A drain is shown as its runs will decide it.
    samples, overruled = dict.fromkeys(draining, sample), dict.fromkeys(draining, request.overrule)
    return _by_hand(sample, wanted, record, room=lambda: SpareCapacity(samples, overruled))


def plan_again(storage: ClusterStorage, run: StoragePath) -> Summary:
    """Check an earlier plan against a new snapshot, and write the plan of the run that carries it out.

    An approved plan is carried out as a whole or refused; of any other, the moves that are still valid.

    Raises:
        PlanError: `other_plan`, `plan_changed`, `plan_expired`, `not_whole` or
            `would_overload`.
    """
    earlier = approved.read(storage, Snapshot(run))
    moves, room = approved.wanted(earlier)
    # A split that no longer fits is noticed later, from the bundle's bounds, before any request is sent.
    wanted = requested.wanted(earlier.sample, moves, earlier.record, earlier.splits)
    return _by_hand(
        earlier.sample,
        wanted,
        earlier.record,
        splits=earlier.splits,
        room=room,
        whole=earlier.approved,
        restarts=earlier.restarts,
    )


def _by_hand(
    sample: PlanningSample,
    wanted: Wanted,
    record: ByHand,
    *,
    splits: Sequence[Row] = (),
    room: Callable[[], CapacityCheck] | None = None,
    whole: bool = False,
    restarts: Mapping[str, CountedSample] | None = None,
) -> Summary:
    """Make and write a plan that no strategy decided. Raises PlanError: `would_overload` or `not_whole`."""
    made = plan(Sources(requested=replace(wanted, room=room)), sample.settings, sample.policies, sample.brokers)
    if whole:
        _refuse_parts(made.moves)
    after = scores_after(sample.scores, made.taken, sample.traffic)
    if record.request.action and room is None:  # an approved plan of a strategy is checked as in mode `auto`
        _check_load(sample, after, record.request.overruled)
    return plan_files.write_by_hand(sample, made, record, after, splits, restarts or {})


def _refuse_parts(moves: Iterable[CandidateMove]) -> None:
    lost = [move for move in moves if not move.taken and move.reason is not Reason.SAME_BROKER]
    if lost:
        why = counted(Counter(move.reason for move in lost))
        named = ", ".join(move.bundle for move in lost[:10])
        raise PlanError(Reason.NOT_WHOLE, f"{number_of(len(lost), 'bundle')} would stay ({why}): {named}")


def _check_load(sample: PlanningSample, after: Mapping[str, float], overruled: Container[Overrule]) -> None:
    limit = sample.settings.overloaded_threshold
    over = {name: score for name, score in after.items() if score > max(limit, sample.scores[name])}
    if over and Overrule.OVERLOAD not in overruled:
        named = ", ".join(f"{name} {sample.scores[name]:.1f} to {over[name]:.1f}" for name in sorted(over)[:10])
        raise PlanError(Reason.WOULD_OVERLOAD, f"predicted scores above {limit:g} percent: {named}")
