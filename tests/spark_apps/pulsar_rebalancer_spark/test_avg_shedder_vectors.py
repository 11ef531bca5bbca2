"""AvgShedder in columns against Pulsar's own answers and test cases: every history is a cluster."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from tests.include.pulsar_rebalancer.strategies.shedders.avg_shedder_cases import CASES
from tests.spark_apps.pulsar_rebalancer_spark.clusters import Cluster, shed_in_columns
from tests.vectors import histories
from tests.vectors.rows import brokers_of

from pulsar_rebalancer.strategies.scoring import score

if TYPE_CHECKING:
    from pulsar_rebalancer.state.state_documents import HitCount


def test_decides_as_pulsars_own_class():
    unfinished = [*histories.read("AvgShedder"), *CASES]
    hits: dict[str, dict[str, HitCount]] = {history.name: {} for history in unfinished}
    checked = 0
    for number in count():
        unfinished = [history for history in unfinished if len(history.steps) > number]
        if not unfinished:
            break
        clusters = [
            Cluster(h.name, h.settings, h.steps[number].brokers, h.steps[number].bundles, hits[h.name])
            for h in unfinished
        ]
        answers = shed_in_columns(clusters)
        for history in unfinished:
            answer, step = answers[history.name], history.steps[number]
            compare(f"{history.name} step {number}", answer, step, history.settings)
            hits[history.name] = _with_the_departed(history, step, hits[history.name], answer)
            assert {n: hit.high for n, hit in hits[history.name].items() if hit.high} == step.expected["high"]
            assert {n: hit.low for n, hit in hits[history.name].items() if hit.low} == step.expected["low"]
            checked += 1
    assert checked == 209


def compare(where, answer, step, settings):
    scores: dict[str, float] = {}
    assert histories.unload_of(answer.moves) == step.expected["unload"], where
    assert {move.bundle: move.destination for move in answer.moves if move.taken} == step.expected["dest"], where
    for pair in answer.decisions:
        scores |= {pair.source: pair.source_score, pair.destination: pair.destination_score}
    brokers = brokers_of(step.brokers)
    expected = step.expected.get("score") or {broker.broker: score(broker, settings) for broker in brokers}
    assert scores == expected, where


def _with_the_departed(history, step, before, answer):
    """Pulsar keeps the counts of brokers that are gone until no pair is above the low threshold."""
    listed = {row["broker"] for row in step.brokers}
    over = any(pair.gap >= history.settings.low_threshold for pair in answer.decisions)
    return {**({n: h for n, h in before.items() if n not in listed} if over else {}), **answer.hits}
