"""Shedders by name: how they are found, checked against the settings, and what they leave out.

A new shedder needs a module with `shed(sample, state)` and a profile, an entry in `PROFILES`, and test vectors.
"""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from pulsar_rebalancer.config import clusters_file, settings
from pulsar_rebalancer.config.clusters_file import ClusterEntry, RunParams, RunSettings
from pulsar_rebalancer.config.field_types import Placement, Strategy
from pulsar_rebalancer.config.settings import Settings
from pulsar_rebalancer.errors import SettingsError
from pulsar_rebalancer.isolation import Policies
from pulsar_rebalancer.names import is_extensible
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.run.request import Finding, RunRequest
from pulsar_rebalancer.run.snapshot import Snapshot
from pulsar_rebalancer.strategies.sample import Line, Profile, Threshold
from pulsar_rebalancer.strategies.shedders import (
    avg_shedder,
    gain_shedder,
    overload_shedder,
    threshold_shedder,
    transfer_shedder,
    uniform_load_shedder,
)
from pulsar_rebalancer.texts import error_line

_log = logging.getLogger(__name__)

STRATEGIES_VARIABLE = "PULSAR_REBALANCER_STRATEGIES"
"""Environment variable with the import paths of permitted custom shedders, comma-separated.

Spark and the experiments cannot read Airflow's configuration. Airflow operators pass the configured list to Spark in
this variable.
"""

PERMITTED_SOURCES: list[Callable[[], str]] = [lambda: os.environ.get(STRATEGIES_VARIABLE, "")]
"""Functions that each return a comma-separated list of the import paths of permitted custom shedders."""

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

    Raises SettingsError `wrong_setting` if a custom shedder is not listed or cannot be imported.
    """
    return PROFILES.get(settings.strategy) or _import_shedder(settings.strategy)


def have_same_hits(strategy: str, other: str) -> bool:
    """Return whether both strategies count pairs' hits in the same way; False if either is a custom shedder."""
    one, another = PROFILES.get(strategy), PROFILES.get(other)
    return bool(one and another and one.judges_pairs and one.thresholds is another.thresholds)


def safe_profile_of(settings: Settings) -> Profile:
    """Return the shedder's profile, to display a run.

    If the shedder no longer exists or rejects the run's settings, the profile has only defaults. A function of a custom
    shedder that fails is replaced by its default: it must not hide the cluster, or other clusters on the same page.
    """
    try:
        profile = profile_of(settings)
        profile.own_settings.model_validate(settings.strategy_settings)
    except BaseException as error:  # someone else's module may raise anything
        if not isinstance(error, SettingsError | ValueError):
            _log.warning("strategy %s: %s", settings.strategy, error_line(error))
        return _DEFAULT_PROFILE
    if settings.strategy in PROFILES:
        return profile
    shown: dict[str, Any] = {name: _function_with_default(settings.strategy, name, profile) for name in _RESULT_TYPES}
    return replace(profile, **shown)


_DEFAULT_PROFILE = Profile(overload_shedder.shed)  # the function is never called
_RESULT_TYPES: dict[str, TypeAdapter[Any]] = {
    "thresholds": TypeAdapter(dict[str, Threshold]),
    "cluster_hits": TypeAdapter(int | None),
    "lines": TypeAdapter(tuple[Line, ...]),
    "sentence": TypeAdapter(str),
}
"""Names of the functions in `Profile` whose results are shown to users, with the type of each result."""


def _function_with_default(strategy: str, name: str, profile: Profile) -> Callable[..., object]:
    def answer(*given: object) -> object:
        try:
            return _RESULT_TYPES[name].validate_python(getattr(profile, name)(*given))
        except BaseException as error:
            _log.warning("strategy %s: %s: %s", strategy, name, error_line(error))
            return getattr(_DEFAULT_PROFILE, name)(*given)

    return answer


