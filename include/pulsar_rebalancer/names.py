"""Formats of names in settings and broker responses, and names of Pulsar settings."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Annotated, Any, NamedTuple
from urllib.parse import urlsplit
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import AfterValidator, BeforeValidator, Field

CLUSTER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
"""Pattern for cluster names, which become part of folder names and DAG ids."""

SHEDDING_SETTING = "loadBalancerSheddingEnabled"
"""The dynamic setting that the leader checks before it sheds (LoadSheddingTask, UnloadScheduler)."""

BALANCER_SETTING = "loadBalancerEnabled"
"""A static setting. If it is false, a broker never sheds, even if `loadBalancerSheddingEnabled` is true."""

SPLITTING_SETTING = "loadBalancerAutoBundleSplitEnabled"
"""The dynamic setting for automatic splits (ModularLoadManagerImpl, SplitScheduler)."""

HEARTBEAT_NAMESPACE = r"(?:pulsar|sla-monitor)/[^:/]+:[0-9]+"
"""Heartbeat and SLA-monitor namespaces, which Pulsar's strategies ignore (NamespaceService, 4.2.4 and 5.0.1)."""

SYSTEM_NAMESPACE = "pulsar/system"
"""A namespace whose bundles Pulsar moves; the rebalancer moves them only with `move_system_bundles`."""

_HEARTBEAT_PATTERN = re.compile(HEARTBEAT_NAMESPACE)
_HEARTBEAT_PREFIXES = ("pulsar/", "sla-monitor/")
_BROKER_ID = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}")
_NAMESPACE = re.compile(r"[^/\s]+/[^/\s]+")
_MAX_BROKER_ID_CHARS = 253 + len("[]:65535")
"""Maximum length of host:port: the longest host name (RFC 1035), the brackets of an IPv6 address, and a port."""
_MAX_PATTERN_CHARS = 256
_LAST_HASH = 0xFFFFFFFF
HASH_RANGE_PATTERN = re.compile(r"0x[0-9a-fA-F]{8}_0x[0-9a-fA-F]{8}")
"""Pattern of a bundle's hash range, the last part of its name."""


def is_broker_id(text: str) -> bool:
    if len(text) > _MAX_BROKER_ID_CHARS or _BROKER_ID.fullmatch(text) is None:
        return False
    try:
        parts = urlsplit(f"http://{text}")
        return bool(parts.hostname and parts.port)
    except ValueError:
        return False


def namespace_of(bundle: str) -> str:
    return bundle.rpartition("/")[0]


def range_of(bundle: str) -> str:
    return bundle.rpartition("/")[2]


def is_heartbeat(bundle: str) -> bool:
    # The prefix is cheap to check, and this is called for hundreds of thousands of clients' bundles.
    return bundle.startswith(_HEARTBEAT_PREFIXES) and _HEARTBEAT_PATTERN.fullmatch(namespace_of(bundle)) is not None


def is_system_bundle(bundle: str) -> bool:
    """Return whether a bundle contains the brokers' own topics; it is never moved or split."""
    return is_heartbeat(bundle) or namespace_of(bundle) == SYSTEM_NAMESPACE


def is_in_bundle(topic: str, bundle: str) -> bool:
    """Return whether a topic's CRC32 is in a bundle's range (NamespaceBundle.includes, Hashing.crc32)."""
    namespace, _, hash_range = bundle.rpartition("/")
    low, high = (int(bound, 16) for bound in hash_range.split("_"))
    position = crc32(topic.encode())
    inside = low <= position < high or position == high == _LAST_HASH
    return inside and topic.partition("://")[2].startswith(f"{namespace}/")


def is_extensible(load_manager: str) -> bool:
    return load_manager.strip().rpartition(".")[2] == "ExtensibleLoadManagerImpl"


def split_commas(text: str) -> tuple[str, ...]:
    """Return the items of a comma-separated list, which can be in brackets, as in broker responses."""
    text = text.strip()
    # A list with one IPv6 address and a port does not end in a bracket: "[::1]:8080".
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1]
    return tuple(item.strip() for item in text.split(",") if item.strip())


def _check_namespace(name: str) -> str:
    if _NAMESPACE.fullmatch(name) is None:
        raise ValueError(f"{name!r} is not of the form tenant/namespace")
    return name


def _check_broker(name: str) -> str:
    if not is_broker_id(name):
        raise ValueError(f"{name!r} is not a broker of the form host:port, as listed by /admin/v2/brokers")
    return name


