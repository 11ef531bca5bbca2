"""Write a replay's results to its folder: answer, table and report."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pulsar_rebalancer.errors import RebalancerError
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.replay.agreement import RECORDING, Agreement
from pulsar_rebalancer.replay.progress import say
from pulsar_rebalancer.replay.replay_report import html
from pulsar_rebalancer.replay.replay_request import REPORT, TABLE, FailedVariant, ReplayResult
from pulsar_rebalancer.replay.variant_outcome import Figures, figures, pareto_front, preferred
from pulsar_rebalancer.replay.variants import CURRENT
from pulsar_rebalancer.run.tables import TIME
from pulsar_rebalancer.texts import number_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pulsar_rebalancer.replay.preparation import Prepared
    from pulsar_rebalancer.replay.variant_outcome import VariantOutcome
    from pulsar_rebalancer.replay.variants import Variant

_SHOWN = 10

_COVERED = (
    "start",
    "end",
    "first",
    "last",
    "samples",
    "expected",
    "minutes",
    "gaps",
    "repeated",
)
"""Table columns that show which part of the requested period was replayed (`replay.recording.Coverage`)."""


def conclude(prepared: Prepared, outcomes: Mapping[str, VariantOutcome], seconds: float) -> None:
    """Write a replay's answer, table and report.

    Args:
        outcomes: the outcomes of all variants and of the recording, by name.

    Raises:
        RebalancerError: `replay_failed` if every variant failed.
    """
    folder, _, request, recording, variants = prepared
    coverage = recording.coverage
    failed = _failed(variants.variants, outcomes)
    for failure in failed[:_SHOWN]:
        say(f"{request.cluster}: {failure.sentence}")
    names = {failure.variant for failure in failed}
    compared = [figures(outcomes[v.name], coverage.minutes) for v in variants.variants if v.name not in names]
    if not compared:
        raise RebalancerError(Reason.REPLAY_FAILED, f"every variant failed: {failed[0].sentence}")
    current, recorded = outcomes[CURRENT], outcomes[RECORDING]
    answer = ReplayResult(
        coverage=coverage,
        picked=preferred(compared, request.worth),
        front=tuple(sorted(pareto_front(compared))),
        variants=len(variants.variants),
        left_out=tuple(variants.left_out[:_SHOWN]),
        left_out_count=len(variants.left_out),
        agreement=None if current.failed else Agreement.of(recorded, current, coverage.minutes),
        failed=tuple(failed[:_SHOWN]),
        failed_count=len(failed),
        seconds=seconds,
    )
    (folder / TABLE).write_table(_table(compared, answer, variants.variants, failed))
    page = html(request, answer, variants.variants, compared, outcomes, failed)
    (folder / REPORT).write_bytes(page.encode(errors="replace"))
    answer.write(folder)
    if answer.agreement is not None:
        say(f"{request.cluster}: {answer.agreement.sentence}")
    picked = next(row for row in compared if row.variant == answer.picked)
    say(
        f"{request.cluster}: {answer.picked} is picked: {picked.unloads_per_day:.1f} unloads a day "
        f"({picked.moved:,} in all), "
        f"range {picked.range_mean:.1f}; {number_of(len(answer.front), 'variant')} on the front, in {seconds:.1f} s"
    )


def _failed(variants: Sequence[Variant], outcomes: Mapping[str, VariantOutcome]) -> list[FailedVariant]:
    failures = ((variant.name, outcomes[variant.name].failed) for variant in variants)
    return [FailedVariant(variant=name, at=why.at, error=why.error) for name, why in failures if why is not None]


def _table(
    compared: Sequence[Figures], answer: ReplayResult, variants: Sequence[Variant], failed: Sequence[FailedVariant]
) -> pa.Table:
    """Return a row per variant, in the same order as the variants; a failed variant has no figures."""
    row_of, failure_of = {row.variant: row for row in compared}, {failure.variant: failure for failure in failed}
    rows = [row_of.get(variant.name) for variant in variants]
    failures = [failure_of.get(variant.name) for variant in variants]
    columns: dict[str, Any] = {name: [getattr(row, name, None) for row in rows] for name in Figures._fields}
    columns |= {
        "variant": [variant.name for variant in variants],
        "failed_at": pa.array([failure and failure.at for failure in failures], TIME),
        "error": pa.array([failure and failure.error for failure in failures], pa.string()),
        "strategy": [variant.settings.strategy for variant in variants],
        "changed": [json.dumps(dict(variant.changed), default=str) for variant in variants],
        "current": [variant.current for variant in variants],
        "on_front": [variant.name in answer.front for variant in variants],
        "picked": [variant.name == answer.picked for variant in variants],
    }
    # Repeat the coverage in every row, next to the figures that depend on it.
    covered = {name: [getattr(answer.coverage, name)] * len(variants) for name in _COVERED}
    return pa.table(columns | covered)
