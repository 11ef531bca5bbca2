"""AvgShedder: means of all bundles by Spark; pairs, and the walk over the bundles of those that fire, on the driver.

The specification itself scores and pairs the brokers, counts their hits, asks policies, and caps what is taken. The
bundles of the sources are columns on the driver: they are read while Spark's session begins, get their means from the
file that Spark writes, and never are rows of Python. Executors need no Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsar_rebalancer.run.bundle_columns import COLUMNS, Bundles
from pulsar_rebalancer.run.tables import MOVES
from pulsar_rebalancer.strategies import waves
from pulsar_rebalancer.strategies.fitting import force_threshold
from pulsar_rebalancer.strategies.kept import KeptState, ShedderState
from pulsar_rebalancer.strategies.sample import ClusterSample
from pulsar_rebalancer.strategies.shedders.avg_shedder import shed
from pulsar_rebalancer_spark import bundles, policies, selection, source_bundles
from pulsar_rebalancer_spark.strategy import Decided

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from pulsar_rebalancer.config.settings import Settings
    from pulsar_rebalancer.run.tables import BrokerSample
    from pulsar_rebalancer.state.counting import Counting
    from pulsar_rebalancer.state.state_documents import HitCount
    from pulsar_rebalancer.strategies.sample import Decision
    from pulsar_rebalancer_spark.run_input import RunInput


def decide(
    run: RunInput, brokers: Sequence[BrokerSample], held: Callable[[], DataFrame], kept: Callable[[], None]
) -> Decided:
    """Score, pair, count, select and cap (`strategy.Decide`)."""
    decisions = judged(brokers, run.settings, run.counting, run.decision.hits, force_threshold(run.request))
    moves = _moves(run, brokers, [each for each in decisions if each.target is not None], held, kept)
    (run.folder / "plan" / "moves.parquet").write_table(moves)
    by_name = {broker.broker: broker for broker in brokers}
    traffic = {each.source: by_name[each.source].traffic(each.measure) for each in decisions if each.measure}
    return Decided(decisions, traffic, KeptState(), _sentence(decisions, run), {})


def _moves(
    run: RunInput,
    brokers: Sequence[BrokerSample],
    giving: Sequence[Decision],
    held: Callable[[], DataFrame],
    kept: Callable[[], None],
) -> pa.Table:
    if not giving:
        return MOVES.empty_table()
    found, served = source_bundles.read(run, [pair.source for pair in giving])
    forbidden = policies.forbidden(run.context, brokers, served, giving)
    found = source_bundles.with_reason(found, run.settings, run.bundles_passed_over, forbidden)
    with bundles.means_of_sample(run, held, kept) as means:
        found = source_bundles.with_means(found, run.cluster, means)
    walked = selection.select(run.cluster, giving, found, run.settings.min_bundle_share)
    return selection.cap(walked, run.settings, run.policies.groups, by_range=waves.needed(brokers))


def judged(
    brokers: Sequence[BrokerSample],
    settings: Settings,
    counting: Counting,
    hits: Mapping[str, HitCount],
    force_threshold: float | None = None,
) -> list[Decision]:
    """Return what the specification decides on brokers and pairs, which does not depend on their bundles.

    Args:
        brokers: all that the cluster lists.
        settings: effective settings.
        counting: how the sample counts.
        hits: by broker, before this sample.
        force_threshold: gap in points from which a forced run acts; None for any other run.
    """
    without_bundles = Bundles(COLUMNS.empty_table())
    sample = ClusterSample(brokers, without_bundles, settings, counting=counting, force_threshold=force_threshold)
    return shed(sample, ShedderState(hits=hits)).decisions


def _sentence(decisions: Sequence[Decision], run: RunInput) -> str:
    pairs = [pair for pair in decisions if pair.gap is not None and pair.source != pair.destination]
    settings = run.settings
    over = sum(pair.gap is not None and pair.gap >= settings.low_threshold for pair in pairs)
    low = max((pair.low_hits or 0 for pair in pairs), default=0)
    high = max((pair.high_hits or 0 for pair in pairs), default=0)
    hits = f"{low} of {settings.hit_count_low} low hits, {high} of {settings.hit_count_high} high hits"
    fired = sum(pair.fired for pair in pairs)
    return f"{over} of {len(pairs)} pairs differ by {settings.low_threshold:g} points or more, {hits}, {fired} fired"
