"""The notifier: messages to every receiver that a connection of type `apprise` names."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook, BaseNotifier
from airflow.sdk.log import mask_secret

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from airflow.sdk import Context

    from pulsar_rebalancer.alert_text import Message

TIMEOUT_SECONDS = 10.0
"""How long a run waits for all receivers together."""

_LINE = re.compile(rb"(\d+) (\d+) (delivered|refused|unusable)")
_SCHEME = re.compile(r"([a-z][a-z0-9+]{0,19})://")


class UndeliveredError(Exception):
    """Some receivers did not take their messages; says which, by number and kind, and never by URL."""


class AlertNotifier(BaseNotifier):
    """Send messages through Apprise.

    The provider's own notifier drops Apprise's answer and waits as long as the receivers like. This one says who took
    what, and ends the process that sends when the time is up. The texts are no templates: they hold names that come
    from elsewhere.

    Args:
        connection: Airflow connection of type `apprise`.
        messages: each with the numbers of the receivers that have it already.

    Attributes:
        receivers: how many the connection names; known after `notify`.
        reached: for each message the numbers of the receivers that have it, after `notify` also when it raises.
    """

    template_fields: Sequence[str] = ()

    def __init__(self, *, connection: str, messages: Sequence[tuple[Message, Collection[int]]]) -> None:
        super().__init__()
        self.connection = connection
        self.messages = tuple(messages)
        self.receivers = 0
        self.reached = [set(have) for _, have in self.messages]

    def complete(self, message: int) -> bool:
        """Whether every receiver has a message, by its number."""
        return self.receivers > 0 and self.reached[message] >= set(range(self.receivers))

    def notify(self, context: Context) -> None:
        """Send.

        Raises:
            UndeliveredError: a receiver refused, did not answer in time, or has an URL that Apprise does not know.
            Exception: the connection does not exist, or names no receivers.
        """
        urls = _urls(self.connection)
        self.receivers = len(urls)
        statuses: dict[int, str] = {}
        answers, otherwise = _send(urls, self.messages)
        for message, receiver, status in answers:
            if status == "delivered":
                self.reached[message].add(receiver)
            else:
                statuses[receiver] = status
        missed = [n for n in range(len(urls)) if not all(n in have for have in self.reached)]
        if missed or not urls:
            said = (f"receiver {n + 1} ({_kind(urls[n])}) {statuses.get(n, otherwise)}" for n in missed)
            raise UndeliveredError("; ".join(said) or "the connection names no receiver")


def _urls(connection: str) -> list[str]:
    """The Apprise URLs of a connection, made known to the log's masker."""
    from airflow.providers.apprise.hooks.apprise import AppriseHook

    found: Any = AppriseHook(connection).get_config_from_conn(BaseHook.get_connection(connection))
    urls = [str(entry["path"]) for entry in (found if isinstance(found, list) else [found])]
    for url in urls:
        mask_secret(url)
    return urls


def _kind(url: str) -> str:
    found = _SCHEME.match(url)
    return found[1] if found else "no URL"


def _environment() -> dict[str, str]:
    """This process's environment without Airflow's, which may hold connections, and with where its packages are."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
    return kept | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def _send(
    urls: Sequence[str], messages: Sequence[tuple[Message, Collection[int]]]
) -> tuple[list[tuple[int, int, str]], str]:
    """Message, receiver and status of each answer, and what to say of receivers that gave none."""
    otherwise = "could not be asked"
    document = {
        "receivers": list(enumerate(urls)),
        "messages": [
            {"title": message.title, "body": message.body, "kind": message.kind, "reached": sorted(have)}
            for message, have in messages
        ],
    }
    try:
        output = subprocess.run(
            [sys.executable, "-m", "pulsar_rebalancer_airflow.alerts.send"],
            input=json.dumps(document).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_environment(),
            timeout=TIMEOUT_SECONDS,
            check=False,
        ).stdout
    except subprocess.TimeoutExpired as late:
        output, otherwise = late.stdout or b"", "did not answer in time"
    lines = (_LINE.fullmatch(line) for line in output.splitlines())
    return [(int(found[1]), int(found[2]), found[3].decode()) for found in lines if found], otherwise
