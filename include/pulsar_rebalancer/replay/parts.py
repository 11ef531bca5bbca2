"""Split a replay into independent parts, each with some of the variants over one period."""

from __future__ import annotations

import math
import traceback
from typing import TYPE_CHECKING, NamedTuple

from pulsar_rebalancer.errors import RebalancerError
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.replay.closed_loop import replay
from pulsar_rebalancer.replay.progress import share_of
from pulsar_rebalancer.replay.replay_request import SAMPLES, ReplayRequest, Stretch, stretches
from pulsar_rebalancer.replay.samples import Recording
from pulsar_rebalancer.storage.path import StoragePath

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pulsar_rebalancer.replay.preparation import Prepared
    from pulsar_rebalancer.replay.variant_outcome import VariantOutcome
    from pulsar_rebalancer.replay.variants import Variant


class Part(NamedTuple):
    """Part of a replay: some of its variants over one period."""

    work: str
    number: int
    variants: Sequence[Variant]
    request: ReplayRequest
    stretch: Stretch


def parts_of(prepared: Prepared, wanted: int) -> list[Part]:
    """Return the parts of a replay, at least `wanted` of them if there are enough variants and periods."""
    request, variants = prepared.request, prepared.variants.variants
    apart = stretches(prepared.recording, days_apart=request.days_apart)
    groups = min(len(variants), max(1, math.ceil(wanted / len(apart))))
    # Neighbours differ in one value, so dealing them out in turn gives each group some of every strategy.
    work = [(stretch, variants[group::groups]) for stretch in apart for group in range(groups)]
    return [Part(prepared.work.uri, number, dealt, request, stretch) for number, (stretch, dealt) in enumerate(work)]


def replayed(part: Part) -> list[VariantOutcome] | str:
    """Return the outcomes of a part's variants, or the error message.

    Raising the error would end the other replays too.
    """
    folder, request = StoragePath(part.work), part.request
    try:
        return replay(
            Recording.read(folder / SAMPLES),
            part.variants,
            request.settings,
            first=part.stretch.first,
            last=part.stretch.last,
            seed=request.seed,
            report=share_of(folder, part.number),
        )
    except RebalancerError as error:
        return str(error)
    except Exception as error:
        traceback.print_exc()
        return f"{type(error).__name__}: {error} [{Reason.REPLAY_FAILED}]"
