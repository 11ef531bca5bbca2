"""The plans of *decide* and of manual plans: who is asked, what is written, and what a strategy learned before."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_rebalancer.config.field_types import Action, Overrule
from pulsar_rebalancer.decide import plan_files, planning
from pulsar_rebalancer.decide.planning import ArrivingTraffic, Plan, Proposal, assign_destinations, to_candidates
from pulsar_rebalancer.decide.planning_sample import PlanningSample, SpareCapacity
from pulsar_rebalancer.decide.run_input import RunInput
from pulsar_rebalancer.decide.sources import approved, filling, requested, returns, strategy
from pulsar_rebalancer.decide.sources.drains import drain_proposal
from pulsar_rebalancer.errors import PlanError
from pulsar_rebalancer.orders.roll_document import Phase
from pulsar_rebalancer.reasons import Reason, reasons_text
from pulsar_rebalancer.run.bundle_columns import Bundles
from pulsar_rebalancer.run.plan import Summary
from pulsar_rebalancer.run.request import ManualPlanRecord, PlanRequest
from pulsar_rebalancer.run.snapshot import Snapshot, SplitCandidates
from pulsar_rebalancer.run.tables import BUNDLE_COSTS, BUNDLES, COSTS, NO_COSTS, NO_LOADS, RATES, Cell, Row
from pulsar_rebalancer.state import HitSample, LearnedValues
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer.strategies import learning
from pulsar_rebalancer.strategies.caps import CapacityCheck
from pulsar_rebalancer.strategies.learning import BundleCosts, BundleSums, CostCorrection, LearningResult
from pulsar_rebalancer.strategies.sample import CandidateMove, Judge, RecentMove
from pulsar_rebalancer.strategies.scoring import UNIT_DIVISORS, measure_of, predict_scores
from pulsar_rebalancer.strategies.shedders.registry import force_threshold
from pulsar_rebalancer.texts import capitalized, number_of

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]


_KNOWN_COSTS_SCHEMA = pa.schema([BUNDLE_COSTS.field("bundle"), *(pa.field(name, pa.float64()) for name in COSTS)])


class RunLearning(NamedTuple):
    """The lesson of a run's sample, and what is known about bundles after it: `BUNDLE_COSTS` and `NO_LOADS`."""

    learning_result: LearningResult = LearningResult()
    bundle_costs: pa.Table = NO_COSTS
    bundle_loads: pa.Table = NO_LOADS

    def write_costs(self, run: RunInput) -> None:
        if self.bundle_costs and run.hit_rules.counts and not run.new_costs_file.exists():
            run.new_costs_file.write_table(self.bundle_costs)


def learn_from_run(run: RunInput) -> RunLearning:
    """Return the values known after the run's sample; empty if the strategy does not learn.

    A bundle belongs to the first broker by name that reports it or, if it moved a few minutes ago, to its
    destination. Missing and quarantined values are ignored. What is known about brokers and bundles without a
    report is kept.
    """
    before, counts = run.learned_values, run.hit_rules.counts
    if before is None:
        return RunLearning()
    minutes = _minutes_since_sample(run)
    measure, recent = measure_of(before.bottleneck), run.recent_move_by_bundle
    gone = run.state.moves.splits
    late = {name: move for name, move in recent.items() if move.minutes < learning.LAG_MINUTES and name not in gone}
    reported, missing = _rates_at_destinations(_reported_rates(run, (f"{measure}_in", f"{measure}_out")), late)
    brokers, names = reported["broker"], reported["bundle"]
    stored = _stored_costs(run, before)
    known = _costs_of_bundles(run, stored, names)
    refused = pc.is_in(names, pa.array([*run.validation.quarantine_reasons, *missing], pa.string())).to_numpy()
    inward, outward = (np.nan_to_num(reported[f"{measure}_{way}"].to_numpy()) for way in ("in", "out"))
    rate = np.where(refused, known.quick_rate, (inward + outward) / UNIT_DIVISORS[measure])
    after, change = known.with_sample(rate, minutes, is_counted=counts)
    after = BundleCosts(*(np.where(refused, *columns) for columns in zip(known, after, strict=True)))
    *of_sample, lasted, deviation = after.summands(rate, change := np.where(refused, 0.0, change))
    result = LearningResult(before, _sums_by_broker(brokers, [*of_sample, lasted * ~refused, deviation * ~refused]))
    # A run that does not count decides by what was learned before it or, if nothing was, by its own sample.
    if counts or not before.samples:
        result = learning.learn(before, run.brokers, result.sums, recent.values(), run.settings, minutes)
        after = after.with_correction(change, *_corrections_by_bundle(brokers, result.correction_by_broker))
    columns = [pa.array(column.astype(np.float32), from_pandas=True) for column in after]
    costs = pa.table([names, *columns], schema=BUNDLE_COSTS)
    # A new bundle whose values were refused remains unknown.
    costs = costs.filter(pc.is_valid(costs["quick_rate"]))
    if run.silent_brokers:
        unreported = stored.filter(pc.invert(pc.is_in(stored["bundle"], names)))
        costs = pa.concat_tables([costs, unreported.cast(BUNDLE_COSTS)])
    loads = pa.array(after.expected_loads(result.learned.persistence), from_pandas=True)
    return RunLearning(result, costs, pa.table([names, loads], schema=NO_LOADS.schema))


