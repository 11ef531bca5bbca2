"""Prepare a replay: check its request and make its recording."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, NamedTuple

from pulsar_rebalancer.replay import snapshots
from pulsar_rebalancer.replay.progress import say
from pulsar_rebalancer.replay.refusals import refuse_long, refuse_many
from pulsar_rebalancer.replay.replay_request import ANSWER, REPORT, SAMPLES, TABLE, ReplayRequest
from pulsar_rebalancer.replay.samples import Recording
from pulsar_rebalancer.storage.layout import ClusterStorage
from pulsar_rebalancer.texts import number_of

if TYPE_CHECKING:
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

    On failure, the new folder for intermediate files is deleted, and nothing else.

    Raises:
        SettingsError: `wrong_setting` in the grid.
        SnapshotError: the request cannot be read, or no sample in the requested period can be read.
    """
    request = ReplayRequest.read(folder)
    # The results of an earlier request in this folder must not be mistaken for new results.
    for name in (ANSWER, REPORT, TABLE):
        (folder / name).delete()
    variants = request.variants
    refuse_many(request, len(variants.variants))
    storage = ClusterStorage(root, request.cluster)
    work = folder / f".work-{secrets.token_hex(4)}"
    try:
        snapshots.record(storage, request.settings, request.start, request.end, work / SAMPLES)
        recording = Recording.read(work / SAMPLES)
        refuse_long(recording, len(variants.variants))
    except BaseException:
        work.delete()
        raise
    said = [f"{number_of(len(variants.variants), 'variant')}, {recording.coverage.sentence}", *recording.coverage.notes]
    if variants.left_out:
        said.append(f"{number_of(len(variants.left_out), 'contradictory combination')} left out")
    names = recording.roster
    said.append(f"{number_of(len(names.brokers), 'broker')}, {number_of(len(names.bundles), 'bundle')}")
    for sentence in said:
        say(f"{request.cluster}: {sentence}")
    return Prepared(folder, work, request, recording, variants)