def _check_pattern(text: str) -> str:
    if len(text) > _MAX_PATTERN_CHARS or len(text.split()) != 1:
        raise ValueError(
            f"{text[:80]!r} is not a pattern of bundle names: give one word of at most {_MAX_PATTERN_CHARS} characters"
        )
    return text


def _split_items(value: object) -> object:
    if isinstance(value, str):
        return split_commas(value)
    if isinstance(value, (list, tuple)):
        return [item.strip() if isinstance(item, str) else item for item in value]
    return value


Namespaces = Annotated[tuple[Annotated[str, AfterValidator(_check_namespace)], ...], BeforeValidator(_split_items)]
Patterns = Annotated[
    tuple[Annotated[str, AfterValidator(_check_pattern)], ...], BeforeValidator(_split_items), Field(max_length=100)
]
Brokers = Annotated[tuple[Annotated[str, AfterValidator(_check_broker)], ...], BeforeValidator(_split_items)]


class HashRange(NamedTuple):
    lower: int
    upper: int

    @classmethod
    def of_bundle(cls, bundle: str) -> HashRange:
        lower, upper = (int(bound, 16) for bound in range_of(bundle).split("_"))
        return cls(lower, upper)

    def can_be_cut_at(self, position: int) -> bool:
        return self.lower < position < self.upper

    def contains_range(self, other: HashRange) -> bool:
        return self.lower <= other.lower and other.upper <= self.upper


MAX_NAME_CHARS = 300
"""Maximum length of a name that is matched against a policy's patterns."""

_MAX_REGEX_CHARS = 1000
_MAX_REPEATS = 100
"""Maximum product of the bounds of all `{n,m}` in a pattern, because RE2 expands every repetition."""

_MEMBER = r"(?:[^\\\[\]^&\-]|\\[!-/:-@\[-`{-~])"
_REGEX_TOKEN = rf"""
    [^\\\[\](){{}}*+?]                              # a character, any character, the begin, the end, an alternative
  | \\(?:[dDwWsSbB]|[!-/:-@\[-`{{-~])               # a class of ASCII characters, a quoted character
  | \[\^?-?(?:\\[dDwWsS]|{_MEMBER}(?:-{_MEMBER})?)+-?\]  # Java reads `[a[b]]` as a union, `[a&&b]` as an intersection
  | \((?:\?:|\?i\)(?![*+?{{])|(?!\?))               # a group; ignore case
  | \)
  | (?:[*+?]|\{{[0-9]+(?:,[0-9]*)?\}})\??           # a repeat
"""
_SAME_IN_JAVA = re.compile(rf"(?>{_REGEX_TOKEN})*+", re.VERBOSE)
"""Matches patterns with syntax that means the same in Java and RE2. RE2 rejects invalid patterns, such as `a**`."""

_REPEAT_BOUNDS = re.compile(r"\{([0-9]+)(?:,([0-9]*))?\}")
_MATCHABLE_NAME = re.compile(rf"[!-~]{{1,{MAX_NAME_CHARS}}}")


def regex_of_glob(pattern: str) -> str:
    """Convert a name pattern to a regular expression: `*` matches any text, `?` any single character."""
    return "".join({"*": ".*", "?": "."}.get(letter, re.escape(letter)) for letter in pattern)


def is_java_compatible(pattern: str) -> bool:
    """Return whether RE2 gives the same results; look-around, for example, is not supported."""
    if len(pattern) > _MAX_REGEX_CHARS or _SAME_IN_JAVA.fullmatch(pattern) is None:
        return False
    if "(?i" in pattern and not pattern.isascii():
        return False  # RE2 also ignores the case of other letters
    repeats = 1
    for lower, upper in _REPEAT_BOUNDS.findall(pattern):
        repeats *= max(int(lower[:9]), int(upper[:9] or 0), 1)
    if repeats > _MAX_REPEATS:
        return False
    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except pa.ArrowInvalid:
        return False
    return True


def is_matchable_name(text: str) -> bool:
    return _MATCHABLE_NAME.fullmatch(text) is not None


def match_mask(pattern: str, names: Any) -> Any:
    return pc.match_substring_regex(names, rf"\A(?:{pattern})\z")


@lru_cache(maxsize=1 << 16)
def matches_pattern(pattern: str, name: str) -> bool:
    return bool(match_mask(pattern, pa.scalar(name)).as_py())
