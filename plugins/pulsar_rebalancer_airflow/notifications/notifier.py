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
"""Loggers that write parts of URLs, which may contain secrets."""


def send(connection: str, messages: Sequence[AlertMessage]) -> tuple[list[bool], list[str]]:
    """Send messages in order, each to all receivers at once, until the time is up.

    The provider's own notifier drops Apprise's answer and has no time-out. A receiver that does not answer in time
    keeps one of the task's threads busy until the task ends.

    Args:
        connection: Airflow connection of type `apprise`.

    Returns:
        For each message tried, whether any receiver accepted it; and the kinds, never the URLs, of the receivers that
        missed a message.

    Raises:
        Exception: the connection does not exist or is not an Apprise connection; the text may contain a secret.
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
    """Return the Apprise URLs of a connection; the task log masks them from then on."""
    from airflow.providers.apprise.hooks.apprise import AppriseHook

    config: Any = AppriseHook(connection).get_config_from_conn(BaseHook.get_connection(connection))
    urls = [str(entry["path"]) for entry in (config if isinstance(config, list) else [config])]
    for url in urls:
        mask_secret(url)
    return urls
