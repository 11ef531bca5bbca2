"""Get a token from an issuer using the OAuth 2.0 client credentials grant (RFC 6749, 4.4), as Pulsar's own clients do.

The grant is one form in one POST. OAuth libraries (Authlib, requests-oauthlib, httpx-auth) add sessions and other
grants. None of them keeps using a valid token while the issuer is down, replaces a rejected token, limits the size of
responses, or masks the secrets in them.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from typing import TYPE_CHECKING, Any

import httpx

from pulsar_rebalancer.admin.answers import first_line
from pulsar_rebalancer.admin.connection import https_url, is_token
from pulsar_rebalancer.admin.tokens import Token, read_file, unusable
from pulsar_rebalancer.errors import AdminError
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer.texts import parse_json

if TYPE_CHECKING:
    from pathlib import Path

    from pulsar_rebalancer.admin.connection import OAuth2
    from pulsar_rebalancer.admin.token_mask import TokenMask

_SECONDS = 15.0
"""Maximum seconds to get a token, including all requests."""
_LONGEST_ANSWER = 64 * 1024
_RENEWED_AFTER = 0.8
"""Fraction of a token's lifetime after which it is renewed."""
_HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "pulsar-rebalancer"}


async def fetch(settings: OAuth2, ca_file: Path | None, mask: TokenMask) -> Token:
    """Get a token. The credentials file is read each time, in case its secret has been replaced.

    Raises:
        AdminError: `credentials_file`, `issuer_unavailable` or `issuer_refused`.
        SettingsError: the issuer's URL is invalid.
    """
    form, issuer_url = _credentials(settings, mask)
    url, begun = f"{issuer_url}/.well-known/openid-configuration", time.monotonic()
    try:
        # The environment's proxies are used: TLS hides everything but the issuer's name from them.
        async with asyncio.timeout(_SECONDS), httpx.AsyncClient(verify=_tls(ca_file), timeout=None) as client:
            status, metadata = await _ask(client, "GET", url, mask)
            endpoint = str(metadata.get("token_endpoint"))
            if status != 200 or not endpoint.startswith("https://"):
                raise ValueError(f"answered {status}, without a token_endpoint with https")
            url = endpoint
            status, answer = await _ask(client, "POST", url, mask, data=form)
    except (TimeoutError, httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        detail = str(error) or f"{type(error).__name__}, within {_SECONDS:g} s"
        raise _failure(Reason.ISSUER_UNAVAILABLE, url, detail, mask) from None
    value, seconds = answer.get("access_token"), answer.get("expires_in")
    if status in (400, 401, 403):
        said = (str(answer[key]) for key in ("error", "error_description") if answer.get(key))
        detail = ", ".join((f"answered {status}", *said))
        raise _failure(Reason.ISSUER_REFUSED, url, detail, mask)
    if status != 200 or not isinstance(value, str) or not is_token(value):
        raise _failure(Reason.ISSUER_UNAVAILABLE, url, f"answered {status}, without an access_token", mask)
    if not isinstance(seconds, int | float):
        return Token(value)  # renewed once a broker refuses it
    return Token(value, begun + _RENEWED_AFTER * seconds, begun + seconds)


def _credentials(settings: OAuth2, mask: TokenMask) -> tuple[dict[str, str], str]:
    """Return the issuer's URL, and the form to send to it."""
    path = settings.credentials_file
    try:
        document = parse_json(read_file(path).encode())
    except ValueError:
        document = None
    found = document if isinstance(document, dict) else {}
    form = {"grant_type": found.get("type", "client_credentials")}
    form |= {name: found.get(name) for name in ("client_id", "client_secret")}
    if form["grant_type"] != "client_credentials" or not all(v and isinstance(v, str) for v in form.values()):
        raise unusable(path, "is not JSON of the type client_credentials with client_id and client_secret")
    mask.add(form["client_secret"])
    form |= {key: value for key in ("audience", "scope") if (value := getattr(settings, key))}
    return form, https_url(settings.issuer_url or str(found.get("issuer_url", "")), "issuer_url")


def _tls(ca_file: Path | None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if ca_file is not None:
        context.load_verify_locations(ca_file)
    return context


async def _ask(
    client: httpx.AsyncClient, method: str, url: str, mask: TokenMask, **options: Any
) -> tuple[int, dict[str, Any]]:
    """Return the status of a response, and its body as a JSON object.

    Raises:
        ValueError: the body is too long or not a JSON object.
    """
    body = b""
    async with client.stream(method, url, headers=_HEADERS, **options) as response:
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > _LONGEST_ANSWER:
                raise ValueError(f"the answer is longer than {_LONGEST_ANSWER} bytes")
    try:
        document = parse_json(body, mask.text)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise ValueError(f"answered {response.status_code}, not with a JSON object")
    return response.status_code, document


def _failure(reason: Reason, url: str, detail: str, mask: TokenMask) -> AdminError:
    said = first_line(mask.text(detail)).removesuffix(".")
    return AdminError(reason, f"no token from {first_line(url)}: {said}. {reason.action}", sent=False)
