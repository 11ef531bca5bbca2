"""The `extra` field of an Airflow connection: a JSON object with known keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsar_rebalancer.errors import SettingsError
from pulsar_rebalancer.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping, Set

    from airflow.sdk import Connection


def read_extra(connection: Connection, known: Set[str]) -> dict[str, object]:
    """Return the extra's keys and values, except keys without a value.

    Args:
        known: allowed keys. Other keys are rejected, because a misspelt key could leave a protection switched off.

    Raises:
        SettingsError: `wrong_setting`; the message does not name the connection.
    """
    try:
        given: object = connection.extra_dejson
    except RecursionError:
        raise SettingsError(Reason.WRONG_SETTING, "extra is nested too deeply") from None
    if not isinstance(given, dict):
        raise SettingsError(Reason.WRONG_SETTING, "extra: expected a JSON object")
    extra = {name: value for name, value in given.items() if value not in (None, "")}
    unknown = sorted(set(extra) - known)
    if unknown:
        raise SettingsError(
            Reason.WRONG_SETTING, f"extra: unknown keys {', '.join(unknown)}; known: {', '.join(sorted(known))}"
        )
    return extra


def flag(extra: Mapping[str, object], key: str) -> bool:
    """Return the boolean value of a key; False if the key is missing.

    Raises:
        SettingsError: `wrong_setting`.
    """
    value = extra.get(key, False)
    if str(value).lower() in ("true", "false"):
        return str(value).lower() == "true"
    raise SettingsError(Reason.WRONG_SETTING, f"{key}: {value!r} is neither true nor false")