def settings_of_classes(manager: str, shedder: str, placement: str) -> dict[str, Any] | None:
    """Return the settings that correspond to brokers' classes; None if the shedder is not one of Pulsar's."""
    if is_extensible(manager):
        return {"strategy": Strategy.TRANSFER}
    if shedder not in {*map(str, Strategy)} - {Strategy.GAIN}:
        return None
    return {"strategy": shedder, "placement": placement if placement in {*map(str, Placement)} else None}


def placement_of(settings: Settings) -> Placement:
    return settings.placement or profile_of(settings).placement


_HALF, _UNEQUAL = 0.5, 1.25  # share of a pair's difference to move; ratio of CPU limits


def settings_findings(settings: Settings, cpu_limits: Iterable[float]) -> list[Finding]:
    """Return a warning for each choice that PIP-364 or the experiments advise against.

    Args:
        cpu_limits: the brokers' CPU limits, in percent of one core; NaN if unknown.
    """
    found, strategy, placement = [], settings.strategy, placement_of(settings)
    limits = [limit for limit in cpu_limits if limit > 0]
    if strategy == Strategy.THRESHOLD and placement is Placement.LEAST_RATE:
        found.append(f"{strategy} sheds by resource usage, but {placement} places by message rate")
    if strategy == Strategy.AVG and settings.max_unload_percentage < _HALF:
        found.append(f"{strategy} with max_unload_percentage {settings.max_unload_percentage:g} leaves pairs uneven")
    if strategy in (Strategy.AVG, Strategy.UNIFORM) and limits and max(limits) > _UNEQUAL * min(limits):
        found.append(f"{strategy} suits equal brokers; yours have {min(limits) / 100:g} to {max(limits) / 100:g} cores")
    host = settings.host_usage_interval_minutes
    if settings.interval_seconds < host * 60:
        seconds = f"{host:g} ({host * 60:g} s)"
        found.append(f"interval_seconds {settings.interval_seconds:g} is below host_usage_interval_minutes {seconds}")
    return [Finding(reason=Reason.NOT_RECOMMENDED, detail=detail) for detail in found]


def _import_shedder(path: str) -> Profile:
    """Import a custom shedder, and return its module's `PROFILE`, or a default profile if it has none."""
    # Anyone who can write a clusters file, a form or a file of a run must not be able to load a module.
    if path not in (listed.strip() for source in PERMITTED_SOURCES for listed in source().split(",")):
        raise SettingsError(
            Reason.WRONG_SETTING,
            f"strategy {path[:200]} is not listed in the option strategies of [pulsar_rebalancer]: correct the name, "
            "or add the strategy to this option for the DAG processor, the workers and the API server",
        )
    module, _, name = path.partition(":")
    try:
        loaded = importlib.import_module(module)
        shed = getattr(loaded, name)
    except BaseException as error:  # someone else's module may raise anything at import
        raise SettingsError(Reason.WRONG_SETTING, f"strategy {path}: {error_line(error)}") from None
    if not callable(shed):
        raise SettingsError(Reason.WRONG_SETTING, f"strategy {path} is not callable")
    profile = getattr(loaded, "PROFILE", None)
    return profile if isinstance(profile, Profile) and profile.shed is shed else Profile(shed)


_PAIRS_PARAM = "force_threshold"
_STRATEGY_PARAMS = {_PAIRS_PARAM, *(name for profile in PROFILES.values() for name in profile.run_params)}
"""Parameters of a manual run that only some strategies support."""


def checked_settings(given_settings: Settings, label: str) -> Settings:
    """Check settings against their strategy, and fill in defaults for the strategy's own settings.

    Args:
        label: source of the settings, for errors.

    Raises:
        SettingsError: `wrong_setting` or `contradiction`. Any error in a custom shedder's profile is converted
            to one of these, so that a faulty profile affects only its own cluster.
    """
    try:
        profile = profile_of(given_settings)
        own = profile.own_settings.model_validate(given_settings.strategy_settings).model_dump(mode="json")
        filled = given_settings.model_copy(update={"strategy_settings": own})
        profile.check(filled)
        for said in (profile.thresholds, profile.cluster_hits):
            said(filled)
        for mean in (None, 50.0):
            profile.lines(filled, mean)
    except ValidationError as error:
        raise settings.settings_error(error, f"{label}: strategy_settings") from None
    except SettingsError as error:
        raise SettingsError(error.reason, f"{label}: {error.message}") from None
    except ValueError as error:
        raise SettingsError(Reason.CONTRADICTION, f"{label}: {error}") from None
    except BaseException as error:  # such as SystemExit: someone else's profile may raise anything
        why = f"{label}: strategy {given_settings.strategy}: {error_line(error)}"
        raise SettingsError(Reason.WRONG_SETTING, why) from error
    return filled if own != given_settings.strategy_settings else given_settings


