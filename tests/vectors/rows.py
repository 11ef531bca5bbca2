"""Small clusters by hand, and what holds for the answer of every shedder."""

import json
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import pyarrow as pa

from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.decide.plan_files import move_table
from pulsar_rebalancer.decide.planning import Plan, ProposalSources, decisions_with_bundles, plan, reasons_by_pair
from pulsar_rebalancer.decide.sources import strategy
from pulsar_rebalancer.decide.sources.strategy import StrategyInput
from pulsar_rebalancer.isolation import Policies
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.bundle_columns import SAMPLE_SCHEMA, Bundles
from pulsar_rebalancer.run.tables import DECISIONS, BrokerSample, Measure, broker_samples, table
from pulsar_rebalancer.state import WHOLE_CLUSTER, HitCount, ShedderState, StrategyState
from pulsar_rebalancer.strategies.sample import CandidateMove, ClusterSample, Decision, SheddingResult, hits_after

MIB = 1048576


def broker(name: str, cpu: float, *, bundles: int = 0, rate: float = 0, throughput: float = 0, **more: Any) -> Any:
    row = {"broker": name, "cpu_usage": cpu, "cpu_limit": 100.0, "bundles": bundles, "left_out": None}
    return row | {"msg_rate_in": float(rate), "msg_throughput_in": float(throughput)} | more


def bundle(owner: str, name: str, *, rate: float = 0, throughput: float = 0, **more: Any) -> Any:
    """A row of the bundles table; the rate is inbound, the throughput outbound, both now and as a mean."""
    row = {"broker": owner, "bundle": name, "msg_rate_in": float(rate), "msg_throughput_out": float(throughput)}
    return row | {"msg_rate": float(rate), "msg_throughput": float(throughput)} | more


def brokers_of(given: Iterable[Any]) -> list[BrokerSample]:
    """Rows of brokers as strategies see them; `left_out` is one of their columns."""
    listed = list(given)
    return broker_samples(listed, {r["broker"]: Reason(r["left_out"]) for r in listed if r.get("left_out")})


def bundles_of(given: Iterable[Any]) -> Bundles:
    return Bundles(pa.Table.from_pylist(list(given), schema=SAMPLE_SCHEMA))


def sample(
    brokers: Sequence[Any], bundles: Sequence[Any], settings: Settings | None = None, **more: Any
) -> ClusterSample:
    return ClusterSample(brokers_of(brokers), bundles_of(bundles), settings or Settings(), **more)


def taken(result: SheddingResult) -> list[str]:
    return [move.bundle for move in result.moves if move.is_taken]


def completed(result: SheddingResult) -> list[Decision]:
    """The decisions, as they are when neither placement nor caps keep anything back."""
    going = [move for move in result.moves if move.is_taken]
    return decisions_with_bundles(result.decisions, going, reasons_by_pair(result.moves))


def reasons(result: SheddingResult) -> dict[str, str]:
    return {decision.source: decision.reason for decision in completed(result)}


class Finished(NamedTuple):
    """What becomes of a run of AvgShedder: decisions, moves by pair and rank, new counts by broker."""

    decisions: list[Decision]
    moves: list[CandidateMove]
    hits: Mapping[str, HitCount]


def decided(given: ClusterSample, hits: Mapping[str, HitCount], policies: Policies | None = None) -> Finished:
    state, force = StrategyState(ShedderState(hits=hits)), given.force_threshold
    tables = given.settings, given.brokers, given.bundles
    more: dict[str, Any] = {"force_threshold": force, "judge": given.judge, "may_omit_decisions": given.brief}
    found = decided_by(StrategyInput(*tables, given.counting, state, policies or Policies(), **more))
    decisions = found.full_decisions
    return Finished(decisions, found.moves, hits_after(decisions))


def decided_by(given: StrategyInput) -> Plan:
    """The plan of a run in which nobody but the strategy wants anything."""
    sources = ProposalSources(strategy=lambda arriving: strategy.strategy_proposal(given, arriving))
    return plan(sources, given.settings, given.policies, given.brokers)


def check(given: ClusterSample, result: SheddingResult) -> None:
    """What the interface promises for every answer."""
    decisions = table([asdict(decision) | {"cluster": "c"} for decision in result.decisions], DECISIONS)
    assert [decision_of(row) for row in decisions.to_pylist()] == result.decisions
    moves = move_table("c", result.moves)
    assert [CandidateMove.from_row(row) for row in moves.to_pylist()] == result.moves
    state = StrategyState(result.state)
    broker_hits = {broker: hit for broker, hit in state.shedder.hits.items() if broker != WHOLE_CLUSTER}
    assert StrategyState.parse(broker_hits, json.loads(json.dumps(state.document()))) == state
    assert result.sentence
    judged = [decision for decision in completed(result) if decision.pair is not None]
    assert [decision.pair for decision in judged] == list(range(len(judged)))
    assert all(decision.reason and decision.explanation for decision in judged)
    assert all(decision.source_score is not None for decision in judged)
    named = {name for decision in result.decisions for name in (decision.source, decision.destination)} - {None}
    assert named == {broker.broker for broker in given.brokers}
    fired = {decision.pair: decision.measure for decision in judged if decision.fired}
    assert all((each.measure is None) == (each.target is None) == (not each.fired) for each in judged)
    assert {move.pair: move.measure for move in result.moves}.items() <= fired.items()
    giving = {move.pair for move in result.moves if move.is_taken}
    assert giving == {decision.pair for decision in judged if decision.reason is Reason.FIRED}


def whatever_the_order(shed: Callable[..., SheddingResult], *tables: Sequence[Any]) -> SheddingResult:
    """The answer to these rows, which is the same in any order of them."""
    mixed = [[random.Random(seed).sample(rows, len(rows)) for rows in tables] for seed in range(5)]
    results = [shed(*rows) for rows in mixed]
    assert all(result == results[0] for result in results)
    return results[0]


def decision_of(row: Mapping[str, Any]) -> Decision:
    """What a row of the decisions table says."""
    columns = {name: row[name] for name in DECISIONS.names if name != "cluster"}
    measure = Measure(row["measure"]) if row["measure"] else None
    return Decision(**columns | {"reason": Reason(row["reason"]), "measure": measure})
