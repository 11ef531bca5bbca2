"""The token for requests: constant, read from a file, or requested from an issuer. It is renewed before it expires."""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pulsar_rebalancer.admin.connection import is_token
from pulsar_rebalancer.admin.token_mask import TokenMask
from pulsar_rebalancer.errors import AdminError
from pulsar_rebalancer.reasons import Reason

if TYPE_CHECKING:
    from pathlib import Path

    from pulsar_rebalancer.admin.connection import AdminConnection

_PAUSE_S = 1.0
"""Minimum seconds between the issuer's response and the next request, and between two reads of a token file."""
_THREAD_S = 30.0
"""Maximum seconds that a thread of the Pulsar client waits for a token."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token, the time to renew it, and the time at which it expires (both on the `time.monotonic` clock)."""

    value: str
    renew_at: float = math.inf
    expires_at: float = math.inf


class Tokens:
    """One client's tokens. Concurrent requests wait for the same renewal.

    A token that cannot be renewed is used until it expires or a broker rejects it.
    """

    def __init__(self, connection: AdminConnection) -> None:
        self.mask = TokenMask(connection.token)
        self._connection = connection
        self._token = Token("" if connection.token is None else connection.token.get_secret_value())
        self._failed: AdminError | None = None
        self._next_attempt = 0.0
        self._lock = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def get(self, broker: str = "", refused: str | None = None) -> str:
        """Return the token; empty if the connection has none.

        Args:
            broker: brokerId or address to which the token is to be sent; errors name it.
            refused: token that a broker has rejected. If this token cannot be replaced, it is returned again.

        Raises:
            AdminError: `credentials_file`, `issuer_unavailable` or `issuer_refused`; nothing was sent to a broker.
            SettingsError: the issuer's URL is invalid.
        """
        if self._connection.token_file is None and self._connection.oauth2 is None:
            return self._token.value
        async with self._lock:
            self._loop = asyncio.get_running_loop()
            now = time.monotonic()
            useless = self._token.value in ("", refused)
            if (useless or now >= self._token.renew_at) and now >= self._next_attempt:
                await self._renew()
                useless = self._token.value in ("", refused)
            if self._failed is not None and (useless or now >= self._token.expires_at):
                raise AdminError(self._failed.reason, self._failed.message, broker=broker, sent=False)
            return self._token.value

    def get_in_thread(self) -> str:
        """Return the token to a caller in another thread; if it cannot be renewed, return the last token."""
        with suppress(Exception):  # Pulsar's client would print it
            if self._loop is not None:
                return asyncio.run_coroutine_threadsafe(self.get(), self._loop).result(_THREAD_S)
        return self._token.value

    async def _renew(self) -> None:
        try:
            if self._connection.oauth2 is not None:
                from pulsar_rebalancer.admin.issuer import fetch  # loads httpx

                self._token = await fetch(self._connection.oauth2, self._connection.ca_file, self.mask)
            elif self._connection.token_file is not None:
                self._token = _read(self._connection.token_file)
            self._failed = None
            self.mask.add(self._token.value)
        except AdminError as error:
            self._failed = error
        if self._connection.oauth2 is not None:
            self._next_attempt = time.monotonic() + _PAUSE_S

    def refusal(self, token: str) -> Reason:
        """Return the reason code for a token that a broker rejected and that cannot be replaced."""
        if self._connection.oauth2 is not None:
            return Reason.TOKEN_REFUSED
        return Reason.TOKEN_EXPIRED if _has_expired(token) else Reason.UNAUTHORIZED


def _has_expired(token: str) -> bool:
    """Return whether a token is a JSON web token that has expired; other tokens do not state when they expire."""
    import jwt

    try:
        jwt.decode(token, options={"verify_signature": False, "verify_exp": True})
    except jwt.PyJWTError as error:
        return isinstance(error, jwt.ExpiredSignatureError)
    return False


def _read(path: Path) -> Token:
    value = read_file(path).strip()
    if not is_token(value):
        raise unusable(path, "is empty, or holds other characters than printable ASCII (not shown)")
    return Token(value, renew_at=time.monotonic() + _PAUSE_S)


def read_file(path: Path) -> str:
    """Return the contents of a credentials file.

    Raises:
        AdminError: `credentials_file`.
    """
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:  # its message would quote the content
        raise unusable(path, "is not text in UTF-8") from None
    except OSError as error:
        raise unusable(path, f"cannot be read: {error.strerror}") from None


def unusable(path: Path, what: str) -> AdminError:
    """Return the error for a credentials file that cannot be used."""
    return AdminError(Reason.CREDENTIALS_FILE, f"{path} {what}. {Reason.CREDENTIALS_FILE.action}", sent=False)
