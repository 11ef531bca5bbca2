"""A replay from its request to its answer: preparation, independent parts, progress and results."""

from __future__ import annotations

import json
import math
import secrets
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa

from pulsar_rebalancer.errors import RebalancerError
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.replay import snapshots
from pulsar_rebalancer.replay.closed_loop import replay
from pulsar_rebalancer.replay.replay_report import report_html
from pulsar_rebalancer.replay.samples import Recording
from pulsar_rebalancer.replay.variant_outcome import (
    RECORDING,
    Agreement,
    Metrics,
    VariantOutcome,
    metrics_of,
    pareto_front,
    preferred_variant,
)
from pulsar_rebalancer.replay.variants import (
    ANSWER,
    CURRENT_VARIANT,
    REPORT,
    SAMPLES,
    TABLE,
    FailedVariant,
    GridVariants,
    Period,
    ReplayRequest,
    ReplayResult,
    Variant,
    check_duration,
    check_sample_count,
    continuous_periods,
)
from pulsar_rebalancer.run.tables import TIME_TYPE
from pulsar_rebalancer.storage.documents import ClusterStorage
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer.texts import number_of

_PROGRESS_FOLDER = "progress"
_SECONDS_BETWEEN_LINES = 5.0


def print_line(line: str) -> None:
    print(f"{datetime.now(UTC):%H:%M:%S} {line}", flush=True)


def progress_writer(folder: StoragePath, part_number: int) -> Callable[[float], None]:
    """Return a function that stores the completed fraction of a part, 0 to 1."""
    return partial(_write_progress, folder / _PROGRESS_FOLDER / str(part_number))


def _write_progress(file: StoragePath, share: float) -> None:
    file.write_bytes(f"{share:.3f}".encode())


class Progress:
    """A context manager that prints the progress of the replays at regular intervals."""

    def __init__(self, folders: Iterable[StoragePath], part_count: int) -> None:
        self._folders = [work / _PROGRESS_FOLDER for work in folders]
        self._parts = part_count
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._print_progress, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _print_progress(self) -> None:
        before = -1
        while not self._over.wait(_SECONDS_BETWEEN_LINES):
            try:
                shares = [float((work / name).read_bytes()) for work in self._folders for name in work.entry_names()]
            except (RebalancerError, ValueError):
                continue
            percent = int(100 * sum(shares) / self._parts)
            if percent > before:
                before = percent
                print_line(f"{percent} % replayed")


class PreparedReplay(NamedTuple):
    replay_folder: StoragePath
    work: StoragePath
    request: ReplayRequest
    recording: Recording
    variants: GridVariants


def prepare(root: str, folder: StoragePath) -> PreparedReplay:
    """Make the recording that a replay's request needs; on failure, only the new work folder is deleted.

    Raises SettingsError `wrong_setting` for the grid, or SnapshotError if request or samples are
    unreadable.
    """
    request = ReplayRequest.read(folder)
    # The results of an earlier request in this folder must not be mistaken for new results.
    for name in (ANSWER, REPORT, TABLE):
        (folder / name).delete()
    variants = request.variants
    check_sample_count(request, len(variants.variants))
    storage = ClusterStorage(root, request.cluster)
    work = folder / f".work-{secrets.token_hex(4)}"
    try:
        snapshots.record(storage, request.settings, request.start, request.end, work / SAMPLES)
        recording = Recording.read(work / SAMPLES)
        check_duration(recording, len(variants.variants))
    except BaseException:
        work.delete()
        raise
    said = [f"{number_of(len(variants.variants), 'variant')}; {recording.coverage.sentence}", *recording.coverage.notes]
    if variants.left_out_texts:
        said.append(f"{number_of(len(variants.left_out_texts), 'contradictory combination')} left out")
    names = recording.roster
    said.append(f"{number_of(len(names.brokers), 'broker')}, {number_of(len(names.bundles), 'bundle')}")
    for sentence in said:
        print_line(f"{request.cluster}: {sentence}")
    return PreparedReplay(folder, work, request, recording, variants)


class ReplayPart(NamedTuple):
    """Part of a replay: some of its variants over one period."""

    work: str
    part_number: int
    variants: Sequence[Variant]
    request: ReplayRequest
    period: Period


def parts_of(prepared: PreparedReplay, min_count: int) -> list[ReplayPart]:
    """Return the parts of a replay, at least `min_count` of them if there are enough variants and periods."""
    request, variants = prepared.request, prepared.variants.variants
    apart = continuous_periods(prepared.recording, days_apart=request.days_apart)
    groups = min(len(variants), max(1, math.ceil(min_count / len(apart))))
    # Neighbours differ in one value, so dealing them out in turn gives each group some of every strategy.
    work = [(stretch, variants[group::groups]) for stretch in apart for group in range(groups)]
    return [ReplayPart(prepared.work.uri, number, dealt, request, span) for number, (span, dealt) in enumerate(work)]


