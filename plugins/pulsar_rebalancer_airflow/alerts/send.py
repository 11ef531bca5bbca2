"""Sends messages to receivers; a process of its own, which can be ended when a receiver does not answer.

Reads a document from standard input: `receivers`, Apprise URLs with their numbers, and `messages`, each with title,
body, kind and the numbers of the receivers that have it already. Writes a line for each message and receiver to
standard output as soon as it is known: their numbers and `delivered`, `refused` or `unusable`.
URLs hold secrets, and libraries log them: they come by standard input alone, and nobody reads standard error.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from typing import Any

_said = threading.Lock()


def deliver(receiver: int, url: str, messages: list[dict[str, Any]]) -> None:
    """Send one receiver what it does not have yet, in order; the first failure is the last try."""
    from apprise import Apprise, NotifyFormat

    service = Apprise()
    if not service.add(url):
        _say(0, receiver, "unusable")
        return
    for number, message in enumerate(messages):
        if receiver in message["reached"]:
            continue
        taken = service.notify(
            title=message["title"], body=message["body"], notify_type=message["kind"], body_format=NotifyFormat.TEXT
        )
        _say(number, receiver, "delivered" if taken else "refused")
        if not taken:
            return


def _say(message: int, receiver: int, status: str) -> None:
    with _said:
        sys.stdout.write(f"{message} {receiver} {status}\n")
        sys.stdout.flush()


def main() -> None:
    """All receivers at once, so that a slow one holds nobody else up."""
    logging.disable(logging.CRITICAL)
    document = json.load(sys.stdin)
    threads = [
        threading.Thread(target=deliver, args=(number, url, document["messages"]), daemon=True)
        for number, url in document["receivers"]
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.stdout.flush()
    os._exit(0)  # services may leave threads of their own behind


if __name__ == "__main__":
    main()
