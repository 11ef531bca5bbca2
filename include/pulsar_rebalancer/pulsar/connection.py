"""The connection to the brokers of one cluster: addresses, credentials, TLS, limits."""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import SecretStr

from pulsar_rebalancer.errors import SettingsError
from pulsar_rebalancer.names import is_broker_id
from pulsar_rebalancer.reasons import Reason

_SERVICE_URL = re.compile(r"pulsar(?:\+ssl)?://([^/]+)/?")
_DEFAULT_PORT = {"http": 80, "https": 443}


def is_service_url(text: str) -> bool:
    match = _SERVICE_URL.fullmatch(text)
    return match is not None and all(map(is_broker_id, match[1].split(",")))


def address_of(url: str) -> str:
    """Return `host:port` in lower case, with the scheme's default port. Raises ValueError."""
    parts = urlsplit(url)
    if not parts.hostname or parts.port == 0:
        raise ValueError("the address has no host, or its port is 0")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{host}:{parts.port or _DEFAULT_PORT.get(parts.scheme, 0)}"


def address_or_empty(url: object) -> str:
    try:
        return address_of(url) if isinstance(url, str) else ""
    except ValueError:
        return ""


def _require_no_secrets(address: str, key: str) -> str:
    if set("@?#") & set(address):
        # The value is not shown: it may hold a password or a token.
        raise SettingsError(
            Reason.WRONG_SETTING, f"{key}: an address must not contain a user, password or query; use a token instead"
        )
    return address


def _base_url(url: str, key: str) -> str:
    """Return an http(s) URL without a trailing slash; reject a URL with a user, query or fragment."""
    if not address_or_empty(_require_no_secrets(url, key)) or not re.fullmatch(r"https?://[!-~]+", url):
        given = "an address with percent signs" if "%" in url else repr(url)
        raise SettingsError(Reason.WRONG_SETTING, f"{key}: expected an http(s)://host:port address, got {given}")
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.lower()}{parts.path.rstrip('/')}"


def https_url(url: str, key: str) -> str:
    """Return an https URL without a trailing slash; reject others, because a secret is sent to it."""
    if not url.startswith("https://"):
        raise SettingsError(Reason.WRONG_SETTING, f"{key}: an https:// address is required")
    return _base_url(url, key)


