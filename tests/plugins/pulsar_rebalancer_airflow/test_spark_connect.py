import socket
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from airflow.sdk import Connection

from pulsar_rebalancer.errors import SettingsError
from pulsar_rebalancer_airflow.spark_connect import server_environment

SAFE = {"extra": '{"use_ssl": true}', "password": "secret"}


@pytest.fixture
def reached() -> Iterator[mock.Mock]:
    with mock.patch("socket.create_connection") as connect:
        yield connect


def environment(**given: Any) -> dict[str, str]:
    return server_environment(Connection(conn_id="c", conn_type="spark_connect", **given), "spark_connection c")


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ({"host": "localhost"}, "sc://localhost:15002/"),
        ({"host": "sc://localhost:8"}, "sc://localhost:8/"),
        ({"host": "127.0.0.1", "port": 7}, "sc://127.0.0.1:7/"),
        ({"host": "127.0.0.2", "port": 7}, "sc://127.0.0.2:7/"),
        ({"host": "[::1]", "port": 7}, "sc://[::1]:7/"),
        ({"host": "127.0.0.1", "port": 7, "password": "secret"}, "sc://localhost:7/"),
        ({"host": "localhost", "password": "secret", "extra": '{"use_ssl": false}'}, "sc://localhost:15002/"),
        ({"host": "127.0.0.2", **SAFE}, "sc://127.0.0.2:15002/;use_ssl=true"),
        ({"host": "127.0.0.1", **SAFE}, "sc://127.0.0.1:15002/;use_ssl=true"),
        (
            {"host": "spark.example.com", "login": "a;b", **SAFE},
            "sc://spark.example.com:15002/;use_ssl=true;user_id=a%3Bb",
        ),
    ],
)
def test_address(reached: mock.Mock, given: dict[str, Any], address: str) -> None:
    assert environment(**given)["SPARK_REMOTE"] == address


def test_the_token_is_in_no_address(reached: mock.Mock) -> None:
    assert environment(host="localhost", password="secret") == {
        "SPARK_REMOTE": "sc://localhost:15002/",
        "SPARK_CONNECT_AUTHENTICATE_TOKEN": "secret",
    }


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"host": "spark.example.com"}, "set use_ssl and a token"),
        ({"host": "spark.example.com", "password": "secret"}, "set use_ssl and a token"),
        ({"host": "spark.example.com", "extra": '{"use_ssl": "True"}'}, "set use_ssl and a token"),
        ({"host": "10.0.0.1", "password": "secret", "extra": '{"use_ssl": false}'}, "set use_ssl and a token"),
        ({"host": "localhost.example.com"}, "set use_ssl and a token"),
        ({"host": ""}, "is not the host of"),
        ({"host": "localhost/;token=x"}, "is not the host of"),
        ({"host": "localhost:x"}, "is not the host of"),
        ({"host": "me@localhost"}, "is not the host of"),
        ({"host": "localhost", "port": 70000}, "port 70000"),
        ({"host": "localhost", "extra": '{"use_ssl": 1}'}, "use_ssl: 1 is neither true nor false"),
        ({"host": "localhost", "extra": '{"use_tls": true}'}, "unknown keys use_tls"),
        ({"host": "localhost", "extra": "[1]"}, "expected a JSON object"),
        ({"host": "localhost", "password": "secret\nx"}, "token: use printable ASCII"),
        ({"host": "localhost", "password": "sécret"}, "token: use printable ASCII"),
    ],
)
def test_unusable_connection_is_refused(reached: mock.Mock, given: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=rf"spark_connection c: .*{said}.*\[wrong_setting\]") as caught:
        environment(**given)
    assert "secret" not in str(caught.value)
    assert not reached.called


def test_a_token_is_sent_only_to_the_server_that_is_named() -> None:
    """Spark's client sends it without TLS only to the name localhost, whatever address that has."""
    resolve = socket.getaddrinfo

    def with_two_addresses(host: str, *rest: Any, **how: Any) -> list[Any]:
        addresses = ("127.0.0.3", "127.0.0.2") if host == "localhost" else (host,)
        return [answer for address in addresses for answer in resolve(address, *rest, **how)]

    with socket.create_server(("127.0.0.2", 0)) as server:
        given: dict[str, Any] = {"host": "127.0.0.2", "port": server.getsockname()[1], "password": "secret"}
        with pytest.raises(SettingsError, match=r"only to localhost .* not to 127\.0\.0\.2.*\[wrong_setting\]"):
            environment(**given)
        with mock.patch("socket.getaddrinfo", with_two_addresses):
            assert environment(**given)["SPARK_REMOTE"] == f"sc://localhost:{given['port']}/"
            with (
                socket.create_server(("127.0.0.3", given["port"])),
                pytest.raises(SettingsError, match=r"127\.0\.0\.3:\d+ also answers.*\[wrong_setting\]"),
            ):
                environment(**given)
