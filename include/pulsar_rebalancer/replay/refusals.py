"""Limits on the size of a replay. Larger replays are rejected with advice on how to make them smaller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsar_rebalancer.errors import SettingsError
from pulsar_rebalancer.reasons import Reason

if TYPE_CHECKING:
    from pulsar_rebalancer.replay.replay_request import ReplayRequest
    from pulsar_rebalancer.replay.samples import Recording

MOST_HOURS = 5.0
"""Maximum estimated core hours for a replay; the task that waits for the replay times out after six hours."""

MOST_OUTCOMES = 50_000_000
"""Maximum number of samples times variants in one replay: each combination yields a figure."""

_LESS = "take a shorter period or fewer variants"

_SECONDS_PER_BROKER, _SECONDS_PER_BUNDLE = 25e-6, 50e-9
"""Computing time in seconds per sample and variant, for each broker and each bundle (see docs/performance.md)."""


def refuse_many(request: ReplayRequest, variants: int) -> None:
    """Reject a replay with too many samples and variants, before any data is read.

    Raises:
        SettingsError: `wrong_setting`.
    """
    minutes = (request.end - request.start).total_seconds() / 60
    samples = minutes / max(1.0, request.settings.interval_seconds / 60)
    if samples * variants > MOST_OUTCOMES:
        raise SettingsError(
            Reason.WRONG_SETTING,
            f"{variants} variants over {samples:,.0f} samples are more than {MOST_OUTCOMES:,} together: {_LESS}",
        )


def refuse_long(recording: Recording, variants: int) -> None:
    """Reject a replay that would take too long, once the size of the cluster is known.

    Raises:
        SettingsError: `wrong_setting`.
    """
    samples, names = len(recording.index.minutes), recording.roster
    step = len(names.brokers) * _SECONDS_PER_BROKER + len(names.bundles) * _SECONDS_PER_BUNDLE
    hours = samples * variants * step / 3600
    if hours > MOST_HOURS:
        raise SettingsError(
            Reason.WRONG_SETTING,
            f"{variants} variants over {samples:,} samples of {len(names.brokers)} brokers and {len(names.bundles):,} "
            f"bundles would take one core about {hours:,.0f} hours, more than {MOST_HOURS:g}: {_LESS}",
        )