def _minutes_since_sample(run: RunInput) -> float:
    """Return the minutes since the last counted sample, at least the interval."""
    last = run.state.decision.counted_at
    since = (run.request.collected_at - last).total_seconds() if last else 0.0
    return max(since, run.settings.interval_seconds) / 60


def _sums_by_broker(brokers: pa.ChunkedArray[Any], summands: Iterable[Floats]) -> dict[str, BundleSums]:
    """Return each broker's sums of whole numbers, so that the order of bundles does not affect the plan's hash."""
    values = {name: np.nan_to_num(value) for name, value in zip(BundleSums._fields, summands, strict=True)}
    units = {name: _rounding_unit(value) for name, value in values.items()}
    whole: Any = [np.rint(value / units[name]).astype(np.int64) for name, value in values.items()]
    added = pa.table([brokers, *whole], names=["broker", *values]).group_by("broker")
    rows = added.aggregate([(name, "sum") for name in values]).to_pylist()
    return {row["broker"]: BundleSums(*(row[f"{name}_sum"] * units[name] for name in values)) for row in rows}


def _rounding_unit(values: Floats) -> float:
    """Return a power of 2 of which each value is at most 2^40, so that a million of them add up in 64 bits."""
    return math.ldexp(1.0, math.frexp(float(np.abs(values).max(initial=0.0)))[1] - 40)


def _corrections_by_bundle(brokers: pa.ChunkedArray[Any], corrections: Mapping[str, CostCorrection]) -> Floats:
    at: Any = pc.index_in(brokers, pa.array(list(corrections), pa.string()))
    of_brokers = np.array([*corrections.values(), CostCorrection()])
    of_bundles: Floats = of_brokers[pc.fill_null(at, len(corrections)).to_numpy()]
    return of_bundles.T


def _reported_rates(run: RunInput, rate_names: tuple[str, str]) -> pa.Table:
    columns = ["broker", "bundle", *rate_names]
    parts = [pa.schema([BUNDLES.field(name) for name in (*columns, "owners")]).empty_table()]
    for rows in run.table_batches("bundles", ["cluster", *columns, "owners"]):
        parts.append(rows.filter(pc.equal(rows["cluster"], pa.scalar(run.cluster))).select(parts[0].column_names))
    reported = pa.concat_tables(parts).combine_chunks()
    if not run.may_repeat_bundles:
        return reported
    shared = pa.array(reported["owners"].to_numpy() > 1)
    chosen: Any = [("broker", "min"), *((name, "max") for name in rate_names)]
    several = reported.filter(shared).group_by("bundle").aggregate(chosen)
    several = several.select(["broker_min", "bundle", *(f"{name}_max" for name in rate_names)]).rename_columns(columns)
    return pa.concat_tables([reported.filter(pc.invert(shared)).select(columns), several])