def validate(values: Mapping[str, object], *, label: str) -> Settings:
    """Return validated settings like `config.settings.validate`, but also check them against their strategy."""
    return checked_settings(settings.validate(values, label=label), label)


def load_clusters(path: Path) -> list[ClusterEntry]:
    """Return clusters like `config.clusters_file.load_clusters`, but also check settings against their strategies."""
    return clusters_file.load_clusters(path, checked_settings)


def resolve(file: Mapping[str, object], brokers: Mapping[str, str], params: RunParams | None = None) -> RunSettings:
    """Return effective settings like `clusters_file.resolve`, but also check them against the strategy.

    Raises SettingsError `wrong_setting` or `contradiction`, with the key's name.
    """
    resolved = clusters_file.resolve(file, brokers, params, checked_settings)
    profile = profile_of(resolved.settings)
    known = {*profile.run_params, *([_PAIRS_PARAM] if profile.thresholds(resolved.settings) else [])}
    unknown = sorted(_STRATEGY_PARAMS - known)
    foreign = [name for name in unknown if getattr(params, name, None) is not None]
    if foreign:
        raise SettingsError(
            Reason.CONTRADICTION, f"strategy {resolved.settings.strategy} does not support {', '.join(foreign)}"
        )
    return resolved


def force_threshold(request: RunRequest) -> float | None:
    """Return the smallest gap, in points, at which a forced run moves bundles.

    Return None if the run is not forced or the strategy has no pairs.
    """
    settings, given = request.resolved.settings, request.params.force_threshold
    low = profile_of(settings).thresholds(settings).get("low") if request.is_forced else None
    return low.gap if low and given is None else given


def run_left_out_reasons(
    run: Snapshot, settings: Settings | None = None, policies: Policies | None = None
) -> dict[str, Reason]:
    """Return a run's brokers that can be neither source nor destination, each with the reason.

    `settings` and `policies` are without the rules that a person lifted; None for the run's own.
    """
    bad, drained = run.validation.quarantine_reasons, run.state.drains.brokers
    return left_out_reasons(settings or run.settings, policies or run.policies, quarantined=bad, drained=drained)


def left_out_reasons(
    settings: Settings, policies: Policies, *, quarantined: Iterable[str] = (), drained: Iterable[str] = ()
) -> dict[str, Reason]:
    """Return the brokers that can be neither source nor destination, each with the most serious reason.

    Args:
        quarantined: brokers that validation left out or that have no report; unknown names are returned too.
    """
    reasons = brokers_not_compared(settings, policies, drained) | dict.fromkeys(quarantined, Reason.BROKER_QUARANTINED)
    return reasons | dict.fromkeys(settings.excluded_brokers, Reason.BROKER_EXCLUDED)


def brokers_not_compared(settings: Settings, policies: Policies, drained_brokers: Iterable[str]) -> dict[str, Reason]:
    """Return the brokers that are not compared with other brokers, each with the reason.

    These brokers are drained, or accept no persistent topics and are therefore useless as the destination in a pair. If
    an isolation policy reserves a broker without persistent topics, the broker is compared, because it receives bundles
    from the policy's namespaces.
    """
    unpaired = policies.without_persistent if safe_profile_of(settings).thresholds(settings) else ()
    closed = (name for name in unpaired if policies.reserving_policy(name) is None)
    return dict.fromkeys(closed, Reason.NO_PERSISTENT_TOPICS) | dict.fromkeys(drained_brokers, Reason.DRAINING)
