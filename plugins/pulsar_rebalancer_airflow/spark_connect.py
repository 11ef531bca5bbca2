"""Spark Connect: the address of a running server, and the process of an application that uses the server."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from airflow.sdk.exceptions import AirflowException

from pulsar_rebalancer.errors import SettingsError
from pulsar_rebalancer.pulsar.connection import extra_flag
from pulsar_rebalancer.reasons import Reason
from pulsar_rebalancer_airflow.options import read_extra

if TYPE_CHECKING:
    from airflow.sdk import Connection

CONNECTION_TYPE = "spark_connect"
DEFAULT_PORT = 15002
_CONNECT_TIMEOUT_S = 10
_RELEASE_TIMEOUT_S = 4
"""Seconds that a terminated process has to stop its work on the server. Airflow kills the task after 5 seconds."""
_MAX_LAST_LINES = 20


def server_environment(connection: Connection, label: str) -> dict[str, str]:
    """Return a variable with the server's address, and one with the token, which must not be logged.

    `label` names the connection in error messages.

    Raises:
        SettingsError: `wrong_setting` if the host, port, extra or token is invalid, or if the token would be
            sent without TLS to another program; `spark_unreachable` if the server accepts no connection
            (Spark's client would retry for many minutes).
    """
    try:
        return _connect_variables(connection)
    except SettingsError as error:
        raise SettingsError(error.reason, f"{label}: {error.message}") from None


def _connect_variables(connection: Connection) -> dict[str, str]:
    host, port = _server_address(connection)
    tls, token = extra_flag(read_extra(connection, {"use_ssl"}), "use_ssl"), connection.password
    if not (_is_loopback(host) or (tls and token)):
        raise _bad_setting(f"{host} is another machine: set use_ssl and a token to connect to its Spark Connect server")
    if token and re.fullmatch(r"[!-~]+", token) is None:
        raise _bad_setting("token: use printable ASCII without spaces (value not shown)")
    try:
        socket.create_connection((host, port), _CONNECT_TIMEOUT_S).close()
        if token and not tls:
            host = _checked_localhost(host, port)
    except (OSError, UnicodeError) as error:
        problem = getattr(error, "strerror", None) or type(error).__name__
        raise SettingsError(Reason.SPARK_UNREACHABLE, f"{host}:{port}: {problem}") from None
    address = f"sc://[{host}]:{port}/" if ":" in host else f"sc://{host}:{port}/"
    if tls:
        address += ";use_ssl=true"
    if connection.login:
        address += f";user_id={quote(connection.login, safe='')}"
    return {"SPARK_REMOTE": address} | ({"SPARK_CONNECT_AUTHENTICATE_TOKEN": token} if token else {})


def _server_address(connection: Connection) -> tuple[str, int]:
    given = (connection.host or "").removeprefix("sc://")
    try:
        parts = urlsplit(f"sc://{given}")
        host, port = parts.hostname or "", connection.port or parts.port or DEFAULT_PORT
    except ValueError:
        host, port, parts = "", 0, urlsplit("")
    if not host or parts.netloc != given or "@" in given or ";" in given:
        raise _bad_setting(f"host {given[:100]!r} is not the host of a Spark Connect server")
    if not 0 < port < 65536:
        raise _bad_setting(f"port {port} is not valid: expected 1 to 65535")
    return host, port


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _checked_localhost(host: str, port: int) -> str:
    """Return `localhost`, the only host to which Spark's client sends a token without TLS.

    Raises SettingsError `wrong_setting` if the server does not listen on `localhost`, or if both of its
    addresses accept connections: another user could use this port at the second one.
    """
    if host != "localhost":
        addresses = {str(info[4][0]) for info in socket.getaddrinfo("localhost", port, type=socket.SOCK_STREAM)}
        if str(ip_address(host)) not in addresses:
            raise _bad_setting(
                f"without use_ssl, Spark sends a token only to localhost ({', '.join(sorted(addresses))}), not "
                f"to {host}: let the server listen on localhost, or set use_ssl"
            )
        for other in sorted(addresses - {str(ip_address(host))}):
            with suppress(OSError), socket.create_connection((other, port), _CONNECT_TIMEOUT_S):
                raise _bad_setting(
                    f"Spark would send the token to localhost, but {other}:{port} also answers. If both addresses "
                    "belong to one server, set the host to localhost; otherwise, give the server another port"
                )
    return "localhost"


def _bad_setting(problem: str) -> SettingsError:
    return SettingsError(Reason.WRONG_SETTING, problem)


class SparkConnectApplication:
    """Runs an application in a child process of the task. The process does not need Java."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, *command],
            env=os.environ | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )

    def wait_for_end(self, log: Callable[[str], object]) -> None:
        last: deque[str] = deque(maxlen=_MAX_LAST_LINES)
        try:
            for line in self._process.stdout or ():
                log(line.rstrip())
                last.append(line)
            code = self._process.wait()
        except BaseException:  # such as the task's time-out, after which nothing else would end the process
            self.stop_application()
            raise
        if code:
            raise AirflowException(f"The application ended with exit code {code}. Last output:\n{''.join(last)}")

    def stop_application(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(_RELEASE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
