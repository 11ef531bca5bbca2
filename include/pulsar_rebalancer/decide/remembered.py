"""The remembered placement: where each bundle was when the brokers' scores were last close together for a while."""

from __future__ import annotations

import logging
from bisect import bisect_right
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_rebalancer.errors import SnapshotError
from pulsar_rebalancer.names import HashRange, namespace_of
from pulsar_rebalancer.run.sums import one_by_one
from pulsar_rebalancer.strategies.scoring import score

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from datetime import datetime

    from pulsar_rebalancer.config.settings import Settings
    from pulsar_rebalancer.decide.run_input import RunInput
    from pulsar_rebalancer.policies.cluster_policies import Policies
    from pulsar_rebalancer.run.snapshot import Snapshot
    from pulsar_rebalancer.run.tables import BrokerSample
    from pulsar_rebalancer.state.state_documents import Remembered

_log = logging.getLogger(__name__)

ENOUGH = 3
"""Number of consecutive balanced samples after which a placement counts as good. With a higher number, clusters with
noisy load would remember nothing."""

_RENEWED = 10
"""A placement that stays good is stored again, with any new bundles, each time this number of samples has passed."""

KEPT_WITHOUT = timedelta(days=1)
"""Age up to which a placement is kept while one of its brokers is missing or left out, because the broker may come
back."""


class RememberedPlacement(NamedTuple):
    """The remembered placement. It stays a table, because a cluster may have a million bundles.

    Attributes:
        bundles: a row for each bundle, with the columns `bundle` and `broker`.
        shares: each broker's share of the cluster's traffic (0 to 1).
    """

    bundles: pa.Table
    shares: dict[str, float]

    @classmethod
    def read(cls, snapshot: Snapshot) -> Self | None:
        """Return the remembered placement; None if there is none or its file cannot be read."""
        name = snapshot.before.decision.placement.file
        if not name:
            return None
        try:
            table = (snapshot.state_folder / name).read_table(["bundle", "broker", "msg_throughput"])
        except SnapshotError as error:
            _log.warning("the remembered placement is not used: %s", error)
            return None
        return cls.of(table)

    @classmethod
    def of(cls, table: pa.Table) -> Self:
        """Return the placement in a table from `placement_table`."""
        sums = table.group_by("broker").aggregate([("msg_throughput", "sum")]).to_pylist()
        total = one_by_one(row["msg_throughput_sum"] for row in sums) or 1.0
        shares = {row["broker"]: row["msg_throughput_sum"] / total for row in sums}
        return cls(table.select(["bundle", "broker"]), shares)

    def homes(self, bundles: pa.Array[Any], brokers: Collection[str] | None = None) -> dict[str, str]:
        """Return each bundle's remembered broker, or the remembered broker of the bundle from which it was split.

        Bundles that are not in the placement are left out.

        Args:
            bundles: full names.
            brokers: the only brokers to look for; None for all.
        """
        placed = self.bundles
        if brokers is not None:
            here: Any = pc.is_in(placed["broker"], pa.array(sorted(brokers), pa.string()))
            placed, others = placed.filter(here), placed.filter(pc.invert(here))
            elsewhere: Any = pc.is_in(bundles, others["bundle"])
            bundles = bundles.filter(pc.invert(elsewhere))
        known = dict(zip(*(placed[name].to_pylist() for name in ("bundle", "broker")), strict=True))
        return homes_in(known, map(str, bundles.to_pylist()))


def homes_in(known: Mapping[str, str], bundles: Iterable[str]) -> dict[str, str]:
    """Return each bundle's entry in `known`, or the entry of the bundle from which it was split.

    Bundles without an entry are left out.
    """

    @cache
    def ranges() -> dict[str, list[tuple[HashRange, str]]]:
        found: dict[str, list[tuple[HashRange, str]]] = {}
        for name, home in sorted(known.items()):
            found.setdefault(namespace_of(name), []).append((HashRange.of(name), home))
        return found

    def homes() -> Iterator[tuple[str, str]]:
        for bundle in bundles:
            if home := known.get(bundle):
                yield bundle, home
                continue
            whole = ranges().get(namespace_of(bundle))
            if whole is None:
                continue
            part = HashRange.of(bundle)
            at = bisect_right(whole, part.lower, key=lambda each: each[0].lower) - 1
            if at >= 0 and whole[at][0].contains(part):
                yield bundle, whole[at][1]

    return dict(homes())


def remember(run: RunInput) -> Remembered:
    """Return the `Remembered` state after a run's sample, and write the file for a newly remembered placement.

    A placement is worth remembering if the scores were close together in several consecutive counted samples.
    """
    before, settings = run.before.decision.placement, run.settings
    now, counted_at = run.request.collected_at, run.before.decision.counted_at
    if not run.counting.counts:
        return before
    longest = timedelta(seconds=settings.state_max_gap * settings.interval_seconds)
    in_a_row = before.balanced if counted_at and abs(now - counted_at) <= longest else 0
    taking_part = [broker for broker in run.brokers if broker.left_out is None]
    balanced = in_a_row + 1 if close_together(taking_part, run.policies, settings) else 0
    after = before.model_copy(update={"balanced": balanced})
    if not is_good(balanced) or not may_replace(RememberedPlacement.read(run), before.at, now, taking_part):
        return after
    file = run.new_state_file("placement")
    bundles = run.table("bundles", ["bundle", "broker", "msg_throughput_in", "msg_throughput_out"])
    file.write_table(placement_table(bundles))
    return after.model_copy(update={"file": file.name, "at": now})


def is_good(balanced: int) -> bool:
    """Return whether to remember the placement after this number of consecutive balanced samples."""
    return balanced == ENOUGH or (balanced > 0 and balanced % _RENEWED == 0)


def close_together(brokers: Iterable[BrokerSample], policies: Policies, settings: Settings) -> bool:
    """Return whether the scores of brokers that may share bundles differ by less than the low threshold.

    Also return False if even the hottest broker is below the threshold: such scores say nothing about the placement.
    """
    pools: dict[str | None, list[float]] = {}
    for broker in brokers:
        pools.setdefault(policies.reserved_by(broker.broker), []).append(score(broker, settings))
    low, hottest = settings.low_threshold, max(map(max, pools.values()), default=0.0)
    return hottest >= low and all(max(pool) - min(pool) < low for pool in pools.values())


def may_replace(
    known: RememberedPlacement | None, at: datetime | None, now: datetime, brokers: Iterable[BrokerSample]
) -> bool:
    """Return whether a new placement may replace the remembered one: all its brokers take part, or it is a day old.

    Args:
        at: when it was remembered; None if unknown.
        brokers: the brokers that take part in balancing.
    """
    missing = known.shares.keys() - {broker.broker for broker in brokers} if known else ()
    return not missing or at is None or abs(now - at) > KEPT_WITHOUT


def placement_table(bundles: pa.Table) -> pa.Table:
    """Return where each bundle is, with its current throughput in bytes/s, from the input table of bundles."""
    ways: list[Any] = [pc.coalesce(bundles[f"msg_throughput_{way}"], pa.scalar(0.0)) for way in ("in", "out")]
    traffic: Any = pc.add(*ways)
    return bundles.select(["bundle", "broker"]).append_column("msg_throughput", traffic)
