"""The application that replays: `spark-submit replay.py --replay FOLDER [--replay FOLDER ...] --root ROOT`.

A replay's folder holds `request.json`. What the runs of its cluster collected is read once and kept beside it as one
file per sample; then the executors take variants through it, some of them side by side, each stretch by itself. Many
clusters are replayed at once. With `--trace FILE` the recording is a CSV trace, and FOLDER is where the answer goes.
Needs the package on the executors.
"""

from __future__ import annotations

import argparse
import json
import math
import secrets
import sys
import threading
import time
import traceback
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from pulsar_rebalancer.config.settings import validate
from pulsar_rebalancer.errors import RebalancerError, SettingsError
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.replay import snapshots, traces
from pulsar_rebalancer.replay.closed_loop import replay
from pulsar_rebalancer.replay.replay_report import html
from pulsar_rebalancer.replay.replay_request import (
    ANSWER,
    DEFAULT_GRID,
    REPORT,
    SAMPLES,
    TABLE,
    Answer,
    ReplayRequest,
    Stretch,
    stretches,
)
from pulsar_rebalancer.replay.samples import Recording
from pulsar_rebalancer.replay.variant_outcome import Figures, figures, merged, pareto_front, preferred
from pulsar_rebalancer.storage.layout import ClusterStorage
from pulsar_rebalancer.storage.path import StoragePath
from pulsar_rebalancer_spark.session import session

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark import SparkContext

    from pulsar_rebalancer.replay.variant_outcome import Outcome
    from pulsar_rebalancer.replay.variants import Variant, Variants

PARTS_PER_CORE = 2
"""Parts of the work for each core: more of them share it out better, fewer read the samples less often."""

PROGRESS = "progress"
_SECONDS_BETWEEN_LINES = 5.0

MOST_HOURS = 5.0
"""Of one core that one replay may take, by estimate: the task that waits for it has six."""

MOST_OUTCOMES = 50_000_000
"""Samples by variants that one replay may have: of each a figure comes back."""

_LESS = "take a shorter stretch or fewer variants"

_SECONDS_PER_BROKER, _SECONDS_PER_BUNDLE = 25e-6, 50e-9
"""Of one sample of one variant, on 2 x AMD EPYC; docs/performance.md measures it."""

COVERED = ("start", "end", "first", "last", "samples", "expected", "minutes", "gaps", "made")
"""Columns of the table that say what part of the stretch was replayed (`replay.recording.Coverage`)."""


class Prepared(NamedTuple):
    """A replay whose recording is ready."""

    folder: StoragePath
    work: StoragePath
    request: ReplayRequest
    recording: Recording
    variants: Variants


class Part(NamedTuple):
    """What one task does: some variants over one stretch."""

    work: str
    number: int
    variants: Sequence[Variant]
    request: ReplayRequest
    stretch: Stretch


def prepare(root: str, folder: StoragePath) -> Prepared:
    """Make the recording that a request asks for.

    Raises:
        SettingsError: `wrong_setting`; the grid.
        SnapshotError: the request or every sample of its stretch cannot be read.
    """
    request = ReplayRequest.read(folder)
    _forget(folder)
    variants = request.variants
    _refuse_many(request, len(variants.variants))
    storage = ClusterStorage(root, request.cluster)
    with _work(folder) as work:
        snapshots.record(storage, request.settings, request.start, request.end, work / SAMPLES)
        return _prepared(folder, work, request, variants)


def prepare_trace(folder: StoragePath, given: argparse.Namespace) -> Prepared:
    """Make the recording of a trace.

    Raises:
        SettingsError: `wrong_setting`; the grid or the settings.
        SnapshotError: `bad_trace`.
    """
    values = _json(given.settings, "settings")
    if not isinstance(values, dict):
        raise SettingsError(Reason.WRONG_SETTING, "settings: a mapping of settings to values is expected")
    settings = validate(values, where="settings")
    made = traces.MadeBundles.checked(
        {
            "bundles": given.bundles,
            "spread": given.spread,
            "seed": given.seed,
            "messages": given.messages_per_percent,
        }
    )
    asked = {
        "cluster": "trace",
        "settings": settings,
        "grid": DEFAULT_GRID if given.grid is None else _json(given.grid, "grid"),
        "worth": given.worth,
        "days_apart": given.days_apart,
        "seed": given.seed,
    }
    # What was typed is judged before anything is made of it; the trace says when it was.
    ReplayRequest.checked(asked | {"start": datetime.fromtimestamp(0, UTC), "end": datetime.fromtimestamp(1, UTC)})
    with _work(folder) as work:
        index = traces.record([Path(name) for name in given.trace], made, settings, work / SAMPLES)
        request = ReplayRequest.checked(asked | {"start": index.coverage.start, "end": index.coverage.end})
        _forget(folder)
        request.write(folder)
        return _prepared(folder, work, request, request.variants)


