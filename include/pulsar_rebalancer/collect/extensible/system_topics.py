"""Receive messages from the system topics of the extensible load manager, with Pulsar's own client.

The client is written in C++. Its log bypasses Python's logging and is discarded. `receive` closes the client before it
returns, because the client's threads run as long as its objects exist.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from pulsar_rebalancer.collect.extensible.published import TopicMessage
from pulsar_rebalancer.errors import AdminError
from pulsar_rebalancer.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pulsar_rebalancer.admin.connection import AdminConnection
    from pulsar_rebalancer.admin.tokens import Tokens

LOAD = "non-persistent://pulsar/system/loadbalancer-broker-load-data"
TOP = "non-persistent://pulsar/system/loadbalancer-top-bundles-load-data"

_POLL_MS = 100
_REASONS = {
    "AuthorizationError": Reason.FORBIDDEN,
    "AuthenticationError": Reason.UNAUTHORIZED,
    "Timeout": Reason.TIMEOUT,
    "ValueError": Reason.BAD_ANSWER,
}


def require_client() -> None:
    """Check that Pulsar's client is installed.

    Raises:
        AdminError: `client_missing`.
    """
    try:
        import pulsar  # noqa: F401 # a C++ library, loaded only if needed
    except ImportError as error:
        what = f"the Python package pulsar-client cannot be loaded ({error})"
        raise AdminError(Reason.CLIENT_MISSING, f"the brokers run the extensible load manager, and {what}") from None


def receive(
    connection: AdminConnection,
    tokens: Tokens,
    service_url: str,
    topics: Mapping[str, Callable[[TopicMessage], bool]],
    seconds: float,
) -> None:
    """Pass messages to the handlers until a handler returns True or the time limit is reached. This call blocks.

    Args:
        tokens: the tokens of the admin REST API client, whose event loop runs in another thread.
        topics: message handler by topic. A handler returns True to stop.
        seconds: time limit, counted from when the topics are open.

    Raises:
        AdminError: `client_missing`; or the topics cannot be read: `forbidden`, `unauthorized`, `timeout` (also if the
            brokers reject the token), `unreachable`, `bad_answer` (the client rejects the address).
    """
    require_client()
    import pulsar

    failed: str
    try:
        return _receive(pulsar.Client(service_url, **_options(connection, tokens)), topics, seconds)
    except (pulsar.PulsarException, ValueError) as error:
        failed = tokens.mask.text(f"{type(error).__name__}, {error}")
        reason = _REASONS.get(type(error).__name__, Reason.UNREACHABLE)
    # Raised outside the handler, because the caught error keeps the client alive.
    raise AdminError(reason, f"the system topics of {service_url} cannot be read: {failed}")


def _receive(client: Any, topics: Mapping[str, Callable[[TopicMessage], bool]], seconds: float) -> None:
    import pulsar

    with ExitStack() as closing:
        closing.callback(client.close)
        readers = []
        for topic, take in topics.items():
            reader = client.create_reader(topic, pulsar.MessageId.latest)
            closing.callback(reader.close)  # the client and open readers refer to each other
            readers.append((reader, take))
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for reader, take in readers:
                # One topic is drained before the next is read, so a quiet topic costs its time-out only once.
                while time.monotonic() < end and (message := _next(reader)) is not None:
                    if take(message):
                        return


def _next(reader: Any) -> TopicMessage | None:
    import pulsar

    try:
        message = reader.read_next(timeout_millis=_POLL_MS)
    except pulsar.Timeout:
        return None
    return TopicMessage(message.partition_key(), message.publish_timestamp(), message.data())


def _options(connection: AdminConnection, tokens: Tokens) -> dict[str, object]:
    """Return the options for `pulsar.Client`, with the admin REST API's credentials and certificate authority."""
    import pulsar

    options: dict[str, object] = {
        "operation_timeout_seconds": max(1, round(connection.connect_timeout_s)),
        "connection_timeout_ms": round(connection.connect_timeout_s * 1000),
        "stats_interval_in_seconds": 0,
        "tls_validate_hostname": True,
        "logger": pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull),
    }
    if connection.ca_file is not None:
        options["tls_trust_certs_file_path"] = str(connection.ca_file)
    certificate = connection.client_cert_file
    key = connection.client_key_file or certificate
    if connection.has_token:
        options["authentication"] = pulsar.AuthenticationToken(tokens.get_in_thread)
        if certificate is not None:
            options |= {"tls_certificate_file_path": str(certificate), "tls_private_key_file_path": str(key)}
    elif certificate is not None:
        options["authentication"] = pulsar.AuthenticationTLS(str(certificate), str(key))
    return options
