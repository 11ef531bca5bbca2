"""Mask tokens and secrets in server responses, so that they are never shown or stored."""

from __future__ import annotations

import html
import json
from typing import TYPE_CHECKING
from urllib.parse import quote

from pulsar_rebalancer.texts import storable

if TYPE_CHECKING:
    from pydantic import SecretStr

MASK = "***"


class TokenMask:
    """Replaces secrets in responses with `***`, both in plain form and escaped for a URL, HTML or JSON."""

    def __init__(self, token: SecretStr | None) -> None:
        self._forms: list[str] = []
        self.add(token.get_secret_value() if token is not None else "")

    def add(self, value: str) -> None:
        """Add a token or secret to be masked."""
        forms = {value, quote(value, safe=""), html.escape(value), json.dumps(value)[1:-1]} - {""}
        self._forms = sorted(forms.union(self._forms), key=len, reverse=True)

    def body(self, data: bytes) -> bytes:
        """Return a response body with the secrets masked."""
        for form in self._forms:
            data = data.replace(form.encode(), MASK.encode())
        return data

    def text(self, text: str) -> str:
        """Return the text with the secrets masked, in a form that can be stored (`texts.storable`).

        Mask text before cutting it: part of a secret is not recognised.
        """
        for form in self._forms:
            text = text.replace(form, MASK)
        return storable(text)
