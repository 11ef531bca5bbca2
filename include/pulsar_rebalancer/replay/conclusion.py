"""Write the results of a replay into its folder: answer, table and report."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa

from pulsar_rebalancer.replay.progress import say
from pulsar_rebalancer.replay.replay_report import html
from pulsar_rebalancer.replay.replay_request import REPORT, TABLE, ReplayResult
from pulsar_rebalancer.replay.variant_outcome import Figures, figures, pareto_front, preferred

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pulsar_rebalancer.replay.preparation import Prepared
    from pulsar_rebalancer.replay.variant_outcome import VariantOutcome
    from pulsar_rebalancer.replay.variants import Variant

_COVERED = ("start", "end", "first", "last", "samples", "expected", "minutes", "gaps", "made")
"""Columns in the table that show which part of the requested period was replayed (`replay.recording.Coverage`)."""


def conclude(prepared: Prepared, outcomes: Mapping[str, VariantOutcome], seconds: float) -> None:
    """Write a replay's answer, table and report.

    Args:
        outcomes: the outcome of each variant, by the variant's name.
    """
    folder, _, request, recording, variants = prepared
    coverage = recording.coverage
    compared = [figures(outcomes[variant.name], coverage.minutes) for variant in variants.variants]
    answer = ReplayResult(
        coverage=coverage,
        picked=preferred(compared, request.worth),
        front=tuple(sorted(pareto_front(compared))),
        variants=len(compared),
        left_out=tuple(variants.left_out[:10]),
        left_out_count=len(variants.left_out),
        seconds=seconds,
    )
    (folder / TABLE).write_table(_table(compared, answer, variants.variants))
    page = html(request, answer, variants.variants, compared, outcomes)
    (folder / REPORT).write_bytes(page.encode(errors="replace"))
    answer.write(folder)
    picked = next(row for row in compared if row.variant == answer.picked)
    say(
        f"{request.cluster}: {answer.picked} is picked: {picked.unloads_per_day:.1f} unloads a day "
        f"({picked.moved:,} in all), "
        f"range {picked.range_mean:.1f}; {len(answer.front)} variants on the front, in {seconds:.1f} s"
    )


def _table(compared: Sequence[Figures], answer: ReplayResult, variants: Sequence[Variant]) -> pa.Table:
    columns = {name: [getattr(row, name) for row in compared] for name in Figures._fields}
    columns |= {
        "strategy": [variant.settings.strategy for variant in variants],
        "changed": [json.dumps(dict(variant.changed), default=str) for variant in variants],
        "current": [variant.current for variant in variants],
        "on_front": [row.variant in answer.front for row in compared],
        "picked": [row.variant == answer.picked for row in compared],
    }
    # Repeat the coverage in every row, next to the figures that depend on it.
    covered = {name: [getattr(answer.coverage, name)] * len(compared) for name in _COVERED}
    return pa.table(columns | covered)
