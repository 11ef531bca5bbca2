"""The seam between strategies and the plan's writer."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame

    from pulsar_rebalancer.run.manual_request import DrainProgress
    from pulsar_rebalancer.run.tables import BrokerSample
    from pulsar_rebalancer.strategies.kept import KeptState
    from pulsar_rebalancer.strategies.sample import Decision
    from pulsar_rebalancer_spark.run_input import RunInput


class Decided(NamedTuple):
    """One decided run; its moves lie in `plan/moves.parquet`.

    Attributes:
        decisions: before the moves are counted in (`explain.complete`).
        source_traffic: current traffic of the sources, in the measure of their moves.
        kept: what the strategy and its placement keep; AvgShedder keeps its hit counts in the decisions.
        sentence: what was found, and what moves in the end.
        drains: what becomes of the bundles of brokers that are drained, by broker.
        samples: figures by broker that gave a hit, or by which bundles move; AvgShedder's are in the decisions.
    """

    decisions: list[Decision]
    source_traffic: dict[str, float]
    kept: KeptState
    sentence: str
    samples: dict[str, float]
    drains: Mapping[str, DrainProgress] | None = None


class Decide(Protocol):
    """A form of deciding one run, `decide` of a module of its own."""

    def __call__(
        self, run: RunInput, brokers: Sequence[BrokerSample], held: Callable[[], DataFrame], kept: Callable[[], None]
    ) -> Decided:
        """Decide the run; the moves go to `plan/moves.parquet`.

        Args:
            run: the run.
            brokers: all that its cluster lists.
            held: gives what means are made of (`bundles.of_run`), once Spark is there: what needs no Spark goes first.
            kept: waits until the means with this sample are written, when it counts.
        """