def is_token(text: str) -> bool:
    """Return whether a header can carry the text; else the HTTP library would quote it in an error."""
    return re.fullmatch(r"[!-~]+", text) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuth2:
    """A token issuer for OAuth 2.0 client credentials, configured as in Pulsar's own clients.

    Attributes:
        credentials_file: JSON file with `client_id` and `client_secret` (`privateKey` in Pulsar's clients).
        issuer_url: https URL of the issuer; empty to use the file's `issuer_url`.
        audience: audience (the cluster) that the issuer requires; empty to send none.
        scope: scopes to request, separated by spaces; empty to send none.
    """

    credentials_file: Path
    issuer_url: str = ""
    audience: str = ""
    scope: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminConnection:
    """The connection to one cluster's admin REST API.

    A brokerId is an identifier (`advertisedAddress:webServicePort`), not always a reachable address. Requests
    go to `address_map[brokerId]`, else to `address_template` with the broker's host and port, else to the
    brokerId itself, using the seeds' scheme.

    Attributes:
        seeds: base URLs of one or more brokers (or their proxies), all http or all https. If a seed accepts
            no connection or does not answer a read, the next one is tried.
        token: JSON web token; sent only to the cluster's brokers, and never shown.
        token_file: file that holds the token and may be replaced at any time.
        oauth2: token issuer. Only one of `token`, `token_file` and `oauth2` may be set.
        ca_file: PEM file with the only trusted certificate authority; None for the system's authorities,
            which a token issuer may always use. Host names are always verified.
        client_cert_file: PEM file with a client certificate (AuthenticationProviderTls).
        client_key_file: PEM file with the certificate's key; None if the certificate file contains it.
        connect_timeout_s: maximum seconds to establish a connection.
        read_timeout_s: maximum seconds to receive a complete response once connected.
        unload_timeout_s: maximum seconds for an unload; brokers themselves give up after 60 s
            (namespaceBundleUnloadingTimeoutMs).
        max_answer_bytes: a longer response is rejected, except for lists of topics. A load report takes 250
            to 450 bytes per bundle, so 8 MiB is enough for at least 18,000 bundles.
        read_only: refuse every request other than GET before it is sent.
        address_map: base URLs, by brokerId or advertised `host:port`.
        address_template: base URL with `{host}` and `{port}`, for brokers that are not in the map.
        service_url: `pulsar://host:port` or `pulsar+ssl://host:port` for the extensible load manager's system
            topics. If empty, a lookup determines the URL; its host must then be one of the brokers.
        concurrency: maximum number of concurrent requests.

    Raises:
        SettingsError: a value is out of range, an address is invalid, or http and https are mixed.
    """

    seeds: tuple[str, ...]
    token: SecretStr | None = field(default=None, repr=False)
    token_file: Path | None = None
    oauth2: OAuth2 | None = None
    ca_file: Path | None = None
    client_cert_file: Path | None = None
    client_key_file: Path | None = None
    connect_timeout_s: float = 5.0
    read_timeout_s: float = 30.0
    unload_timeout_s: float = 70.0
    max_answer_bytes: int = 8 * 1024 * 1024
    read_only: bool = False
    address_map: Mapping[str, str] = field(default_factory=dict)
    address_template: str = ""
    service_url: str = ""
    concurrency: int = 256

    def __post_init__(self) -> None:
        if not self.seeds:
            raise SettingsError(Reason.WRONG_SETTING, "seeds: give the address of at least one broker")
        for key in ("connect_timeout_s", "read_timeout_s", "unload_timeout_s", "max_answer_bytes", "concurrency"):
            if not getattr(self, key) > 0:
                raise SettingsError(Reason.WRONG_SETTING, f"{key}: {getattr(self, key)!r} must be greater than 0")
        self._check_token()
        object.__setattr__(self, "seeds", tuple(_base_url(url, "seeds") for url in self.seeds))
        mapped = {
            k.lower(): _base_url(url, f"address_map[{_require_no_secrets(k, 'address_map')}]")
            for k, url in self.address_map.items()
        }
        object.__setattr__(self, "address_map", mapped)
        schemes = {urlsplit(url).scheme for url in (*self.seeds, *mapped.values(), *self._sample_template_urls())}
        if len(schemes) > 1:
            # A token meant for https must never be sent over http.
            raise SettingsError(Reason.CONTRADICTION, "seeds, address_map and address_template mix http and https")
        self._check_service_url()

    @property
    def uses_tls(self) -> bool:
        return urlsplit(self.seeds[0]).scheme == "https"

    def _check_service_url(self) -> None:
        if self.service_url and not is_service_url(self.service_url):
            # The value is not shown: it may have credentials before the host.
            raise SettingsError(
                Reason.WRONG_SETTING, "service_url: expected pulsar://host:port or pulsar+ssl://host:port"
            )
        if self.uses_tls and self.service_url.startswith("pulsar://"):
            raise SettingsError(Reason.CONTRADICTION, "service_url: brokers behind https need a pulsar+ssl:// address")

    @property
    def has_token(self) -> bool:
        return any(source is not None for source in (self.token, self.token_file, self.oauth2))

    def _check_token(self) -> None:
        if sum(source is not None for source in (self.token, self.token_file, self.oauth2)) > 1:
            raise SettingsError(Reason.CONTRADICTION, "set only one of token, token_file and credentials_file")
        if self.token is None:
            return
        if not isinstance(self.token, SecretStr):
            raise SettingsError(Reason.WRONG_SETTING, "token: wrap it in pydantic.SecretStr (value not shown)")
        if not is_token(self.token.get_secret_value()):
            raise SettingsError(Reason.WRONG_SETTING, "token: use printable ASCII without spaces (value not shown)")

    def _sample_template_urls(self) -> tuple[str, ...]:
        if not self.address_template:
            return ()
        try:
            return (_base_url(self.address_template.format(host="host", port="1"), "address_template"),)
        except (AttributeError, KeyError, IndexError, ValueError):
            raise SettingsError(
                Reason.WRONG_SETTING, "address_template: only the placeholders {host} and {port} are allowed"
            ) from None

    def base_url(self, broker: str) -> str:
        mapped = self.address_map.get(broker.lower())
        if mapped is not None:
            return mapped
        if self.address_template:
            host, _, port = broker.rpartition(":")
            return self.address_template.format(host=host, port=port).rstrip("/")
        return f"{urlsplit(self.seeds[0]).scheme}://{broker}"

    def ssl_context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except (OSError, ssl.SSLError) as error:
            raise SettingsError(Reason.WRONG_SETTING, f"ca_file: {self.ca_file} cannot be read: {error}") from error
        if self.client_cert_file is not None:
            try:
                context.load_cert_chain(self.client_cert_file, self.client_key_file)
            except (OSError, ssl.SSLError) as error:
                raise SettingsError(
                    Reason.WRONG_SETTING, f"client_cert_file: {self.client_cert_file} cannot be used: {error}"
                ) from error
        return context