def _rates_at_destinations(rates: pa.Table, late_moves: Mapping[str, RecentMove]) -> tuple[pa.Table, list[str]]:
    """Move late bundles' rows to their destinations, and return the bundles whose rows were missing."""
    if not late_moves:
        return rates, []
    at: Any = pc.index_in(rates["bundle"], pa.array(list(late_moves), pa.string()))
    sources = pa.array([move.source for move in late_moves.values()], pa.string()).take(at)
    destinations = pa.array([move.destination for move in late_moves.values()], pa.string()).take(at)
    from_source: Any = pc.equal(rates["broker"], sources)
    brokers: Any = pc.if_else(pc.fill_null(from_source, False), destinations, rates["broker"])
    found = set(at.unique().to_pylist())
    missing = [name for number, name in enumerate(late_moves) if number not in found]
    rows = [{"broker": late_moves[name].destination, "bundle": name} for name in missing]
    moved_rows = rates.set_column(0, rates.schema.field(0), brokers)
    return pa.concat_tables([moved_rows, pa.Table.from_pylist(rows, schema=rates.schema)]), missing


def _stored_costs(run: RunInput, learned: LearnedValues) -> pa.Table:
    """Return the costs after the last counted sample; empty if the bottleneck has changed since."""
    if learned.samples and run.known_costs_file:
        return run.known_costs_file.read_table(_KNOWN_COSTS_SCHEMA.names).cast(_KNOWN_COSTS_SCHEMA)
    return _KNOWN_COSTS_SCHEMA.empty_table()  # not when the module is loaded: it loads pandas, and every DAG file would


def _costs_of_bundles(run: RunInput, stored_costs: pa.Table, bundles: pa.ChunkedArray[Any]) -> BundleCosts:
    if parts := run.parts_of_split_bundles:
        # Of several rows, the first is found: that of a part with costs of its own.
        stored_costs = pa.concat_tables([stored_costs, _part_costs(stored_costs, parts)])
    at: Any = pc.index_in(bundles, stored_costs["bundle"].combine_chunks())
    return BundleCosts(*(stored_costs[name].combine_chunks().take(at).to_numpy() for name in COSTS))


def _part_costs(costs: pa.Table, parts: Sequence[dict[str, Cell]]) -> pa.Table:
    split = costs.filter(pc.is_in(costs["bundle"], pa.array([part["bundle"] for part in parts], pa.string())))
    of_split = {row["bundle"]: row for row in split.to_pylist()}
    rows = []
    for part in parts:
        if row := of_split.get(part["bundle"]):
            shared = {name: None if row[name] is None else row[name] * part["share"] for name in RATES}
            rows.append(row | shared | {"bundle": part["part"]})
    return pa.Table.from_pylist(rows, schema=_KNOWN_COSTS_SCHEMA)


def plan_run(run: RunInput, bundles: Bundles, learned: RunLearning | None = None, judge: Judge | None = None) -> Plan:
    """Return the plan of a run that decides by itself. Raises PlanError `bad_result` (see `planning.plan`)."""
    request = run.request
    given = strategy.StrategyInput(
        settings=run.settings,
        brokers=run.brokers,
        bundles=bundles,
        hit_rules=run.hit_rules,
        strategy_state=run.strategy_state,
        policies=run.policies,
        is_forced=request.is_forced,
        force_threshold=force_threshold(request),
        seconds_since_unload=run.seconds_since_unload,
        learning=learned.learning_result if learned else LearningResult(),
        seed=run.folder.name,
        judge=judge,
    )
    return plan_with_strategy(run, lambda traffic: strategy.strategy_proposal(given, traffic))


def plan_with_strategy(run: RunInput, propose: Callable[[ArrivingTraffic], Proposal]) -> Plan:
    """Return the plan of a run whose strategy is given, with its drains, rolling restart and new brokers."""
    roll = run.state.roll

    def fallback() -> Proposal | None:
        if roll is not None:
            returning = roll.home and roll.phase is Phase.RETURNING
            return returns.return_proposal(run, roll.home, roll.broker, roll.sample) if returning else None
        return filling.new_broker_proposal(run) if run.settings.fill_new_brokers and run.hit_rules.counts else None

    sources = planning.ProposalSources(
        drains=drain_proposal(run) if run.state.drains.brokers else None,
        strategy=propose,
        roll_text=capitalized(roll.progress) if roll else "",
        fallback=fallback,
    )
    return planning.plan(sources, run.settings, run.policies, run.brokers)


