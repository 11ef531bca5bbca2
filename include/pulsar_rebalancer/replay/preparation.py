"""Prepare a replay: check its request and make its recording."""

from __future__ import annotations

import json
import secrets
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pulsar_rebalancer.errors import SettingsError
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.replay import snapshots, traces
from pulsar_rebalancer.replay.progress import say
from pulsar_rebalancer.replay.refusals import refuse_long, refuse_many
from pulsar_rebalancer.replay.replay_request import ANSWER, DEFAULT_GRID, REPORT, SAMPLES, TABLE, ReplayRequest
from pulsar_rebalancer.replay.samples import Recording
from pulsar_rebalancer.storage.layout import ClusterStorage
from pulsar_rebalancer.strategies.fitting import validate
from pulsar_rebalancer.texts import number_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from pulsar_rebalancer.replay.variants import Variants
    from pulsar_rebalancer.storage.path import StoragePath


class Prepared(NamedTuple):
    """A replay whose recording is ready."""

    folder: StoragePath
    work: StoragePath
    request: ReplayRequest
    recording: Recording
    variants: Variants


def prepare(root: str, folder: StoragePath) -> Prepared:
    """Make the recording that a replay's request needs.

    Raises:
        SettingsError: `wrong_setting` in the grid.
        SnapshotError: the request cannot be read, or no sample in the requested period can be read.
    """
    request = ReplayRequest.read(folder)
    _forget(folder)
    variants = request.variants
    refuse_many(request, len(variants.variants))
    storage = ClusterStorage(root, request.cluster)
    with _work(folder) as work:
        snapshots.record(storage, request.settings, request.start, request.end, work / SAMPLES)
        return _prepared(folder, work, request, variants)


def prepare_trace(folder: StoragePath, given: argparse.Namespace) -> Prepared:
    """Make a recording from traces.

    Raises:
        SettingsError: `wrong_setting` in the grid or the settings.
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
    # Check what was typed before the work starts; only the trace knows the real start and end.
    ReplayRequest.checked(asked | {"start": datetime.fromtimestamp(0, UTC), "end": datetime.fromtimestamp(1, UTC)})
    with _work(folder) as work:
        index = traces.record([Path(name) for name in given.trace], made, settings, work / SAMPLES)
        request = ReplayRequest.checked(asked | {"start": index.coverage.start, "end": index.coverage.end})
        _forget(folder)
        request.write(folder)
        return _prepared(folder, work, request, request.variants)


def _forget(folder: StoragePath) -> None:
    """Delete the results of an earlier request in this folder, so that they are not mistaken for new results."""
    for name in (ANSWER, REPORT, TABLE):
        (folder / name).delete()


@contextmanager
def _work(folder: StoragePath) -> Iterator[StoragePath]:
    """Yield a new folder for intermediate files. On failure only this folder is deleted."""
    work = folder / f".work-{secrets.token_hex(4)}"
    try:
        yield work
    except BaseException:
        work.delete()
        raise


def _prepared(folder: StoragePath, work: StoragePath, request: ReplayRequest, variants: Variants) -> Prepared:
    recording = Recording.read(work / SAMPLES)
    refuse_long(recording, len(variants.variants))
    say(f"{request.cluster}: {number_of(len(variants.variants), 'variant')}, {recording.coverage.sentence}")
    if recording.coverage.made:
        say(f"{request.cluster}: {recording.coverage.made}")
    for note in recording.coverage.notes:
        say(f"{request.cluster}: {note}")
    if variants.left_out:
        say(f"{request.cluster}: {number_of(len(variants.left_out), 'contradictory combination')} left out")
    names = recording.roster
    say(f"{request.cluster}: {number_of(len(names.brokers), 'broker')}, {number_of(len(names.bundles), 'bundle')}")
    return Prepared(folder, work, request, recording, variants)


def _json(text: str, what: str) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise SettingsError(Reason.WRONG_SETTING, f"{what}: not JSON: {error}") from None