def replay_part(part: ReplayPart) -> list[VariantOutcome] | str:
    """Return the outcomes of a part's variants, or the error message: raising would end the other replays."""
    folder, request = StoragePath(part.work), part.request
    try:
        return replay(
            Recording.read(folder / SAMPLES),
            part.variants,
            request.settings,
            first_minute=part.period.first_minute,
            last_minute=part.period.last_minute,
            seed=request.seed,
            report_progress=progress_writer(folder, part.part_number),
        )
    except RebalancerError as error:
        return str(error)
    except Exception as error:
        traceback.print_exc()
        return f"{type(error).__name__}: {error} [{Reason.SPARK_FAILED}]"


_MAX_SHOWN = 10

_COVERAGE_COLUMNS = ("start", "end", "first", "last", "samples", "expected", "minutes", "gaps", "repeated")
"""Table columns that show which part of the requested period was replayed (`replay.recording.Coverage`)."""


def write_results(prepared_replay: PreparedReplay, outcomes: Mapping[str, VariantOutcome], seconds: float) -> None:
    """Write a replay's answer, table and report. Raises `spark_failed` if every variant failed."""
    folder, _, request, recording, variants = prepared_replay
    coverage = recording.coverage
    failed = _failed_variants(variants.variants, outcomes)
    for failure in failed[:_MAX_SHOWN]:
        print_line(f"{request.cluster}: {failure.sentence}")
    names = {failure.variant for failure in failed}
    compared = [metrics_of(outcomes[v.name], coverage.minutes) for v in variants.variants if v.name not in names]
    if not compared:
        raise RebalancerError(Reason.SPARK_FAILED, f"every variant failed: {failed[0].sentence}")
    current, recorded = outcomes[CURRENT_VARIANT], outcomes[RECORDING]
    answer = ReplayResult(
        coverage=coverage,
        picked=preferred_variant(compared, request.worth),
        front=tuple(sorted(pareto_front(compared))),
        variants=len(variants.variants),
        left_out=tuple(variants.left_out_texts[:_MAX_SHOWN]),
        left_out_count=len(variants.left_out_texts),
        agreement=None if current.failed else Agreement.compare(recorded, current, coverage.minutes),
        failed=tuple(failed[:_MAX_SHOWN]),
        failed_count=len(failed),
        seconds=seconds,
    )
    (folder / TABLE).write_table(_results_table(compared, answer, variants.variants, failed))
    page = report_html(request, answer, variants.variants, compared, outcomes, failed)
    (folder / REPORT).write_bytes(page.encode(errors="replace"))
    answer.write(folder)
    if answer.agreement is not None:
        print_line(f"{request.cluster}: {answer.agreement.sentence}")
    picked = next(row for row in compared if row.variant == answer.picked)
    print_line(
        f"{request.cluster}: picked variant {answer.picked!r}: {picked.unloads_per_day:.1f} unloads a day "
        f"({picked.moved:,} in all), mean range {picked.range_mean:.1f}; "
        f"{number_of(len(answer.front), 'variant')} on the Pareto front; the replay took {seconds:.1f} s"
    )


def _failed_variants(variants: Sequence[Variant], outcomes: Mapping[str, VariantOutcome]) -> list[FailedVariant]:
    failures = ((variant.name, outcomes[variant.name].failed) for variant in variants)
    return [FailedVariant(variant=name, at=why.time, error=why.error) for name, why in failures if why is not None]


def _results_table(
    metrics_rows: Sequence[Metrics], result: ReplayResult, variants: Sequence[Variant], failed: Sequence[FailedVariant]
) -> pa.Table:
    """Return a row per variant, in the variants' order; a failed variant has no values."""
    row_of, failure_of = {row.variant: row for row in metrics_rows}, {failure.variant: failure for failure in failed}
    rows = [row_of.get(variant.name) for variant in variants]
    failures = [failure_of.get(variant.name) for variant in variants]
    columns: dict[str, Any] = {name: [getattr(row, name, None) for row in rows] for name in Metrics._fields}
    columns |= {
        "variant": [variant.name for variant in variants],
        "failed_at": pa.array([failure and failure.at for failure in failures], TIME_TYPE),
        "error": pa.array([failure and failure.error for failure in failures], pa.string()),
        "strategy": [variant.settings.strategy for variant in variants],
        "changed": [json.dumps(dict(variant.changed_settings), default=str) for variant in variants],
        "current": [variant.is_current for variant in variants],
        "on_front": [variant.name in result.front for variant in variants],
        "picked": [variant.name == result.picked for variant in variants],
    }
    # Repeat the coverage in every row, next to the values that depend on it.
    covered = {name: [getattr(result.coverage, name)] * len(variants) for name in _COVERAGE_COLUMNS}
    return pa.table(columns | covered)
