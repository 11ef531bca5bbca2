"""The token for requests: constant, read from a file, or requested from an issuer. It is renewed before it expires."""

from __future__ import annotations

import asyncio
import math
import os
import ssl
import stat
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from pulsar_rebalancer.errors import AdminError, RebalancerError, SettingsError
from pulsar_rebalancer.pulsar.answers import TokenMask, first_line
from pulsar_rebalancer.pulsar.connection import AdminConnection, OAuth2, address_or_empty, https_url, is_token
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.texts import parse_json

_TIMEOUT_S = 15.0
"""Maximum seconds to get a token, including all requests."""
_MAX_ANSWER_BYTES = 64 * 1024
_MAX_FILE_BYTES = 1024 * 1024
_MAX_LIFETIME_S = 1e9
_RENEWAL_FRACTION = 0.8
"""Fraction of a token's lifetime after which it is renewed."""
_HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "pulsar-rebalancer"}


async def fetch_token(oauth2_settings: OAuth2, ca_file: Path | None, mask: TokenMask) -> Token:
    """Get a token. The credentials file is read each time, in case its secret has been replaced.

    Raises AdminError (`credentials_file`, `issuer_unavailable`, `issuer_refused`), and SettingsError for an
    invalid issuer URL.
    """
    form, issuer_url = _request_form_and_issuer(oauth2_settings, mask)
    url, begun = f"{issuer_url}/.well-known/openid-configuration", time.monotonic()
    try:
        # The environment's proxies are used: TLS hides everything but the issuer's name from them.
        async with asyncio.timeout(_TIMEOUT_S), httpx.AsyncClient(verify=_ssl_context(ca_file), timeout=None) as client:
            status, metadata = await _request_json(client, "GET", url, mask)
            endpoint = str(metadata.get("token_endpoint"))
            if status != 200 or not endpoint.startswith("https://") or not address_or_empty(endpoint):
                raise ValueError(f"the issuer answered {status}, but the answer has no https token_endpoint")
            url = endpoint
            status, answer = await _request_json(client, "POST", url, mask, data=form)
    except (TimeoutError, ssl.SSLError, httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        detail = str(error) or f"no answer within {_TIMEOUT_S:g} s ({type(error).__name__})"
        raise _failure(Reason.ISSUER_UNAVAILABLE, url, detail, mask) from None
    value, seconds = answer.get("access_token"), answer.get("expires_in")
    if status in (400, 401, 403):
        said = (str(answer[key]) for key in ("error", "error_description") if answer.get(key))
        detail = ", ".join((f"the issuer answered {status}", *said))
        raise _failure(Reason.ISSUER_REFUSED, url, detail, mask)
    if status != 200 or not isinstance(value, str) or not is_token(value):
        raise _failure(Reason.ISSUER_UNAVAILABLE, url, f"the issuer answered {status}, without an access_token", mask)
    if not isinstance(seconds, int | float) or not 0 < seconds < _MAX_LIFETIME_S:
        return Token(value)  # renewed once a broker refuses it
    return Token(value, begun + _RENEWAL_FRACTION * seconds, begun + seconds)


def _request_form_and_issuer(oauth2_settings: OAuth2, mask: TokenMask) -> tuple[dict[str, str], str]:
    path = oauth2_settings.credentials_file
    try:
        document = parse_json(read_secret_file(path).encode())
    except ValueError:
        document = None
    found = document if isinstance(document, dict) else {}
    form = {"grant_type": found.get("type", "client_credentials")}
    form |= {name: found.get(name) for name in ("client_id", "client_secret")}
    if form["grant_type"] != "client_credentials" or not all(v and isinstance(v, str) for v in form.values()):
        raise file_error(path, "the file must be JSON of type client_credentials, with client_id and client_secret")
    mask.add(form["client_secret"])
    form |= {key: value for key in ("audience", "scope") if (value := getattr(oauth2_settings, key))}
    return form, https_url(oauth2_settings.issuer_url or str(found.get("issuer_url", "")), "issuer_url")


def _ssl_context(ca_file: Path | None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if ca_file is not None:
        try:
            context.load_verify_locations(ca_file)
        except OSError as error:  # perhaps it is just being replaced
            raise ValueError(f"ca_file {ca_file} cannot be read: {error.strerror or error}") from None
    return context


async def _request_json(
    client: httpx.AsyncClient, method: str, url: str, mask: TokenMask, **options: Any
) -> tuple[int, dict[str, Any]]:
    body = b""
    async with client.stream(method, url, headers=_HEADERS, **options) as response:
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > _MAX_ANSWER_BYTES:
                raise ValueError(f"the answer is longer than {_MAX_ANSWER_BYTES} bytes")
    try:
        document = parse_json(body, mask.hide)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise ValueError(f"the issuer answered {response.status_code}, but the answer is not a JSON object")
    return response.status_code, document


def _failure(reason: Reason, url: str, detail: str, mask: TokenMask) -> AdminError:
    cause = first_line(mask.hide(detail)).removesuffix(".")
    return AdminError(reason, f"no token from {first_line(url)}: {cause}. {reason.action}", was_sent=False)


_MIN_PAUSE_S = 1.0
"""Minimum seconds between an issuer's response and the next request, or between two reads of a token file."""
_THREAD_TIMEOUT_S = 30.0
"""Maximum seconds that a thread of the Pulsar client waits for a token."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token, the time to renew it, and the time at which it expires (both on the `time.monotonic` clock)."""

    secret: str
    renew_at: float = math.inf
    expires_at: float = math.inf


class Tokens:
    """One client's tokens. A token that cannot be renewed is used until it expires or is rejected."""

    def __init__(self, connection: AdminConnection) -> None:
        self.mask = TokenMask(connection.token)
        self._connection = connection
        self._token = Token("" if connection.token is None else connection.token.get_secret_value())
        self._failed: RebalancerError | None = None
        self._next_attempt = 0.0
        self._lock = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def get(self, broker: str = "", rejected_token: str | None = None) -> str:
        """Return the token; empty if the connection has none.

        Args:
            broker: brokerId or address for error messages.
            rejected_token: token that a broker has rejected; it is returned again if it cannot be replaced.

        Raises:
            AdminError: `credentials_file`, `issuer_unavailable` or `issuer_refused`; nothing was sent.
            SettingsError: the issuer's URL is invalid.
        """
        if self._connection.token_file is None and self._connection.oauth2 is None:
            return self._token.secret
        async with self._lock:
            self._loop = asyncio.get_running_loop()
            now = time.monotonic()
            useless = self._token.secret in ("", rejected_token)
            if (useless or now >= self._token.renew_at) and now >= self._next_attempt:
                await self._renew_token()
                useless = self._token.secret in ("", rejected_token)
            if self._failed is not None and (useless or now >= self._token.expires_at):
                raise AdminError(self._failed.reason, self._failed.message, broker=broker, was_sent=False)
            return self._token.secret

    def get_in_thread(self) -> str:
        """Return the token in another thread; the last token if it cannot be renewed."""
        with suppress(Exception):  # Pulsar's client would print it
            if self._loop is not None:
                return asyncio.run_coroutine_threadsafe(self.get(), self._loop).result(_THREAD_TIMEOUT_S)
        return self._token.secret

    async def _renew_token(self) -> None:
        try:
            if self._connection.oauth2 is not None:
                self._token = await fetch_token(self._connection.oauth2, self._connection.ca_file, self.mask)
            elif self._connection.token_file is not None:
                self._token = _read_token(self._connection.token_file)
            self._failed = None
            self.mask.add(self._token.secret)
        except RebalancerError as error:
            if not self._token.secret and isinstance(error, SettingsError):
                raise
            self._failed = error
        if self._connection.oauth2 is not None:
            self._next_attempt = time.monotonic() + _MIN_PAUSE_S


def _read_token(path: Path) -> Token:
    value = read_secret_file(path).strip()
    if not is_token(value):
        raise file_error(path, "the file must contain only printable ASCII without spaces (contents not shown)")
    return Token(value, renew_at=time.monotonic() + _MIN_PAUSE_S)


def read_secret_file(path: Path) -> str:
    try:
        # Nobody may ever write to a pipe.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise file_error(path, "this is not a regular file")
            content = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise file_error(path, f"the file cannot be read: {error.strerror}") from None
    if len(content) > _MAX_FILE_BYTES:
        raise file_error(path, f"the file is larger than {_MAX_FILE_BYTES} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError:  # its message would quote the content
        raise file_error(path, "the file is not UTF-8 text") from None


def file_error(path: Path, problem: str) -> AdminError:
    return AdminError(Reason.CREDENTIALS_FILE, f"{path}: {problem}. {Reason.CREDENTIALS_FILE.action}", was_sent=False)
