"""Sends messages to receivers; a process of its own, which can be ended when a receiver does not answer.

Reads a document from standard input: `receivers`, a list of Apprise URLs, and `messages`, each with title, body, kind
and the numbers of the receivers that have it already. Writes a line for each message and receiver to standard output
as soon as it is known: their numbers and `delivered`, `refused` or `unusable`.
URLs hold secrets, and libraries log them: they come by standard input alone, and nobody reads standard error.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from typing import TypedDict


class _Message(TypedDict):
    title: str
    body: str
    kind: str
    reached: list[int]


def deliver(receiver: int, url: str, messages: list[_Message]) -> None:
    """Send one receiver what it does not have yet, in order; the first failure is the last try."""
    from apprise import Apprise, NotifyFormat

    service = Apprise()
    status = "delivered" if service.add(url) else "unusable"
    for number, message in enumerate(messages):
        if receiver in message["reached"]:
            continue
        if status == "delivered" and not service.notify(
            title=message["title"], body=message["body"], notify_type=message["kind"], body_format=NotifyFormat.TEXT
        ):
            status = "refused"
        os.write(sys.stdout.fileno(), f"{number} {receiver} {status}\n".encode())  # one call: lines stay whole
        if status != "delivered":
            return


def main() -> None:
    """Send to all receivers at once, so that a slow one holds nobody else up."""
    logging.disable(logging.CRITICAL)
    document = json.load(sys.stdin)
    threads = [
        threading.Thread(target=deliver, args=(number, url, document["messages"]), daemon=True)
        for number, url in enumerate(document["receivers"])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os._exit(0)  # services may leave threads of their own behind


if __name__ == "__main__":
    main()
