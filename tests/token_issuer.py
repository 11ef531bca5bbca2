"""An issuer of tokens for tests, over TLS: oauthlib judges the requests, PyJWT signs what brokers can verify."""

import json
import logging
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from oauthlib.oauth2 import BackendApplicationServer, RequestValidator
from oauthlib.oauth2.rfc6749.errors import CustomOAuth2Error
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from tests.certificates import Authority
from tests.include.pulsar_rebalancer.pulsar.scripted_broker import Broker, brokers, closed_port

logging.getLogger("oauthlib").setLevel(logging.INFO)  # below that level this issuer logs its tokens

CLIENT, SECRET, AUDIENCE = "rebalancer", "cl1ent-s3cret/of a client", "urn:pulsar:east"
DISCOVERY, TOKEN = "/.well-known/openid-configuration", "/oauth/token"


@dataclass
class TokenIssuer(RequestValidator):  # type: ignore[misc] # the base class is untyped
    """One issuer with one client; tokens last for `lifetime` seconds, and it says that they last for `promised`."""

    server: Broker
    folder: Path
    ca_file: Path
    lifetime: float = 300
    promised: float | None = None
    audiences: tuple[str, ...] = (AUDIENCE,)
    constant: str = ""
    issued: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._oauth = BackendApplicationServer(self, self._token, self._promise)
        public = {"kid": "1", "alg": "ES256", "use": "sig"}
        public |= jwt.algorithms.ECAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
        self.server.on("GET", "/keys", {"keys": [public]})
        self.server.on("POST", TOKEN, self._answer)
        metadata = {"issuer": self.url, "token_endpoint": f"{self.url}{TOKEN}", "jwks_uri": f"{self.url}/keys"}
        self.server.on("GET", DISCOVERY, metadata)

    @property
    def url(self) -> str:
        return f"https://{self.server.id}"

    @property
    def asked(self) -> int:
        return self.server.paths.count(f"POST {TOKEN}")

    def credentials_file(self, name: str = "credentials.json", **changes: Any) -> Path:
        """The client's credentials as Pulsar's own clients read them."""
        path = self.folder / name
        document = {"type": "client_credentials", "client_id": CLIENT, "client_secret": SECRET, "issuer_url": self.url}
        path.write_text(json.dumps(document | changes))
        return path

    def extra(self) -> dict[str, str]:
        """The extra of a connection that gets its tokens here."""
        files = {"credentials_file": str(self.credentials_file()), "ca_file": str(self.ca_file)}
        return files | {"audience": AUDIENCE}

    async def _answer(self, request: Request) -> Response:
        body = (await request.body()).decode()
        headers, text, status = self._oauth.create_token_response(str(request.url), "POST", body, dict(request.headers))
        return Response(text, status, headers)

    def _promise(self, _: object) -> float:
        return self.lifetime if self.promised is None else self.promised

    def _token(self, request: Any) -> str:
        now = time.time()
        claims = {"iss": self.url, "sub": request.client_id, "aud": getattr(request, "audience", "")}
        claims |= {"jti": secrets.token_hex(8), "iat": int(now), "nbf": int(now), "exp": int(now + self.lifetime)}
        self.issued.append(self.constant or jwt.encode(claims, self._key, "ES256", {"kid": "1"}))
        return self.issued[-1]

    # what oauthlib asks

    def authenticate_client(self, request: Any, *_: Any, **__: Any) -> bool:
        request.client = SimpleNamespace(client_id=request.client_id)
        return (request.client_id, request.client_secret) == (CLIENT, SECRET)

    def validate_grant_type(self, client_id: str, grant_type: str, *_: Any, **__: Any) -> bool:
        return grant_type == "client_credentials"

    def validate_scopes(self, client_id: str, scopes: list[str], client: Any, request: Any, *_: Any, **__: Any) -> bool:
        if getattr(request, "audience", "") not in self.audiences:
            raise CustomOAuth2Error("invalid_target", f"unknown audience, {request.client_secret}", status_code=403)
        return set(scopes) <= {"admin"}

    def get_default_scopes(self, *_: Any, **__: Any) -> list[str]:
        return []

    def save_token(self, *_: Any, **__: Any) -> None:
        """Keep nothing: tokens are signed."""

    def unavailable(self) -> None:
        self.server.on("POST", TOKEN, JSONResponse({"error": "temporarily_unavailable"}, 503))

    def available(self) -> None:
        self.server.on("POST", TOKEN, self._answer)


@contextmanager
def token_issuer(folder: Path, **options: Any) -> Iterator[TokenIssuer]:
    authority = Authority(folder, "issuer")
    certificate, key = authority.issue("127.0.0.1")
    with brokers(1, ssl_certfile=str(certificate), ssl_keyfile=str(key)) as (server,):
        yield TokenIssuer(server, folder, authority.file, **options)


def bad_credentials(issuing: TokenIssuer, kind: str) -> dict[str, str]:
    """The extra of a connection whose token cannot be had or is refused."""
    expired, empty = issuing.folder / "expired.jwt", issuing.folder / "empty.jwt"
    expired.write_text(jwt.encode({"sub": CLIENT, "exp": 1}, "k" * 32, "HS256"))
    empty.touch()
    gone = str(issuing.folder / "gone.json")
    extra = issuing.extra()
    kinds = {
        "issuer down": extra | {"issuer_url": f"https://{closed_port()}"},
        "expired secret": extra | {"credentials_file": str(issuing.credentials_file("old.json", client_secret="old"))},
        "wrong audience": extra,  # simulated brokers take one token only
        "no credentials file": extra | {"credentials_file": gone},
        "empty token file": {"token_file": str(empty)},
        "expired token file": {"token_file": str(expired)},
    }
    return kinds[kind]