def _forget(folder: StoragePath) -> None:
    """Delete what an earlier request of the folder led to: beside this one it would be taken for its answer."""
    for name in (ANSWER, REPORT, TABLE):
        (folder / name).delete()


@contextmanager
def _work(folder: StoragePath) -> Iterator[StoragePath]:
    """Yield a new folder for what is made on the way; it goes if that fails, and nothing but it ever does."""
    work = folder / f".work-{secrets.token_hex(4)}"
    try:
        yield work
    except BaseException:
        work.delete()
        raise


def _prepared(folder: StoragePath, work: StoragePath, request: ReplayRequest, variants: Variants) -> Prepared:
    recording = Recording.read(work / SAMPLES)
    _refuse_long(recording, len(variants.variants))
    _say(f"{request.cluster}: {len(variants.variants)} variants, {recording.coverage.sentence}")
    if recording.coverage.made:
        _say(f"{request.cluster}: {recording.coverage.made}")
    if variants.left_out:
        _say(f"{request.cluster}: {len(variants.left_out)} combinations contradict themselves and are left out")
    names = recording.roster
    _say(f"{request.cluster}: {len(names.brokers)} brokers, {len(names.bundles)} bundles")
    return Prepared(folder, work, request, recording, variants)


def _refuse_long(recording: Recording, variants: int) -> None:
    """Refuse what would take too long, once it is known how large the cluster was."""
    samples, names = len(recording.index.minutes), recording.roster
    step = len(names.brokers) * _SECONDS_PER_BROKER + len(names.bundles) * _SECONDS_PER_BUNDLE
    hours = samples * variants * step / 3600
    if hours > MOST_HOURS:
        raise SettingsError(
            Reason.WRONG_SETTING,
            f"{variants} variants over {samples:,} samples of {len(names.brokers)} brokers and {len(names.bundles):,} "
            f"bundles would take one core about {hours:,.0f} hours, more than {MOST_HOURS:g}: {_LESS}",
        )


def _refuse_many(request: ReplayRequest, variants: int) -> None:
    """Refuse what is too much whatever the cluster, before anything is read."""
    minutes = (request.end - request.start).total_seconds() / 60
    samples = minutes / max(1.0, request.settings.interval_seconds / 60)
    if samples * variants > MOST_OUTCOMES:
        raise SettingsError(
            Reason.WRONG_SETTING,
            f"{variants} variants over {samples:,.0f} samples are more than {MOST_OUTCOMES:,} together: {_LESS}",
        )


def run(context: SparkContext, prepared: Sequence[Prepared]) -> dict[str, str]:
    """Replay on the executors, and write answer, table and report of each.

    Returns:
        What went wrong, by the folder of each replay that has no answer.
    """
    started = time.monotonic()
    parts = [part for each in prepared for part in _parts(each, context.defaultParallelism * PARTS_PER_CORE)]
    failed: dict[str, str] = {}
    with _Progress(prepared, len(parts)):
        done = context.parallelize(parts, len(parts)).map(_replayed).collect()
    for each in prepared:
        found = [answer for part, answer in zip(parts, done, strict=True) if part.work == each.work.uri]
        wrong = next((answer for answer in found if isinstance(answer, str)), None)
        if wrong is not None:
            failed[each.folder.uri] = wrong
        else:
            outcomes = [outcome for answer in found if not isinstance(answer, str) for outcome in answer]
            _conclude(each, merged(outcomes), time.monotonic() - started)
        each.work.delete()
    return failed


def _parts(prepared: Prepared, wanted: int) -> list[Part]:
    request, variants = prepared.request, prepared.variants.variants
    apart = stretches(prepared.recording, days_apart=request.days_apart)
    groups = min(len(variants), max(1, math.ceil(wanted / len(apart))))
    # Neighbours differ by one value: dealt out in turns, each group has of every strategy.
    work = [(stretch, variants[group::groups]) for stretch in apart for group in range(groups)]
    return [Part(prepared.work.uri, number, dealt, request, stretch) for number, (stretch, dealt) in enumerate(work)]


def _replayed(part: Part) -> list[Outcome] | str:
    """Return what became of the variants of a part, or what went wrong: the replays of others go on."""
    try:
        return _outcomes(part)
    except Exception as error:
        if isinstance(error, RebalancerError):
            return str(error)
        traceback.print_exc()
        return f"{type(error).__name__}: {error} [{Reason.REPLAY_FAILED}]"


