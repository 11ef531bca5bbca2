"""Spark Connect: the address of a running server, and an application of this package that uses it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections import deque
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from airflow.sdk.exceptions import AirflowException

from pulsar_rebalancer.errors import SettingsError
from pulsar_rebalancer.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from airflow.sdk import Connection

CONNECTION_TYPE = "spark_connect"
DEFAULT_PORT = 15002
_REACHED_SECONDS = 10
_RELEASED_SECONDS = 4
"""Time for a terminated process to stop its work on the server; Airflow kills a task after 5 seconds."""
_LAST_LINES = 20


def server_environment(connection: Connection, where: str) -> dict[str, str]:
    """Return the environment variables with the address of a server.

    Args:
        connection: Airflow connection of type `spark_connect`.
        where: name of the connection in messages.

    Returns:
        The address, and separately the token: the address may be logged, the token must not.

    Raises:
        SettingsError: `wrong_setting` if the host is invalid, or on another machine and without TLS or a token;
            `spark_unreachable` if the server accepts no connection, which Spark's client would retry for many minutes.
    """
    host, port = _address(connection, where)
    tls = str(connection.extra_dejson.get("use_ssl", "")).lower() == "true"
    if not (_is_loopback(host) or (tls and connection.password)):
        raise SettingsError(
            Reason.WRONG_SETTING,
            f"{where}: {host} is another machine: a Spark Connect server there needs use_ssl and a token",
        )
    if not tls:
        # For any other host name Spark's client uses TLS as soon as there is a token.
        host = "localhost"
    try:
        socket.create_connection((host.strip("[]"), port), _REACHED_SECONDS).close()
    except OSError as error:
        problem = error.strerror or type(error).__name__
        raise SettingsError(Reason.SPARK_UNREACHABLE, f"{where}: {host}:{port}: {problem}") from None
    address = f"sc://{host}:{port}/"
    if tls:
        address += ";use_ssl=true"
    if connection.login:
        address += f";user_id={quote(connection.login, safe='')}"
    token = {"SPARK_CONNECT_AUTHENTICATE_TOKEN": connection.password} if connection.password else {}
    return {"SPARK_REMOTE": address} | token


def _address(connection: Connection, where: str) -> tuple[str, int]:
    given = (connection.host or "").removeprefix("sc://")
    try:
        parts = urlsplit(f"sc://{given}")
        host, port = parts.hostname or "", connection.port or parts.port or DEFAULT_PORT
    except ValueError:
        host, port, parts = "", 0, urlsplit("")
    if not host or parts.netloc != given or "@" in given or ";" in given:
        raise SettingsError(
            Reason.WRONG_SETTING, f"{where}: host {given[:100]!r} is not the host of a Spark Connect server"
        )
    return (f"[{host}]" if ":" in host else host), port


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


class ConnectedApplication:
    """An application in a child process of the task, without Java."""

    def __init__(self, command: Sequence[str], server: Mapping[str, str]) -> None:
        """Start the application.

        Args:
            command: path of the application and its arguments.
            server: environment variables from `server_environment`.
        """
        self._process = subprocess.Popen(
            [sys.executable, *command],
            env=os.environ | server,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )

    @property
    def ended(self) -> bool:
        """Return whether the process has ended."""
        return self._process.poll() is not None

    def wait(self, log: Callable[[str], object]) -> None:
        """Wait for its end, and log its output line by line.

        Raises:
            AirflowException: it failed; the message has the last lines of its output.
        """
        last: deque[str] = deque(maxlen=_LAST_LINES)
        try:
            for line in self._process.stdout or ():
                log(line.rstrip())
                last.append(line)
            code = self._process.wait()
        except BaseException:  # such as the task's time-out: nothing else would end the process
            self.end()
            raise
        if code:
            raise AirflowException(f"The application ended with {code}. It said:\n{''.join(last)}")

    def end(self) -> None:
        """End the process and its work on the server."""
        self._process.terminate()
        try:
            self._process.wait(_RELEASED_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
