"""Forms of the names that people write and brokers answer."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

CLUSTER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
"""Cluster names become folders and DAG ids."""

_BROKER_ID = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):\d{1,5}")
_NAMESPACE = re.compile(r"[^/\s]+/[^/\s]+")


def is_broker_id(text: str) -> bool:
    """Whether the text is `host:port`, the form of every brokerId, and can be part of a URL."""
    if _BROKER_ID.fullmatch(text) is None:
        return False
    try:
        parts = urlsplit(f"http://{text}")
        return bool(parts.hostname and parts.port)
    except ValueError:
        return False


def is_namespace(text: str) -> bool:
    """Whether the text is `tenant/namespace`."""
    return _NAMESPACE.fullmatch(text) is not None
