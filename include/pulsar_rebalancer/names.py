"""Forms of the names that people write and brokers answer, and names of the brokers' own switches."""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator

CLUSTER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
"""Cluster names become folders and DAG ids."""

SHEDDING = "loadBalancerSheddingEnabled"
"""The dynamic setting that the leader looks at before it sheds.

(LoadSheddingTask; with the extensible load manager UnloadScheduler, which looks at both settings as well.)
"""

BALANCER = "loadBalancerEnabled"
"""The static setting without which a broker never sheds, whatever the dynamic one says."""

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


def split_list(text: str) -> tuple[str, ...]:
    """Items of a comma separated list, also in the brokers' form `[a, b]`."""
    text = text.strip()
    # The brackets of an IPv6 address stay: "[::1]:8080".
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1]
    return tuple(item.strip() for item in text.split(",") if item.strip())


def _namespace(name: str) -> str:
    if _NAMESPACE.fullmatch(name) is None:
        raise ValueError(f"{name!r} is not of the form tenant/namespace")
    return name


def _broker(name: str) -> str:
    if not is_broker_id(name):
        raise ValueError(f"{name!r} is not of the form host:port, as /admin/v2/brokers lists brokers")
    return name


def _items(value: object) -> object:
    """Lists may be written as one text; what surrounds a name is not part of it."""
    if isinstance(value, str):
        return split_list(value)
    if isinstance(value, (list, tuple)):
        return [item.strip() if isinstance(item, str) else item for item in value]
    return value


Namespaces = Annotated[tuple[Annotated[str, AfterValidator(_namespace)], ...], BeforeValidator(_items)]
Brokers = Annotated[tuple[Annotated[str, AfterValidator(_broker)], ...], BeforeValidator(_items)]
