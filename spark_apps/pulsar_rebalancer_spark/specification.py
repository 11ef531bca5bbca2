"""Every strategy but AvgShedder: means of all bundles by Spark, `strategies.pipeline` over columns on the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsar_rebalancer.decide import pipeline
from pulsar_rebalancer.run.bundle_columns import Bundles
from pulsar_rebalancer.strategies import rows
from pulsar_rebalancer_spark import bundles, source_bundles
from pulsar_rebalancer_spark.strategy import Decided

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame

    from pulsar_rebalancer.run.tables import BrokerSample
    from pulsar_rebalancer_spark.run_input import RunInput


def decide(
    run: RunInput, brokers: Sequence[BrokerSample], held: Callable[[], DataFrame], kept: Callable[[], None]
) -> Decided:
    """Shed, place and cap (`strategy.Decide`)."""
    found = source_bundles.with_reason(source_bundles.read_all(run), run.settings, run.bundles_passed_over, {})
    with bundles.means_of_sample(run, held, kept) as means:
        found = source_bundles.with_means(found, run.cluster, means, "long_term_msg_rate")
    decided = pipeline.decide(run.context, brokers, Bundles(found))
    (run.folder / "plan" / "moves.parquet").write_table(rows.move_table(run.cluster, decided.moves))
    measures = {move.source: move.measure for move in decided.moves if move.taken}
    traffic = {each.broker: each.traffic(measures[each.broker]) for each in brokers if each.broker in measures}
    return Decided(decided.decisions, traffic, decided.kept, decided.sentence, decided.samples)
