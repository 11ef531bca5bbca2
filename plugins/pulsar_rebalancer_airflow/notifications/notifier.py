"""Send messages to every receiver of an `apprise` connection."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook
from airflow.sdk.log import mask_secret

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pulsar_rebalancer.show.alerts.messages import AlertMessage

TIMEOUT_SECONDS = 10.0
"""Time limit per run for all messages to all receivers."""

_LOG_URLS = ("apprise", "urllib3")
"""Loggers that write parts of URLs, which can contain secrets."""


def send(connection: str, messages: Sequence[AlertMessage]) -> tuple[list[bool], list[str]]:
    """Send messages in order, each to all receivers at the same time, until a time limit is reached.

    The notifier of Airflow's Apprise provider is not used, because it drops Apprise's result and has no timeout. A
    receiver that does not answer in time occupies one of the task's threads until the task ends.

    Args:
        connection: Airflow connection of type `apprise`.

    Returns:
        Two lists: for each message sent, True if at least one receiver accepted it; and the kinds of receivers that did
        not accept every message. URLs are not returned, because they can contain secrets.

    Raises:
        Exception: the connection does not exist or is not an Apprise connection; the message can contain a secret.
    """
    from apprise import Apprise, NotifyFormat

    for name in _LOG_URLS:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    service = Apprise()
    missed = {"one without a usable URL" for url in receivers(connection) if not service.add(url)}
    until, taken = time.monotonic() + TIMEOUT_SECONDS, []
    for message in messages:
        left = until - time.monotonic()
        if left <= 0:
            break
        result = service.notify(
            title=message.title,
            body=message.body,
            notify_type=message.kind,
            body_format=NotifyFormat.TEXT,
            timeout=left,
        )
        missed |= {answer.name for answer in result if not answer}
        taken.append(result.success_count > 0)
    return taken, sorted(missed)


def receivers(connection: str) -> list[str]:
    """Return the Apprise URLs of a connection, and mask them in the task log from now on."""
    from airflow.providers.apprise.hooks.apprise import AppriseHook

    config: Any = AppriseHook(connection).get_config_from_conn(BaseHook.get_connection(connection))
    urls = [str(entry["path"]) for entry in (config if isinstance(config, list) else [config])]
    for url in urls:
        mask_secret(url)
    return urls
