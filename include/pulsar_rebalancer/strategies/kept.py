"""The state of strategies between counted runs, and the format in which it is stored."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from pulsar_rebalancer.state.learned import NOTHING, Learned
from pulsar_rebalancer.state.state_documents import HitCount

if TYPE_CHECKING:
    from collections.abc import Mapping

WHOLE_CLUSTER = ""
"""Key for TransferShedder's hits, stored as low hits: TransferShedder judges the whole cluster, not each broker."""


@dataclass(frozen=True, slots=True)
class ShedderState:
    """The state of a shedder between runs. Each shedder uses only some of the fields.

    Attributes:
        hits: number of consecutive hits, by broker or for `WHOLE_CLUSTER`; zero counts are left out.
        loads: moving average of each broker's load; 1 is 100 percent.
        throughputs: moving average of each broker's throughput in bytes/s.
        learned: figures learned about the brokers.
    """

    hits: Mapping[str, HitCount] = field(default_factory=dict)
    loads: Mapping[str, float] = field(default_factory=dict)
    throughputs: Mapping[str, float] = field(default_factory=dict)
    learned: Learned = NOTHING

    @property
    def cluster_hits(self) -> int:
        """Return the number of hits for the whole cluster."""
        return self.hits.get(WHOLE_CLUSTER, HitCount()).low

    def without_hits(self) -> Self:
        """Return a copy with all hits reset. Averages are kept, as they are in Pulsar until the leader changes."""
        return replace(self, hits={})


@dataclass(frozen=True, slots=True)
class PlacementState:
    """The state of a placement between runs. Each placement uses only some of the fields.

    Attributes:
        count: number of choices that RoundRobinBrokerSelector has made.
        brokers: the brokers that RoundRobinBrokerSelector chooses in turn, in the order in which they are chosen.
        averages: moving average of each broker's usage, for LeastResourceUsageWithWeight; 1 is 100 percent.
    """

    count: int = 0
    brokers: tuple[str, ...] = ()
    averages: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KeptState:
    """The state of a strategy and of its placement between runs."""

    shedder: ShedderState = field(default_factory=ShedderState)
    placement: PlacementState = field(default_factory=PlacementState)

    @classmethod
    def parse(cls, hits: Mapping[str, HitCount], document: Mapping[str, Any]) -> Self:
        """Return the state from the stored hits of brokers and the stored `DecisionState.kept`."""
        shedder, placement = document.get("shedder", {}), document.get("placement", {})
        of_cluster = {WHOLE_CLUSTER: HitCount(low=shedder["hits"])} if shedder.get("hits") else {}
        return cls(
            ShedderState(
                {**hits, **of_cluster},
                shedder.get("loads", {}),
                shedder.get("throughputs", {}),
                Learned.parse(shedder.get("learned", {})),
            ),
            PlacementState(
                placement.get("count", 0), tuple(placement.get("brokers", ())), placement.get("averages", {})
            ),
        )

    def document(self) -> dict[str, Any]:
        """Return the document to store as `DecisionState.kept`.

        It does not include brokers' hits, which have their own field.
        """
        shedder, placement = self.shedder, self.placement
        parts = {
            "shedder": {
                "hits": shedder.cluster_hits,
                "loads": dict(sorted(shedder.loads.items())),
                "throughputs": dict(sorted(shedder.throughputs.items())),
                "learned": shedder.learned.document(),
            },
            "placement": {
                "count": placement.count,
                "brokers": list(placement.brokers),
                "averages": dict(sorted(placement.averages.items())),
            },
        }
        kept = {part: {name: value for name, value in fields.items() if value} for part, fields in parts.items()}
        return {part: fields for part, fields in kept.items() if fields}