def plan_request(storage: ClusterStorage, run: StoragePath, request: PlanRequest, user: str) -> Summary:
    """Make and write the plan that a person requested through a form, for a run with a validated snapshot.

    Raises PlanError: `unknown_name`, `would_overload`, or why a broker is left out.
    """
    draining = request.broker if request.action is Action.DRAIN else ()
    sample = PlanningSample.read(Snapshot(run), request.overruled_rules).with_drained_brokers(draining)
    record = ManualPlanRecord(by=user, request=request)
    if request.action is Action.SPLIT:
        row = requested.split_row(sample, request, SplitCandidates.read_if_exists(run) or SplitCandidates())
        return _write_manual_plan(sample, requested.requested_proposal(sample, (), record, [row]), record, splits=[row])
    moves = assign_destinations(sample, to_candidates(sample, requested.requested_moves(sample, storage, request)))
    wanted = requested.requested_proposal(sample, moves, record)
    if not draining:
        return _write_manual_plan(sample, wanted, record)
    # A drain is shown as its runs will decide it.
    samples, overruled = dict.fromkeys(draining, sample), dict.fromkeys(draining, request.overrule)
    return _write_manual_plan(sample, wanted, record, make_capacity=lambda: SpareCapacity(samples, overruled))


def replan(storage: ClusterStorage, run: StoragePath) -> Summary:
    """Check an earlier plan against a new snapshot, and write the plan of the run that carries it out.

    An approved plan is carried out as a whole or refused; of any other, the moves that are still valid.

    Raises:
        PlanError: `other_plan`, `plan_changed`, `plan_expired`, `not_whole` or
            `would_overload`.
    """
    earlier = approved.read_earlier_plan(storage, Snapshot(run))
    moves, room = approved.moves_and_room_check(earlier)
    # A split that no longer fits is noticed later, from the bundle's bounds, before any request is sent.
    wanted = requested.requested_proposal(earlier.sample, moves, earlier.manual_plan, earlier.split_rows)
    return _write_manual_plan(
        earlier.sample,
        wanted,
        earlier.manual_plan,
        splits=earlier.split_rows,
        make_capacity=room,
        all_or_none=earlier.is_approved,
        restarts=earlier.restart_samples,
    )


def _write_manual_plan(
    sample: PlanningSample,
    proposal: Proposal,
    record: ManualPlanRecord,
    *,
    splits: Sequence[Row] = (),
    make_capacity: Callable[[], CapacityCheck] | None = None,
    all_or_none: bool = False,
    restarts: Mapping[str, HitSample] | None = None,
) -> Summary:
    """Make and write a plan that no strategy decided. Raises PlanError: `would_overload` or `not_whole`."""
    sources = planning.ProposalSources(requested=replace(proposal, new_check=make_capacity))
    new_plan = planning.plan(sources, sample.settings, sample.policies, sample.brokers)
    if all_or_none:
        _require_all_moves(new_plan.moves)
    after = predict_scores(sample.broker_scores, new_plan.taken_moves, sample.broker_traffic)
    if record.request.action and make_capacity is None:  # an approved plan of a strategy is checked as in mode `auto`
        _check_load(sample, after, record.request.overruled_rules)
    return plan_files.write_manual_plan(sample, new_plan, record, after, splits, restarts or {})


def _require_all_moves(moves: Iterable[CandidateMove]) -> None:
    lost = [move for move in moves if not move.is_taken and move.reason is not Reason.SAME_BROKER]
    if lost:
        why = reasons_text(Counter(move.reason for move in lost))
        named = ", ".join(move.bundle for move in lost[:10])
        raise PlanError(Reason.NOT_WHOLE, f"{number_of(len(lost), 'bundle')} would stay ({why}): {named}")


def _check_load(sample: PlanningSample, predicted_scores: Mapping[str, float], overruled: Container[Overrule]) -> None:
    limit, now = sample.settings.overloaded_threshold, sample.broker_scores
    over = {name: score for name, score in predicted_scores.items() if score > max(limit, now[name])}
    if over and Overrule.OVERLOAD not in overruled:
        scores = ", ".join(f"{name} {over[name]:.1f} (now {now[name]:.1f})" for name in sorted(over)[:10])
        raise PlanError(Reason.WOULD_OVERLOAD, f"predicted scores above {limit:g} %: {scores}")
