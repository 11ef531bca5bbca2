"""Receivers of alerts on the loopback: a webhook, a mail server, and one that never answers."""

import base64
import email
import email.policy
import json
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from pulsar_rebalancer_airflow import notifications


def connect(monkeypatch: pytest.MonkeyPatch, *urls: str) -> None:
    """Make the connection `alerts` name these receivers; a busy machine has time."""
    monkeypatch.setattr(notifications, "SEND_TIMEOUT_SECONDS", 120)
    document = {"conn_type": "apprise", "extra": {"config": [{"path": url, "tag": "alerts"} for url in urls]}}
    monkeypatch.setenv("AIRFLOW_CONN_ALERTS", json.dumps(document))


@dataclass
class Webhook:
    port: int
    refused: set[str] = field(default_factory=set)
    messages: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"json://ada:S3cretPass@127.0.0.1:{self.port}/S3cretPath"

    @property
    def titles(self) -> list[str]:
        return [message["title"] for message in self.messages]


@contextmanager
def webhook() -> Iterator[Webhook]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            taken = message["title"] not in found.refused
            if taken:
                found.messages.append(message)
            found.paths.append(self.path)
            self.send_response(200 if taken else 503)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found = Webhook(server.server_port)
    with _serving(server):
        yield found


@dataclass
class MailServer:
    port: int
    logins: list[str] = field(default_factory=list)
    mails: list[EmailMessage] = field(default_factory=list)


@contextmanager
def mail_server() -> Iterator[MailServer]:
    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.say("220 mail.example")
            while line := self.rfile.readline().decode().strip():
                verb = line.split()[0].upper()
                if verb == "EHLO":
                    self.say("250-mail.example\r\n250 AUTH PLAIN")
                elif verb == "AUTH":
                    found.logins.append(base64.b64decode(line.split()[2]).decode())
                    self.say("235 welcome")
                elif verb == "DATA":
                    self.say("354 go on")
                    found.mails.append(self.mail())
                    self.say("250 taken")
                elif verb == "QUIT":
                    self.say("221 good bye")
                    return
                else:
                    self.say("250 well")

        def say(self, line: str) -> None:
            self.wfile.write(line.encode() + b"\r\n")

        def mail(self) -> EmailMessage:
            lines = iter(self.rfile.readline, b".\r\n")
            made: Any = email.message_from_bytes(b"".join(lines), policy=email.policy.default)
            return made  # type: ignore[no-any-return]

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    found = MailServer(server.server_address[1])
    with _serving(server):
        yield found


@contextmanager
def _serving(server: socketserver.BaseServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def silent() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0), backlog=16) as server:
        yield server.getsockname()[1]
