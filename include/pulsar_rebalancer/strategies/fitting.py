"""Check settings against their strategy. The package `config/` knows only the strategies' names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import ValidationError

from pulsar_rebalancer.config import clusters_file, resolution, settings
from pulsar_rebalancer.errors import SettingsError
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.strategies.shedders.registry import PROFILES, profile_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pulsar_rebalancer.config.clusters_file import ClusterEntry
    from pulsar_rebalancer.config.resolution import Resolved, RunParams
    from pulsar_rebalancer.config.settings import Settings
    from pulsar_rebalancer.run.request import RunRequest

_OF_PAIRS = "force_threshold"
_OF_SOME = {_OF_PAIRS, *(name for profile in PROFILES.values() for name in profile.run_params)}
"""Parameters of a manual run that not every strategy supports."""


def checked(given: Settings, where: str) -> Settings:
    """Check settings against their strategy, and fill in defaults for the strategy's own settings.

    Args:
        where: source of the settings, for errors.

    Raises:
        SettingsError: `wrong_setting` or `contradiction`. Any error in a custom shedder's profile is converted
            to one of these, so that a faulty profile affects only its own cluster.
    """
    try:
        profile = profile_of(given)
        own = profile.own_settings.model_validate(given.strategy_settings).model_dump(mode="json")
        filled = given.model_copy(update={"strategy_settings": own})
        profile.check(filled)
        for said in (profile.thresholds, profile.cluster_hits):
            said(filled)
        profile.lines(filled, None)
    except ValidationError as error:
        raise settings.settings_error(error, f"{where}: strategy_settings") from None
    except SettingsError as error:
        raise SettingsError(error.reason, f"{where}: {error.message}") from None
    except ValueError as error:
        raise SettingsError(Reason.CONTRADICTION, f"{where}: {error}") from None
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise SettingsError(Reason.WRONG_SETTING, f"{where}: strategy {given.strategy}: {why}") from error
    return filled if own != given.strategy_settings else given


def validate(values: Mapping[str, object], *, where: str) -> Settings:
    """Return validated settings like `config.settings.validate`, but also check them against their strategy."""
    return checked(settings.validate(values, where=where), where)


def load_clusters(path: Path) -> list[ClusterEntry]:
    """Return clusters like `config.clusters_file.load_clusters`, but also check settings against their strategies."""
    return clusters_file.load_clusters(path, checked)


def resolve(file: Mapping[str, object], brokers: Mapping[str, str], params: RunParams | None = None) -> Resolved:
    """Return effective settings like `config.resolution.resolve`, but also check them against the strategy.

    Raises:
        SettingsError: `wrong_setting` or `contradiction`, with the key's name.
    """
    resolved = resolution.resolve(file, brokers, params, checked)
    profile = profile_of(resolved.settings)
    known = {*profile.run_params, *([_OF_PAIRS] if profile.thresholds(resolved.settings) else [])}
    unknown = sorted(_OF_SOME - known)
    foreign = [name for name in unknown if getattr(params, name, None) is not None]
    if foreign:
        raise SettingsError(
            Reason.CONTRADICTION, f"{', '.join(foreign)}: strategy {resolved.settings.strategy} does not use them"
        )
    return resolved


def force_threshold(request: RunRequest) -> float | None:
    """Return the smallest gap, in points, at which a forced run moves bundles.

    Return None if the run is not forced or the strategy has no pairs.
    """
    settings, given = request.resolved.settings, request.params.force_threshold
    low = profile_of(settings).thresholds(settings).get("low") if request.forced else None
    return low.gap if low and given is None else given
