"""Shedders by name.

A new shedder needs a module with `shed(sample, kept)` and a profile, an entry in `PROFILES`, and test vectors.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING

from pulsar_rebalancer.config.enums import Placement, Strategy
from pulsar_rebalancer.errors import SettingsError
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.strategies.shedders import (
    avg_shedder,
    gain_shedder,
    overload_shedder,
    threshold_shedder,
    transfer_shedder,
    uniform_load_shedder,
)
from pulsar_rebalancer.strategies.shedders.profile import Profile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pulsar_rebalancer.config.settings import Settings

STRATEGIES_VARIABLE = "PULSAR_REBALANCER_STRATEGIES"
"""Environment variable with the import paths of permitted custom shedders, comma-separated.

Spark and the experiments cannot read Airflow's configuration. Airflow operators pass the configured list to Spark in
this variable.
"""

SOURCES: list[Callable[[], str]] = [lambda: os.environ.get(STRATEGIES_VARIABLE, "")]
"""Functions that return the import paths of permitted custom shedders, comma-separated."""

PROFILES: Mapping[str, Profile] = {
    Strategy.AVG.value: avg_shedder.PROFILE,
    Strategy.THRESHOLD.value: threshold_shedder.PROFILE,
    Strategy.UNIFORM.value: uniform_load_shedder.PROFILE,
    Strategy.OVERLOAD.value: overload_shedder.PROFILE,
    Strategy.TRANSFER.value: transfer_shedder.PROFILE,
    Strategy.GAIN.value: gain_shedder.PROFILE,
}


def profile_of(settings: Settings) -> Profile:
    """Return the profile of the shedder named in the settings.

    Raises:
        SettingsError: `wrong_setting` if a custom shedder is not listed or cannot be imported.
    """
    return PROFILES.get(settings.strategy) or _from_outside(settings.strategy)


def counts_same_hits(strategy: str, other: str) -> bool:
    """Return whether both strategies count pairs' hits in the same way; False if either is a custom shedder."""
    one, another = PROFILES.get(strategy), PROFILES.get(other)
    return bool(one and another and one.judges_pairs and one.thresholds is another.thresholds)


def profile_shown(settings: Settings) -> Profile:
    """Return the shedder's profile, to display a run.

    If the shedder no longer exists or rejects the run's settings, the profile has only defaults.
    """
    try:
        profile = profile_of(settings)
        profile.own_settings.model_validate(settings.strategy_settings)
    except (SettingsError, ValueError):
        return Profile(overload_shedder.shed)  # the function is never called
    return profile


def placement_of(settings: Settings) -> Placement:
    """Return the placement for bundles to which the shedder assigns no destination."""
    return settings.placement or profile_of(settings).placement


def _from_outside(path: str) -> Profile:
    """Import a custom shedder, and return its module's `PROFILE`, or a default profile if it has none."""
    # Anyone who can write a clusters file, a form or a file of a run must not be able to load a module.
    if path not in (listed.strip() for source in SOURCES for listed in source().split(",")):
        raise SettingsError(
            Reason.WRONG_SETTING,
            f"strategy {path[:200]} is not listed in the option strategies of [pulsar_rebalancer]: add it to Airflow's "
            "configuration of the DAG processor, the workers and the API server, or correct it",
        )
    module, _, name = path.partition(":")
    try:
        loaded = importlib.import_module(module)
        shed = getattr(loaded, name)
    except (Exception, SystemExit) as error:  # someone else's module may raise anything at import
        raise SettingsError(Reason.WRONG_SETTING, f"strategy {path}: {type(error).__name__}: {error}") from None
    if not callable(shed):
        raise SettingsError(Reason.WRONG_SETTING, f"strategy {path}: cannot be called")
    profile = getattr(loaded, "PROFILE", None)
    return profile if isinstance(profile, Profile) and profile.shed is shed else Profile(shed)
