"""A run's tables as input for the suites, and the share of each broker's traffic in bundles left out."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from pulsar_rebalancer.run.snapshot import Snapshot
from pulsar_rebalancer.run.tables import AVERAGES, INPUT, RESOURCES, TRAFFIC
from pulsar_rebalancer.strategies.shedders.registry import profile_of

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Mapping

    import pandas as pd
    import pyarrow as pa

    from pulsar_rebalancer.config.settings import Settings
    from pulsar_rebalancer.storage.path import StoragePath

_REPEATED = {"bundles": ["cluster", "broker", "policy"]}
"""Columns that become categorical, by table, because Great Expectations hashes and copies every string in a frame."""


def judged_frames(run: StoragePath, settings: Settings) -> dict[str, pd.DataFrame]:
    """Return the three tables as input for the suites.

    Infinite figures become null. In `brokers`, a resource that is not measured (usage and limit of -1) becomes 0 of 0,
    as in the broker's score. NaN and infinity in a broker's own averages become infinity, because null means that the
    broker reported no averages. These columns are added:

    * `<resource>_percent`: usage as a percentage of the limit; null if there is no limit;
    * `deciding_resource` and `deciding_percent`: result of `_deciding`;
    * `unaccounted_percent`: the largest difference, over the four traffic figures, between the broker's own figure and
      the sum over its bundles. It is 0 if the difference is at most one unit, and null if a figure is invalid, because
      invalid figures are reported as separate findings.
    """
    read = {name: Snapshot(run).table(name) for name in INPUT}
    frames = {name: table.to_pandas(categories=_REPEATED.get(name)) for name, table in read.items()}
    brokers, bundles = frames["brokers"], frames["bundles"]
    for frame in (brokers, bundles):
        figures = frame.select_dtypes("float").columns
        frame[figures] = frame[figures].replace([math.inf, -math.inf], math.nan)
    for name in AVERAGES:
        brokers.loc[_no_number(read["brokers"][name]), name] = math.inf
    for resource in RESOURCES:
        pair = [f"{resource}_usage", f"{resource}_limit"]
        brokers.loc[(brokers[pair] == -1).all(axis=1), pair] = 0.0
        usage, limit = brokers[pair[0]], brokers[pair[1]]
        brokers[f"{resource}_percent"] = (usage / limit * 100).where(limit > 0)
    looked_at = profile_of(settings).resources
    weights = {name: weight for name in looked_at if (weight := getattr(settings, f"{name}_weight")) > 0}
    deciding = [_deciding(broker, weights) for broker in brokers.to_dict("records")]
    brokers["deciding_resource"] = [name for name, _ in deciding]
    brokers["deciding_percent"] = [percent for _, percent in deciding]
    brokers["unaccounted_percent"] = _unaccounted_percent(brokers, bundles)
    return frames


def _no_number(column: pa.ChunkedArray[Any]) -> list[bool]:
    return [value is not None and not math.isfinite(value) for value in column.to_pylist()]


def _deciding(broker: Mapping[Hashable, Any], weights: Mapping[str, float]) -> tuple[str | None, float]:
    """Return the resource that decides a broker's score, unless it is the CPU, and its usage in percent of the limit.

    That resource has the highest weighted percentage. The result is None and NaN if the CPU determines the score or the
    broker is idle. If no weighted resource has a limit but some are used, the score is always 0; the result is then the
    names of the used resources and infinity.
    """
    percent = {name: float(broker[f"{name}_percent"]) for name in weights}
    judged = [name for name in weights if not math.isnan(percent[name])]
    if judged:
        name = max(judged, key=lambda name: percent[name] * weights[name])
        return (None, math.nan) if name == "cpu" else (name, percent[name])
    used = [name for name in weights if broker[f"{name}_usage"] > 0]
    return (" and ".join(used), math.inf) if used else (None, math.nan)


def _unaccounted_percent(brokers: pd.DataFrame, bundles: pd.DataFrame) -> pd.Series[float]:
    traffic = list(TRAFFIC)
    own = brokers.set_index("broker")[traffic]
    sums = bundles.groupby("broker", observed=True)[traffic].sum().reindex(own.index, fill_value=0.0)
    apart = (own - sums).abs()
    percent = (apart / own.where(own > sums, sums) * 100).where(apart > 1, 0.0).max(axis=1)
    unsound = bundles.loc[~(bundles[traffic] >= 0).all(axis=1), "broker"]
    sound = (own >= 0).all(axis=1) & ~own.index.isin(unsound)
    return percent.where(sound).set_axis(brokers.index)


def shares_of(bundles: Collection[str], frames: Mapping[str, pd.DataFrame]) -> dict[str, float]:
    """Return the bundles' share (0 to 1) of each broker's message rate or throughput, whichever share is larger.

    The absolute values of negative figures are used. A figure that is not a number is estimated: the broker's own
    figure minus the sum over its other bundles.

    Args:
        bundles: names of bundles. Brokers without any of these bundles are not in the result.
        frames: the tables from `judged_frames`.
    """
    import pandas as pd

    if not bundles:
        return {}
    table, shares = frames["bundles"], {}
    brokers = frames["brokers"].drop_duplicates("broker").set_index("broker")
    named = table["bundle"].astype(str).isin(bundles)
    for measure in ("msg_rate", "msg_throughput"):
        ways = [f"{measure}_in", f"{measure}_out"]
        figures = table[ways].abs().sum(axis=1, skipna=False)
        carried = figures[named].groupby(table["broker"], observed=True)
        left = carried.sum()
        kept = figures[~named].groupby(table["broker"], observed=True).sum().reindex(left.index, fill_value=0.0)
        rest = brokers[ways].sum(axis=1).reindex(left.index) - kept
        left = left.where(carried.count().eq(carried.size()) | ~(rest > left), rest)
        shares[measure] = (left / (left + kept)).fillna(0.0)
    return dict(pd.DataFrame(shares).max(axis=1))
