"""Mask a token that a server sends back: it is shown to nobody and stored nowhere."""

from __future__ import annotations

import base64
import html
import re
import string
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from pulsar_rebalancer.texts import one_line, storable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic import SecretStr

MASK = "***"

_RUN = 12
"""So many characters of a token in a row are masked: a text may hold a part of it alone."""
_LAYERS = 4
"""How often a message is decoded in search of the token: JSON in JSON, percents in entities."""
_SHORTEST_ENCODED = 8
"""Encoded forms of a shorter token would be found in any text."""
_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_ESCAPE = re.compile(r"\\+(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(?=[!-/:-@\[-`{-~]))")


class TokenMask:
    """Replaces a token by `***` in what came from the network and in what is shown.

    Args:
        token: the connection's token; None masks nothing.
    """

    def __init__(self, token: SecretStr | None) -> None:
        self._forms = tuple(dict.fromkeys(_forms(token.get_secret_value()))) if token is not None else ()
        self._data = tuple(form.encode() for form in self._forms)
        lengths = {form: min(_RUN, len(form)) for form in self._forms}
        self._runs: dict[int, set[str]] = {}
        for form, length in lengths.items():
            text = form.translate(_LOWER)
            self._runs.setdefault(length, set()).update(text[i : i + length] for i in range(len(text) - length + 1))

    def body(self, data: bytes) -> bytes:
        """Return an answer's body without the token, where it stands there as a whole."""
        for form in self._data:
            data = data.replace(form, MASK.encode())
        return data

    def value(self, text: str) -> str:
        """Return a text of a decoded document without the token, storable."""
        for form in self._forms:
            text = text.replace(form, MASK)
        return storable(text)

    def message(self, text: str) -> str:
        """Return a message without the token and without parts of it, in whatever encoding it was quoted."""
        shown = layer = self._without_runs(one_line(text, most=len(text) + 1))
        for _ in range(_LAYERS):
            decoded = _decoded(layer)
            if decoded == layer:
                break
            layer = self._without_runs(decoded)
            if layer != decoded:
                shown = layer
        return shown

    def _without_runs(self, text: str) -> str:
        lower = text.translate(_LOWER)
        hidden = bytearray(len(text))
        for length, runs in self._runs.items():
            for at in range(len(text) - length + 1):
                if lower[at : at + length] in runs:
                    hidden[at : at + length] = b"\1" * length
        parts = (MASK if mark else character for character, mark in zip(text, hidden, strict=True))
        return re.sub(r"(?:\*\*\*)+", MASK, "".join(parts)) if any(hidden) else text


def _forms(token: str) -> Iterator[str]:
    """Yield the token as it is, percent-encoded, in hexadecimal digits and in Base64 at each of three offsets."""
    yield token
    if len(token) < _SHORTEST_ENCODED:
        return
    yield quote(token, safe="")
    data = token.encode()
    yield data.hex()
    for before in range(3):
        # Only the characters that depend on the token alone: what stands before and after it is not known.
        first, last = -(-before * 8 // 6), (before + len(data)) * 8 // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield encode(b"\0" * before + data).decode()[first:last]


def _decoded(text: str) -> str:
    text = _ESCAPE.sub(lambda found: chr(int(found[1] or found[2] or "0", 16)) if found[1] or found[2] else "", text)
    decoded = html.unescape(unquote(text))
    return one_line(decoded, most=len(decoded) + 1)