EXTRAS = frozenset(
    {"ca_file", "client_cert", "client_key", "read_only", "answer_timeout_seconds"}
    | {"address_map", "address_template", "service_url"}
    | {"token_file", "credentials_file", "issuer_url", "audience", "scope"}
)
"""Keys allowed in a connection's extra. Other keys are rejected, because a misspelt `read_only` would allow writes."""


def connection_of(hosts: tuple[str, ...], token: str, extra: Mapping[str, object]) -> AdminConnection:
    given: dict[str, Any] = {}
    if "answer_timeout_seconds" in extra:
        given["read_timeout_s"] = _timeout_seconds(extra["answer_timeout_seconds"])
    return AdminConnection(
        seeds=hosts,
        token=SecretStr(token) if token else None,
        token_file=_path_of_extra(extra, "token_file"),
        oauth2=_oauth2(extra),
        ca_file=_path_of_extra(extra, "ca_file"),
        client_cert_file=_path_of_extra(extra, "client_cert"),
        client_key_file=_path_of_extra(extra, "client_key"),
        read_only=extra_flag(extra, "read_only"),
        address_map=_string_mapping(extra.get("address_map", {})),
        address_template=str(extra.get("address_template", "")),
        service_url=str(extra.get("service_url", "")),
        **given,
    )


def checked_extra(extra: object, known_keys: Set[str], label: str) -> dict[str, object]:
    if not isinstance(extra, dict):
        raise SettingsError(Reason.WRONG_SETTING, f"{label}: expected a JSON object")
    values = {name: value for name, value in extra.items() if value not in (None, "")}
    if unknown := sorted(map(str, set(values) - known_keys)):
        raise SettingsError(
            Reason.WRONG_SETTING, f"{label}: unknown keys {', '.join(unknown)}; known: {', '.join(sorted(known_keys))}"
        )
    return values


def extra_flag(extra: Mapping[str, object], key: str) -> bool:
    value = extra.get(key, False)
    if str(value).lower() in ("true", "false"):
        return str(value).lower() == "true"
    raise SettingsError(Reason.WRONG_SETTING, f"{key}: {value!r} is neither true nor false")


def _oauth2(extra: Mapping[str, object]) -> OAuth2 | None:
    given = {name: str(extra[name]) for name in ("issuer_url", "audience", "scope") if name in extra}
    file = _path_of_extra(extra, "credentials_file")
    if file is None and given:
        raise SettingsError(Reason.CONTRADICTION, f"{', '.join(given)}: allowed only with credentials_file")
    return None if file is None else OAuth2(credentials_file=file, **given)


def _path_of_extra(extra: Mapping[str, object], key: str) -> Path | None:
    return Path(str(extra[key])) if key in extra else None


def _timeout_seconds(value: object) -> float:
    try:
        return float(str(value))
    except ValueError:
        raise SettingsError(Reason.WRONG_SETTING, f"answer_timeout_seconds: {value!r} is not a number") from None


def _string_mapping(value: object) -> dict[str, str]:
    try:
        mapping = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        mapping = None
    if not isinstance(mapping, dict) or not all(isinstance(url, str) for url in mapping.values()):
        raise SettingsError(Reason.WRONG_SETTING, "address_map: expected a JSON object with a URL for each brokerId")
    return mapping
