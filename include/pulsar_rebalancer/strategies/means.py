"""Short-term and long-term moving averages of bundle traffic (Pulsar's TimeAverageMessageData)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pulsar_rebalancer.run.tables import LONG_TERM, TRAFFIC

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pulsar_rebalancer.run.tables import Row

MAX_SAMPLES = 10
"""From this sample on, each sample moves the short-term mean by a tenth of the difference (BundleData)."""

LONG_TERM_SAMPLES = 1000
"""From this sample on, each sample moves the long-term mean by a thousandth of the difference."""


def update(bundles: Iterable[Row], previous: Iterable[Row]) -> list[Row]:
    """Add a sample to the moving averages, and return the updated averages (TimeAverageMessageData.update).

    The means of a new bundle start with its figures in this sample. While a bundle moves, two brokers can report it;
    the larger figure is used, because the old owner reports only part of the traffic. Bundles that are not in the
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


def with_sample(mean: Any, figure: Any, samples: Any) -> Any:
    """Return a mean with one more figure, after which it is the mean of `samples`: numbers, arrays or Spark columns."""
    return ((samples - 1) * mean + figure) / samples


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
        **{name: with_sample(old[name], figure, samples) for name, figure in now.items()},
    }
