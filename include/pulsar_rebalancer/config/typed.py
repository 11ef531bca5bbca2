"""Check the values that people enter in forms and in the clusters file before other code uses them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel, ValidationError

from pulsar_rebalancer.config.settings import settings_error
from pulsar_rebalancer.errors import SettingsError
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.texts import typed

if TYPE_CHECKING:
    from collections.abc import Mapping

_Form = TypeVar("_Form", bound=BaseModel)


def typed_values(values: Mapping[str, object], where: str) -> dict[str, object]:
    """Return the values with every string cleaned by `texts.typed`.

    Args:
        where: source of the values, for error messages.

    Raises:
        SettingsError: `wrong_setting` if a string cannot be stored; the message names its key.
    """
    cleaned: dict[str, object] = {}
    for key, value in values.items():
        try:
            cleaned[key] = typed(value)
        except ValueError as error:
            raise SettingsError(Reason.WRONG_SETTING, f"{where}: {key}: {error}") from None
    return cleaned


def parse_typed(form: type[_Form], values: Mapping[str, object], where: str) -> _Form:
    """Return a form with the values that a person entered; empty fields get their defaults.

    Raises:
        SettingsError: `wrong_setting` or `contradiction`; the message names the fields.
    """
    given = {name: value for name, value in typed_values(values, where).items() if value not in (None, "", [])}
    try:
        return form.model_validate(given)
    except ValidationError as error:
        raise settings_error(error, where) from None