def _outcomes(part: Part) -> list[Outcome]:
    folder, request = StoragePath(part.work), part.request
    recording = Recording.read(folder / SAMPLES)
    file = folder / PROGRESS / str(part.number)

    def tell(share: float) -> None:
        file.write_bytes(f"{share:.3f}".encode())

    return replay(
        recording,
        part.variants,
        request.settings,
        first=part.stretch.first,
        last=part.stretch.last,
        seed=request.seed,
        tell=tell,
    )


def _conclude(prepared: Prepared, outcomes: dict[str, Outcome], seconds: float) -> None:
    folder, _, request, recording, variants = prepared
    coverage = recording.coverage
    compared = [figures(outcomes[variant.name], coverage.minutes) for variant in variants.variants]
    answer = Answer(
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
    picked = next(each for each in compared if each.variant == answer.picked)
    _say(
        f"{request.cluster}: {answer.picked} is picked: {picked.unloads_per_day:.1f} unloads a day "
        f"({picked.moved:,} in all), "
        f"range {picked.range_mean:.1f}; {len(answer.front)} variants on the front, in {seconds:.1f} s"
    )


def _table(compared: Sequence[Figures], answer: Answer, variants: Sequence[Variant]) -> pa.Table:
    columns = {name: [getattr(each, name) for each in compared] for name in Figures._fields}
    columns |= {
        "strategy": [each.strategy for each in variants],
        "changed": [json.dumps(dict(each.changed), default=str) for each in variants],
        "current": [each.current for each in variants],
        "on_front": [each.variant in answer.front for each in compared],
        "picked": [each.variant == answer.picked for each in compared],
    }
    # What part of the stretch was replayed, beside every figure that was made of it.
    covered = {name: [getattr(answer.coverage, name)] * len(compared) for name in COVERED}
    return pa.table(columns | covered)


class _Progress:
    """Says from time to time what share is done, as the parts write it down; a context manager."""

    def __init__(self, prepared: Sequence[Prepared], parts: int) -> None:
        self._folders = [each.work / PROGRESS for each in prepared]
        self._parts = parts
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        before = -1
        while not self._over.wait(_SECONDS_BETWEEN_LINES):
            try:
                shares = [float((folder / name).read_bytes()) for folder in self._folders for name in folder.names()]
            except (RebalancerError, ValueError):
                continue
            percent = int(100 * sum(shares) / self._parts)
            if percent > before:
                before = percent
                _say(f"{percent} % replayed")


def _json(text: str, what: str) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise SettingsError(Reason.WRONG_SETTING, f"{what}: no JSON: {error}") from None


def _say(line: str) -> None:
    print(f"{datetime.now(UTC):%H:%M:%S} {line}", flush=True)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="replay.py", description="Replay recorded load through variants.")
    parser.add_argument("--root", default="", help="storage root, the folder of all clusters")
    parser.add_argument("--replay", required=True, action="append", help="folder of a replay; may be given again")
    trace = parser.add_argument_group("traces", "CSV, a series of CPU per broker; bundles are made")
    trace.add_argument("--trace", action="append", default=[], metavar="FILE", help="may be given again")
    trace.add_argument("--bundles", type=int, default=64, help="of each broker (64)")
    trace.add_argument("--spread", type=float, default=0.8, help="of their sizes, in the logarithm (0.8)")
    trace.add_argument("--seed", type=int, default=1, help="of their sizes, and of placement (1)")
    trace.add_argument("--messages-per-percent", type=float, default=1000, help="msg/s for a percent of CPU (1000)")
    trace.add_argument("--settings", default="{}", help="current settings as JSON; else Pulsar's defaults")
    trace.add_argument("--grid", help="what is compared, as JSON")
    trace.add_argument("--worth", type=float, default=10, help="unloads a day that a point of range is worth (10)")
    trace.add_argument("--days-apart", action="store_true", help="every day by itself")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Replay; 1 and a line with the reason code for each replay that cannot be done."""
    given = _options(arguments)
    folders = [StoragePath(folder.rstrip("/")) for folder in dict.fromkeys(given.replay)]
    ready: list[Prepared] = []
    failed = False
    for folder in folders:
        try:
            ready.append(prepare_trace(folder, given) if given.trace else prepare(given.root, folder))
        except Exception as error:
            failed = True
            _not_replayed(folder, error)
    if ready:
        spark = session()
        try:
            for folder_uri, why in run(spark.sparkContext, ready).items():
                failed = True
                print(f"not replayed: {folder_uri}: {why}", file=sys.stderr, flush=True)
        finally:
            spark.stop()
            for each in ready:
                each.work.delete()
    return int(failed)


def _not_replayed(folder: StoragePath, error: Exception) -> None:
    why = str(error)
    if not isinstance(error, RebalancerError):
        traceback.print_exc()
        why = f"{type(error).__name__} [{Reason.REPLAY_FAILED}]"
    print(f"not replayed: {folder.uri}: {why}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
