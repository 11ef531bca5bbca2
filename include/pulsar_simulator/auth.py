"""Authentication: a token for a superuser and, optionally, a token for a user with limited permissions."""

from __future__ import annotations

import os
import re
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.requests import HTTPConnection

# What brokers answer to any valid token.
_FOR_ALL = re.compile(r"/admin/v2/(brokers/(ready|version)|clusters|namespaces/[^/]+/[^/]+/bundles)")


@dataclass(frozen=True, slots=True, repr=False)
class Auth:
    """The valid tokens.

    Attributes:
        token: the superuser's token.
        user_token: token of a user with limited permissions; empty if there is none.
    """

    token: str
    user_token: str = ""

    def refuses(self, request: HTTPConnection) -> str | None:
        """Return None if the request is allowed, else `unauthenticated` or `unauthorized`."""
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme != "Bearer" or not given:
            return "unauthenticated"
        if secrets.compare_digest(given.encode(), self.token.encode()):
            return None
        if self.user_token and secrets.compare_digest(given.encode(), self.user_token.encode()):
            return None if _FOR_ALL.fullmatch(request.url.path) else "unauthorized"
        return "unauthenticated"


def new_token() -> str:
    """Return a random token."""
    return secrets.token_urlsafe(32)


def write_token(path: Path, token: str) -> None:
    """Write a token to a file that only its owner can read. An existing file is replaced."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(token)
