"""Deployment settings: the options of the section `[pulsar_rebalancer]` in Airflow's configuration.

`provider` declares them with their defaults and descriptions.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from airflow.sdk.configuration import conf

from pulsar_rebalancer.errors import SettingsError
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.strategies.shedders import registry
from pulsar_rebalancer_airflow.provider import OPTIONS, SECTION

VARIABLES = f"AIRFLOW__{SECTION.upper()}__"
"""Prefix of Airflow's environment variables for the options."""


def option(name: str) -> str:
    """Return the value of an option; empty if the option has no value.

    Raises:
        SettingsError: `wrong_setting` if the section has an unknown option, which might be a misspelt name.
    """
    given = {variable.removeprefix(VARIABLES).lower() for variable in os.environ if variable.startswith(VARIABLES)}
    if conf.has_section(SECTION):
        given |= set(conf.options(SECTION))
    if unknown := sorted(given - OPTIONS.keys()):
        raise wrong_option(unknown[0], f"unknown option; known: {', '.join(OPTIONS)}")
    return conf.get(SECTION, name, fallback="") or ""


def option_path(name: str) -> Path:
    """Return the value of an option that is a path.

    Raises:
        SettingsError: `wrong_setting` if the path is relative, because Airflow's processes run in different folders.
    """
    path = option(name)
    if not Path(path).is_absolute():
        raise wrong_option(name, f"{path!r} is not an absolute path")
    return Path(path)


def wrong_option(name: str, problem: str) -> SettingsError:
    """Return the error for an option with a wrong value."""
    return SettingsError(Reason.WRONG_SETTING, f"[{SECTION}] {name}: {problem}")


registry.SOURCES.append(partial(option, "strategies"))
