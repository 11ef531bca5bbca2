"""Messages on their way to every receiver that a connection of type `apprise` names."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow.sdk import BaseHook
from airflow.sdk.log import mask_secret

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pulsar_rebalancer.alerts.messages import AlertMessage

TIMEOUT_SECONDS = 10.0
"""How long a run waits for all receivers together."""

_LINE = re.compile(rb"(\d+) (\d+) (delivered|refused|unusable)")
_SCHEME = re.compile(r"([a-z][a-z0-9+]{0,19})://")


class Delivery(NamedTuple):
    """What became of messages.

    Attributes:
        reached: for each message the numbers of the receivers that have it now.
        missed: which receivers did not take all of theirs, by number and kind and never by URL; empty when none.
        receivers: how many there are.
    """

    reached: list[set[int]]
    missed: str
    receivers: int


def send(connection: str, messages: Sequence[tuple[AlertMessage, Collection[int]]]) -> Delivery:
    """Send messages through Apprise, and return who has them.

    The provider's own notifier drops Apprise's answer and waits as long as the receivers like. Here a process of its
    own sends, and is ended when the time is up.

    Args:
        connection: Airflow connection of type `apprise`.
        messages: each with the numbers of the receivers that have it already.

    Raises:
        Exception: the connection does not exist, or is none of Apprise's; its text may hold a secret.
    """
    urls = receivers(connection)
    reached = [set(have) for _, have in messages]
    answers, otherwise = _ask(urls, messages)
    statuses: dict[int, str] = {}
    for message, receiver, status in answers:
        if status == "delivered":
            reached[message].add(receiver)
        else:
            statuses[receiver] = status
    late = [n for n in range(len(urls)) if not all(n in have for have in reached)]
    missed = "; ".join(f"receiver {n + 1} ({_kind(urls[n])}) {statuses.get(n, otherwise)}" for n in late)
    return Delivery(reached, missed if urls else "the connection names no receiver", len(urls))


def receivers(connection: str) -> list[str]:
    """Return the Apprise URLs of a connection, made known to the log's masker."""
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
    """Return this environment without Airflow's part, which may hold connections, and with where packages are."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
    return kept | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def _ask(
    urls: Sequence[str], messages: Sequence[tuple[AlertMessage, Collection[int]]]
) -> tuple[list[tuple[int, int, str]], str]:
    """Message, receiver and status of each answer, and what to say of receivers that gave none."""
    otherwise = "could not be asked"
    texts = [vars(message) | {"reached": sorted(have)} for message, have in messages]
    try:
        output = subprocess.run(
            [sys.executable, "-m", "pulsar_rebalancer_airflow.notifications.send"],
            input=json.dumps({"receivers": urls, "messages": texts}).encode(),
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
