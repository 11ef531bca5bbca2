"""The state of strategies between counted runs, and the format in which it is stored."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from pydantic import BaseModel, NonNegativeInt, ValidationError

from pulsar_rebalancer.run.tables import LONG_TERM, TRAFFIC, Row
from pulsar_rebalancer.state.state_documents import NOTHING, HitCount, Learned

_log = logging.getLogger(__name__)

WHOLE_CLUSTER = ""
"""Key for TransferShedder's hits, stored as low hits: TransferShedder judges the whole cluster, not each broker."""


@dataclass(frozen=True, slots=True)
class ShedderState:
    """The state of a shedder between runs. Each shedder uses only some of the fields.

    Attributes:
        hits: number of consecutive hits, by broker or for `WHOLE_CLUSTER`; zero counts are left out.
        loads: moving average of each broker's load; 1 is 100 percent.
        throughputs: moving average of each broker's throughput in bytes/s.
        learned: values learned about the brokers.
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


class _StoredShedder(BaseModel, extra="forbid"):
    hits: NonNegativeInt = 0
    loads: dict[str, float] = {}
    throughputs: dict[str, float] = {}
    learned: Learned = NOTHING


class _StoredPlacement(BaseModel, extra="forbid"):
    count: NonNegativeInt = 0
    brokers: tuple[str, ...] = ()
    averages: dict[str, float] = {}


class _Stored(BaseModel, extra="forbid"):
    """The format of `DecisionState.strategy_state`."""

    shedder: _StoredShedder = _StoredShedder()
    placement: _StoredPlacement = _StoredPlacement()


@dataclass(frozen=True, slots=True)
class StrategyState:
    """The state of a strategy and of its placement between runs."""

    shedder: ShedderState = field(default_factory=ShedderState)
    placement: PlacementState = field(default_factory=PlacementState)

    @classmethod
    def parse(cls, hits: Mapping[str, HitCount], document: Mapping[str, Any]) -> Self:
        """Return the state from the stored hits of brokers and the stored `DecisionState.strategy_state`.

        If `document` is damaged, all that it holds starts again.
        """
        try:
            stored = _Stored.model_validate(document)
        except ValidationError as error:
            found = error.errors()[0]
            where = ".".join(map(str, ("strategy_state", *found["loc"])))
            _log.warning("the stored document 'decision' is damaged, and starts again: %s: %s", where, found["msg"])
            stored = _Stored()
        shedder, placement = stored.shedder, stored.placement
        of_cluster = {WHOLE_CLUSTER: HitCount(low=shedder.hits)} if shedder.hits else {}
        return cls(
            ShedderState({**hits, **of_cluster}, shedder.loads, shedder.throughputs, shedder.learned),
            PlacementState(placement.count, placement.brokers, placement.averages),
        )

    def document(self) -> dict[str, Any]:
        """Return the document to store as `DecisionState.strategy_state`.

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
        filled = {part: {name: value for name, value in fields.items() if value} for part, fields in parts.items()}
        return {part: fields for part, fields in filled.items() if fields}


MAX_SAMPLES = 10
"""From this sample on, each sample moves the short-term mean by a tenth of the difference (BundleData)."""

LONG_TERM_SAMPLES = 1000
"""From this sample on, each sample moves the long-term mean by a thousandth of the difference."""


def update(bundles: Iterable[Row], previous: Iterable[Row]) -> list[Row]:
    """Add a sample to the moving averages, and return the updated averages (TimeAverageMessageData.update).

    The means of a new bundle start with its values in this sample. While a bundle moves, two brokers can report it;
    the larger value is used, because the old owner reports only part of the traffic. Bundles that are not in the
    sample are dropped: Pulsar unloads idle bundles, and their old traffic is meaningless when they are loaded again. A
    run keeps them while a broker has no report, because its bundles are still loaded.

    Args:
        bundles: rows of the bundles table.
        previous: rows of the means table.

    Returns:
        Rows of the means table, one per bundle, sorted by bundle.
    """
    seen: dict[str, dict[str, Any]] = {}
    for row in bundles:
        entry = seen.setdefault(row["bundle"], {"cluster": row["cluster"], "bundle": row["bundle"]})
        for name in TRAFFIC:
            entry[name] = max(entry.get(name, 0.0), row[name] or 0.0)
    known = {row["bundle"]: row for row in previous}
    return [_mean(seen[name], known.get(name)) for name in sorted(seen)]


def with_parts(previous: Iterable[Row], parts: Mapping[str, Mapping[str, float]]) -> list[dict[str, Any]]:
    """Return the means with additional rows for the parts of split bundles.

    Each part starts with its share of the means.

    The parts are the bundles that a bundle was split into. The row of the split bundle is kept, because for a short
    time one broker can report the bundle and another broker a part. `update` then drops whichever is not in the sample.
    The means of a part that already has a row do not change.

    Args:
        previous: rows of the means table.
        parts: for each split bundle, the share of each part (0 to 1), by the part's name.
    """
    rows = [dict(row) for row in previous]
    known = {row["bundle"] for row in rows}
    for row in list(rows):
        for part, share in parts.get(row["bundle"], {}).items():
            if part in known:
                continue
            carried = {name: row[name] * share for name in (*TRAFFIC, *LONG_TERM)}
            rows.append(row | carried | {"bundle": part})
    return rows


def with_sample(mean: Any, value: Any, samples: Any) -> Any:
    """Return a mean with one more value, after which it is the mean of `samples`: numbers, arrays or Spark columns."""
    return ((samples - 1) * mean + value) / samples


def _mean(sample: Row, old: Row | None) -> Row:
    now = {
        "long_term_msg_rate": sample["msg_rate_in"] + sample["msg_rate_out"],
        "long_term_msg_throughput": sample["msg_throughput_in"] + sample["msg_throughput_out"],
    }
    if old is None:
        return {**sample, "samples": 1, **now}
    samples = min(old["samples"] + 1, LONG_TERM_SAMPLES)
    short = min(samples, MAX_SAMPLES)
    return {
        **sample,
        "samples": samples,
        **{name: with_sample(old[name], sample[name], short) for name in TRAFFIC},
        **{name: with_sample(old[name], value, samples) for name, value in now.items()},
    }
